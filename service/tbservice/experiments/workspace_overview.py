"""All workspaces with what they store and who owns them: for administrators and operators."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import Connection

from tbservice.auth import members, suspensions
from tbservice.auth.tables import tokens, workspaces
from tbservice.auth.workspaces import list_deleted
from tbservice.db.database import set_local
from tbservice.errors import NotFound
from tbservice.experiments import reports, usage
from tbservice.experiments.tables import workspace_list
from tbservice.quotas.tables import workspace_traffic
from tbservice.types.grants import OwnerGrant, WorkspaceGrant
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.people import Role
from tbservice.types.suspensions import Suspendable, subject_of

ORDERS: Final = workspace_list.ORDERS
STATES: Final = workspace_list.STATES


class WorkspaceDetails(NamedTuple):
    """A workspace, as administrators see it.

    `bytes` are those of tensors and blobs, `last_used_at` the last request of anybody, or use of a
    token before requests were counted, `suspended` the reason; None for none. `erase_at` is None
    unless it is deleted.
    """

    workspace_id: WorkspaceId
    points: int
    bytes: int
    experiments: int
    created_at: datetime
    last_used_at: datetime | None
    open_reports: int
    suspended: str | None
    erase_at: datetime | None
    owners: tuple[str, ...]
    name: str

    def as_dict(self) -> dict[str, object]:
        """Return what JSON can say."""
        moments = {name: getattr(self, name) for name in ("created_at", "last_used_at", "erase_at")}
        shown = {name: each and each.isoformat() for name, each in moments.items()}
        return self._asdict() | shown

    def columns(self) -> list[str]:
        """Return texts for a line: days for times, a word for the state."""
        days = [each.date().isoformat() if each else "" for each in self[4:6]]
        state = "active" if self.suspended is None else "suspended"
        counts = [str(each) for each in self[:4]]
        owners = " ".join(self.owners)
        return [*counts, *days, str(self.open_reports), state, owners, self.name]


def list_all(db: Connection, *, by_age: bool) -> list[WorkspaceDetails]:
    """Return all workspaces but deleted ones, those with the most bytes first, or the oldest."""
    found = [each for each in _describe(db, None) if each.erase_at is None]
    if not by_age:
        found.sort(key=lambda each: (-each.bytes, -each.points, each.workspace_id))
    return found


def list_page(
    db: Connection, order: str, state: str, written: str, limit: int, offset: int
) -> tuple[int, list[WorkspaceDetails]]:
    """Return how many workspaces there are, deleted ones too, and a page of them.

    The arguments are those of `workspace_list.list_page`. The order counts experiments from before
    the counters, which nothing was added to since, as nothing.
    """
    total, page = workspace_list.list_page(db, order, state, written, limit, offset)
    found = {each.workspace_id: each for each in _describe(db, set(page))}
    return total, [found[each] for each in page if each in found]


def describe_one(db: Connection, workspace_id: WorkspaceId) -> WorkspaceDetails:
    """Return one workspace; the transaction then sees its rows. Raises NotFound."""
    for details in _describe(db, {workspace_id}):
        return details
    raise NotFound(f"there is no workspace {workspace_id}")


def administrate(db: Connection, workspace_id: WorkspaceId) -> OwnerGrant:
    """Return the right to see and end what owners may; the transaction sees the workspace's rows.

    For administrators, and operators after their check.
    """
    set_local(db, "workspace_id", str(workspace_id))
    return OwnerGrant(workspace_id)


def _describe(db: Connection, wanted: set[WorkspaceId] | None) -> Iterator[WorkspaceDetails]:
    """Yield these workspaces, or all; the oldest first: row-level security shows one at a time."""
    open_reports = reports.count_open(db)
    reasons = {row.subject: row.reason for row in suspensions.list_suspended(db)}
    deleted = {each.workspace_id: each.erase_at for each in list_deleted(db)}
    for workspace_id, name, created_at in workspaces.list_with_ages(db, wanted):
        grant = administrate(db, workspace_id)
        totals = usage.read_totals(db, WorkspaceGrant(workspace_id))
        yield WorkspaceDetails(
            workspace_id,
            totals.stored.points,
            totals.stored.tensor_bytes + totals.stored.blob_bytes,
            totals.experiments,
            created_at,
            workspace_traffic.find_last_use(db, workspace_id)
            or tokens.find_last_use(db, workspace_id),
            open_reports.get(workspace_id, 0),
            reasons.get(subject_of(Suspendable.WORKSPACE, str(workspace_id))),
            deleted.get(workspace_id),
            _list_owners(db, grant),
            name,
        )


def _list_owners(db: Connection, grant: OwnerGrant) -> tuple[str, ...]:
    owners = [each.person for each in members.list_members(db, grant) if each.role is Role.OWNER]
    return tuple(person.email or person.user_id for person in owners)
