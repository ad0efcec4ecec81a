"""Create, list, rename and revoke share links: read tokens of one experiment, to be passed on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from tbservice import limits
from tbservice.audit.acts import Act
from tbservice.audit.recording import record
from tbservice.auth import secrets
from tbservice.auth.tokens import check_end, check_room, delete_ended
from tbservice.db import link_views
from tbservice.errors import Invalid, NotFound
from tbservice.experiments import snapshots
from tbservice.experiments.lifecycle import NOT_FOUND, find_own
from tbservice.experiments.metadata import check_text
from tbservice.experiments.tables import experiments, share_links
from tbservice.experiments.tables.share_links import PlacedLink, ShareLink
from tbservice.ingest.door import Door, PointWriter
from tbservice.pagination import cut_page, decode_page_token, encode_page_token
from tbservice.patterns import PATTERN_CHARS_MAX, compile_pattern
from tbservice.types.experiments import Visibility
from tbservice.types.grants import AdminGrant, LinkView, OwnerGrant
from tbservice.types.identifiers import TokenId, UserId

__all__ = [
    "PlacedLink",
    "ShareLink",
    "begin_link",
    "count_links",
    "create_link",
    "create_links",
    "list_links",
    "list_workspace_links",
    "make_address",
    "rename_link",
    "revoke_link",
]

_NOT_FOUND = "the experiment has no such link"


@contextmanager
def begin_link(door: Door, grant: AdminGrant, *, is_frozen: bool) -> Iterator[PointWriter]:
    """Open the transaction for `create_link`.

    That of a frozen link sees one state, and not what others record meanwhile: so it is recorded
    before, in a transaction of its own, and then may fail.

    Raises Conflict if another frozen link is being made, and NotFound.
    """
    if not is_frozen:
        with door.transaction(grant) as writer:
            yield writer
        return
    with door.database.transaction(grant) as db:
        record(db, Act.LINK_FREEZE, grant.workspace_id, grant.experiment_id)
    with door.copying(grant) as writer:
        snapshots.lock_source(writer, grant)
        # It may see a state from before a deletion; from now on, the eraser waits for its copy.
        with door.database.transaction(grant) as db:
            find_own(db, grant)
        yield writer
    # Nobody has the link yet: so nobody has read by it what was deleted while it was copied.
    with door.database.transaction(grant) as db:
        is_late = snapshots.delete_late(db, grant.experiment_id)
    if is_late:
        raise NotFound(NOT_FOUND)


def create_link(
    writer: PointWriter,
    grant: AdminGrant,
    label: str = "",
    expires_at: datetime | None = None,
    run_pattern: str | None = None,
    tag_pattern: str | None = None,
    *,
    is_anonymous: bool = False,
    is_frozen: bool = False,
) -> tuple[ShareLink, str]:
    """Create a link; return it and its secret, which cannot be read again.

    A frozen link opens a copy of what it would show now. The transaction is of `begin_link`.
    Deletes a few ended tokens, and copies whose links have ended.

    Args:
        writer: A transaction of the workspace.
        grant: The right to share the experiment.
        label: A name for people.
        expires_at: When the link ends; None for never.
        run_pattern: RE2 that the complete name of a run must match to be shown; None for all.
        tag_pattern: RE2 pattern of the tags that the link shows; None for all.
        is_anonymous: Hide who uploaded the experiment, and where it came from.
        is_frozen: Show the data of now, also when they change or are deleted.

    Raises:
        Invalid: A pattern or the label is not valid, the time has passed, or the link would hide
            what everybody may read by the experiment's visibility.
        NotFound: The experiment was deleted.
        Conflict: It has too many tokens and links, or frozen links, or another one is being made.
        TooLarge: There is too much to copy.
    """
    db = writer.db
    check_end(db, expires_at)
    _check(label, run_pattern, tag_pattern)
    shown = LinkView(TokenId(secrets.generate_public_id()), run_pattern, tag_pattern, is_anonymous)
    if shown.is_restricted and not is_frozen:
        _check_private(db, grant)
    delete_ended(db, grant.workspace_id, grant.experiment_id)
    snapshots.delete_unused(db, grant.experiment_id)
    check_room(db, grant.workspace_id, grant.experiment_id)
    target = grant.experiment_id
    if is_frozen:
        link_views.show(db, grant.experiment_id, shown)
        target = snapshots.create_snapshot(writer, grant, expires_at)

    secret = secrets.generate_token()
    # Only its digest is stored: a copy of the database opens no links.
    digest, prefix = secrets.secret_digest(secret), secrets.get_display_prefix(secret)
    link = share_links.create(db, grant, shown, target, label, prefix, digest, expires_at)
    if not is_frozen:  # `begin_link` has recorded it
        _record_link(db, Act.LINK_CREATE, grant, link)
    return link, secret


def create_links(
    door: Door,
    shown: Sequence[tuple[AdminGrant, str | None, str | None]],
    label: str,
    expires_at: datetime | None,
) -> list[tuple[ShareLink, str]]:
    """Create a link for each of several experiments of a workspace, or none; return the secrets.

    `shown` has patterns of runs and tags for each. Raises as `create_link`.
    """
    with begin_link(door, shown[0][0], is_frozen=False) as writer:
        return [
            create_link(writer, grant, label, expires_at, runs, tags) for grant, runs, tags in shown
        ]


def make_address(server: str, link: ShareLink, secret: str) -> str:
    """Return the address that opens the page of what a link shows; `server` is our public URL."""
    return f"{server.rstrip('/')}/experiment/{link.target}/?token={secret}"


def list_links(
    db: Connection, grant: AdminGrant, after: str | None, limit: int
) -> tuple[list[ShareLink], str | None]:
    """Return a page of an experiment's links and the page token of the next one, if any.

    The newest first, with ended ones. Raises MalformedRequest if `after` is not a page token.
    """
    before = decode_page_token(after) if after else None
    rows = share_links.list_page(db, grant.experiment_id, before, limit + 1)
    return cut_page([_of(grant, link) for link in rows], limit, _page_token)


def list_workspace_links(
    db: Connection, grant: OwnerGrant, created_by: UserId | None, after: str | None, limit: int
) -> tuple[list[PlacedLink], str | None]:
    """Return a page of the workspace's valid links, and the page token of the next one, if any.

    The newest first. None for `created_by` lists the links of all creators. Links outlast their
    creator's membership. Raises MalformedRequest if `after` is not a page token.
    """
    before = decode_page_token(after) if after else None
    rows = share_links.list_page_of_workspace(db, grant.workspace_id, created_by, before, limit + 1)
    return cut_page(rows, limit, lambda last: _page_token(last.link))


def count_links(db: Connection, grant: OwnerGrant) -> dict[UserId, int]:
    """Return how many valid links of the workspace each person made, who made any."""
    return share_links.count_by_creator(db, grant.workspace_id)


def rename_link(db: Connection, grant: AdminGrant, token_id: str, label: str) -> ShareLink:
    """Change a link's label. Raises Invalid for one that is too long, and NotFound."""
    check_text("a label", label, limits.EXPERIMENT_NAME_CHARS_MAX)
    link = share_links.rename(db, grant.experiment_id, TokenId(token_id), label)
    if link is None:
        raise NotFound(_NOT_FOUND)
    _record_link(db, Act.LINK_RENAME, grant, link)
    return _of(grant, link)


