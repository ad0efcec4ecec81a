"""Grants: proofs of an authorization check, and the scopes that they are asked for."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime

from tbservice.types.identifiers import ExperimentId, TokenId, UserId, WorkspaceId


class Scope(enum.StrEnum):
    """A right of a token. `admin` includes the others."""

    APPEND = "append"
    READ = "read"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Grant:
    """Proof of an authorization check by `auth/grants.py`. Compaction makes its own.

    `user_id` is the person who acts, by a browser session or a token of theirs. It is None for a
    machine's token, and for who has no more than a link.
    """

    workspace_id: WorkspaceId
    user_id: UserId | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class WorkspaceGrant(Grant):
    """May do in the whole workspace what the scope says that the grant was asked for.

    With `may_share`, who has the scope admin, new experiments can be visible by link.
    """

    may_share: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class OwnerGrant(Grant):
    """May manage the workspace: its name, members, invitations and tokens."""


@dataclass(frozen=True, slots=True)
class PersonalGrant(Grant):
    """May do what concerns the person `user_id` alone, by a token of theirs.

    A new token of theirs may not exceed this one's scopes (admin includes all), workspace and
    `expires_at` (None: never).
    """

    token_id: TokenId
    scopes: frozenset[Scope]
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class ExperimentGrant(Grant):
    """A right on one experiment; the subclass is the right."""

    experiment_id: ExperimentId


@dataclass(frozen=True, slots=True)
class LinkView:
    """View of a share link: RE2 patterns of complete names (None: all), whether it hides origin."""

    token_id: TokenId
    run_pattern: str | None = None
    tag_pattern: str | None = None
    is_anonymous: bool = False

    @property
    def is_restricted(self) -> bool:
        """Whether anything of the experiment is hidden."""
        return self.is_anonymous or (self.run_pattern, self.tag_pattern) != (None, None)


@dataclass(frozen=True, slots=True)
class ReadGrant(ExperimentGrant):
    """May read the experiment: everything, or with a share link what it shows.

    `is_stranger`: by the visibility `link` alone, as everyone may; learns nothing of people and
    hosts.
    """

    link: LinkView | None = None
    is_stranger: bool = False

    @property
    def view(self) -> LinkView | None:
        """View of a restricted link; None for everything. It is part of every cache key."""
        return self.link if self.link is not None and self.link.is_restricted else None


@dataclass(frozen=True, slots=True)
class AppendGrant(ExperimentGrant):
    """May append to the experiment and list its upload cursors.

    With `may_name_workspace_blobs`, the token is a workspace's: batches may refer to every blob of
    the workspace. Others may refer only to blobs that were uploaded through their experiment.
    """

    may_name_workspace_blobs: bool = False


@dataclass(frozen=True, slots=True)
class AdminGrant(ExperimentGrant):
    """May rename, delete and share the experiment.

    `is_kept_copy`: of a frozen copy that has outlasted its source, its link may be renamed or
    revoked, and nothing else.
    """

    is_kept_copy: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class KatibGrant(Grant):
    """May report trials of Katib: of one experiment, or of any in the workspace if that is None.

    As over HTTP, who may only append deletes nothing: that needs `may_delete`, which is the scope
    admin. With `may_read`, the logs can be read.
    """

    experiment_id: ExperimentId | None
    may_read: bool
    may_delete: bool = field(default=False, kw_only=True)
