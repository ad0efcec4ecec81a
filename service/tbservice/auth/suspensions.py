"""Suspend a workspace, a person, a share link or what shares an experiment, and release it.

For administrators. A look-up of a grant finds what is suspended (`db/suspensions.py`), so that both
hold from the next request on; nothing else changes.
"""

from __future__ import annotations

from itertools import chain
from typing import Final, NamedTuple

from sqlalchemy import Connection

from tbservice.audit.acts import Act
from tbservice.audit.recording import record
from tbservice.auth import people, secrets
from tbservice.auth.tables import auth_lookup, members, suspensions, tokens, workspaces
from tbservice.auth.tables.suspensions import SuspensionRow
from tbservice.db.database import set_local
from tbservice.db.schema_parts import has_table
from tbservice.errors import Conflict, Invalid, NotFound, StartupError
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import INT64_MAX, ExperimentId, TokenId, UserId, WorkspaceId
from tbservice.types.people import Role
from tbservice.types.suspensions import Suspendable, subject_of

SUSPENSION_REASON_CHARS_MAX: Final = 500
"""Characters of the reason of a suspension."""

_ACTS: Final = {
    Suspendable.WORKSPACE: (Act.WORKSPACE_SUSPEND, Act.WORKSPACE_RELEASE),
    Suspendable.PERSON: (Act.PERSON_SUSPEND, Act.PERSON_RELEASE),
    Suspendable.LINK: (Act.LINK_SUSPEND, Act.LINK_RELEASE),
    Suspendable.EXPERIMENT: (Act.EXPERIMENT_SUSPEND, Act.EXPERIMENT_RELEASE),
}


class Subject(NamedTuple):
    """Something that can be suspended; `workspace_id` is None for a person."""

    kind: Suspendable
    object_id: str
    workspace_id: WorkspaceId | None

    @property
    def key(self) -> str:
        """Return its key in the table."""
        return subject_of(self.kind, self.object_id)


def suspend(
    db: Connection,
    kind: Suspendable,
    named: str,
    reason: str,
    workspace_id: WorkspaceId | None = None,
) -> Subject | None:
    """Suspend something, or change the reason; return it, or None if nothing changed.

    Args:
        db: A transaction of no workspace.
        kind: What `named` is.
        named: Its id; of a person, also the e-mail address.
        reason: What readers are told.
        workspace_id: Of a link: where to look first, as many workspaces take long.

    Raises:
        NotFound: There is no such thing.
        Invalid: The reason is empty or too long.
        StartupError: The database lacks the migration.
    """
    _require_table(db)
    reason = " ".join("".join(char if char.isprintable() else " " for char in reason).split())
    if not 0 < len(reason) <= SUSPENSION_REASON_CHARS_MAX:
        raise Invalid(f"a reason has 1 to {SUSPENSION_REASON_CHARS_MAX} characters: readers see it")
    subject = _find_subject(db, kind, named, workspace_id)
    before = suspensions.find(db, subject.key)
    if before is not None and before.reason == reason:
        return None
    suspensions.put(db, subject.key, reason)
    record(db, _ACTS[kind][0], subject.workspace_id, subject.object_id, reason=reason)
    return subject


def release(db: Connection, kind: Suspendable, named: str) -> Subject:
    """Give everything back that a suspension took; return what was suspended.

    Of a thing that was deleted meanwhile, too. Raises NotFound for a person who is unknown, and
    Conflict for what is not suspended.
    """
    _require_table(db)
    try:
        subject = _find_subject(db, kind, named)
    except NotFound:
        subject = Subject(kind, named, None)
    if not suspensions.delete(db, subject.key):
        raise Conflict(f"{kind} {named} is not suspended")
    record(db, _ACTS[kind][1], subject.workspace_id, subject.object_id)
    return subject


def list_suspended(db: Connection) -> list[SuspensionRow]:
    """Return everything that is suspended, the latest first. For administrators."""
    return suspensions.list_all(db) if has_table(db, "suspensions") else []


def list_sole_ownerships(db: Connection, user_id: UserId) -> list[str]:
    """Return the names of the workspaces that this person alone owns: nobody manages them then.

    Their owners do not change until the transaction ends.
    """
    owned = [each for each in members.list_of_user(db, user_id) if each.role is Role.OWNER]
    return [
        membership.workspace_name
        for membership in sorted(owned, key=lambda each: each.workspace_id)
        if not _has_other_owner(db, membership.workspace_id, user_id)
    ]


def check_sharing(db: Connection, grant: ReadGrant) -> None:
    """Raise the error of a suspension that began since the grant was made: for long reads.

    Transactions with the grant of a link check it by themselves.
    """
    if grant.link is not None:
        return
    kinds = {Suspendable.WORKSPACE: str(grant.workspace_id)}
    if grant.is_stranger:
        kinds[Suspendable.EXPERIMENT] = grant.experiment_id
    if grant.user_id is not None:
        kinds[Suspendable.PERSON] = grant.user_id
    found = suspensions.find_broadest(db, [subject_of(kind, each) for kind, each in kinds.items()])
    if found is not None:
        raise found.as_error()


def _require_table(db: Connection) -> None:
    if not has_table(db, "suspensions"):
        raise StartupError("the database has no suspensions yet: run 'tbservice migrate'")


def _find_subject(
    db: Connection, kind: Suspendable, named: str, first: WorkspaceId | None = None
) -> Subject:
    """Return what is named. Raises NotFound."""
    if kind is Suspendable.PERSON:
        return Subject(kind, people.find_named(db, named).user_id, None)
    if kind is Suspendable.WORKSPACE:
        workspace_id = _parse_workspace(db, named)
    elif kind is Suspendable.LINK:
        workspace_id = _find_workspace_of_link(db, TokenId(named), first)
    else:
        workspace_id = _find_workspace_of_experiment(db, named)
    if workspace_id is None:
        raise NotFound(f"there is no {kind} {named}")
    return Subject(kind, named, workspace_id)


def _parse_workspace(db: Connection, named: str) -> WorkspaceId | None:
    if not (named.isascii() and named.isdecimal() and str(int(named)) == named):
        return None
    workspace_id = WorkspaceId(int(named))
    is_known = workspace_id <= INT64_MAX and workspaces.find_name(db, workspace_id) is not None
    return workspace_id if is_known else None


def _find_workspace_of_link(
    db: Connection, token_id: TokenId, first: WorkspaceId | None
) -> WorkspaceId | None:
    # One workspace after the other: row-level security shows one at a time.
    for workspace_id in chain([first] if first else [], dict(workspaces.list_all(db))):
        set_local(db, "workspace_id", str(workspace_id))
        if tokens.is_link(db, workspace_id, token_id):
            return workspace_id
    return None


def _find_workspace_of_experiment(db: Connection, named: str) -> WorkspaceId | None:
    if not secrets.is_experiment_id(named):
        return None
    owner, _ = auth_lookup.find_owner_and_identity(db, ExperimentId(named), None)
    return None if owner is None else owner.workspace_id


def _has_other_owner(db: Connection, workspace_id: WorkspaceId, user_id: UserId) -> bool:
    set_local(db, "workspace_id", str(workspace_id))
    members.lock_workspace(db, workspace_id)
    return members.has_other_owner(db, workspace_id, user_id)