def revoke_link(db: Connection, grant: AdminGrant, token_id: str) -> None:
    """Revoke a link. That of a frozen link is deleted with its data, and no longer listed.

    Raises NotFound if the experiment has no such link.
    """
    link = share_links.revoke(db, grant.experiment_id, TokenId(token_id))
    if link is None:
        raise NotFound(_NOT_FOUND)
    _record_link(db, Act.LINK_REVOKE, grant, link)
    if _of(grant, link).is_frozen:
        snapshots.delete_snapshot(db, link.target)


def _of(grant: AdminGrant, link: ShareLink) -> ShareLink:
    """Return a link of the grant's experiment; of a kept copy, all are frozen."""
    return replace(link, is_frozen=True) if grant.is_kept_copy else link


def _record_link(db: Connection, act: Act, grant: AdminGrant, link: ShareLink) -> None:
    record(
        db,
        act,
        grant.workspace_id,
        link.token_id,
        experiment_id=grant.experiment_id,
        label=link.label,
        runs=link.run_pattern,
        tags=link.tag_pattern,
    )


def _page_token(last: ShareLink) -> str:
    return encode_page_token(last.created_at, last.token_id)


def _check(
    label: str,
    run_pattern: str | None,
    tag_pattern: str | None,
) -> None:
    check_text("a label", label, limits.EXPERIMENT_NAME_CHARS_MAX)
    for name, pattern in (("runs", run_pattern), ("tags", tag_pattern)):
        if pattern is not None:
            check_text(name, pattern, PATTERN_CHARS_MAX)
            try:
                compile_pattern(pattern)
            except ValueError as error:
                raise Invalid(f"{name}: {error}") from error


def _check_private(db: Connection, grant: AdminGrant) -> None:
    # Locked, so that no other transaction makes it visible before this link is committed.
    experiment = experiments.find(db, grant.experiment_id, is_locked=True)
    if experiment is not None and experiment.visibility is Visibility.LINK:
        raise Invalid(
            "anyone with the experiment's URL, which is part of the link, may read all "
            "of it: set its visibility to private, or make a frozen link"
        )
