"""Whether a workspace has room: exact, and without a row that all of its uploads change.

Each experiment may grow up to the maxima of its counter without looking at others: a part of what
is left of the quota. Only who needs more takes the lock of the workspace, sums the counters, takes
back what others have not used, and gets another part. So it is with the account of the workspace,
whose quota limits all of its workspaces together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from tbservice.db.database import set_local
from tbservice.errors import QuotaExceeded
from tbservice.quotas.tables import usage_counters, workspace_quotas
from tbservice.types.identifiers import ExperimentId, UserId, WorkspaceId
from tbservice.types.quotas import COUNTED, UNITS, Quota, Usage

GRANTED_FRACTION: Final = 16
"""An experiment gets one part in so many of what is left, beside what it needs."""

UNLIMITED_GRANT: Final = {"points": 10**7, "tensor_bytes": 10**10, "blob_bytes": 10**10}
"""Points and bytes that an experiment gets at a time where there is no quota.

A default plan that is introduced later applies to it when it has used these, or at the next
`tbservice workspace quota` of its workspace.
"""


@dataclass(frozen=True, slots=True)
class Level:
    """A quota, and the workspaces whose counts it limits together."""

    holder: str
    """`workspace` or `account`."""
    quota: Quota
    workspace_ids: Sequence[WorkspaceId]
    home: WorkspaceId | None
    """The workspace of the transaction; None: it is of none."""

    @property
    def is_counted(self) -> bool:
        """Whether any of its limits is on what counters have."""
        return any(getattr(self.quota, name) is not None for name in COUNTED)

    def visit(self, db: Connection) -> Iterator[WorkspaceId]:
        """Yield the workspaces, each while the row policies show its rows.

        To be read to the end, after which they show those of `home` again. One after the other,
        since no policy shows the rows of several.
        """
        if list(self.workspace_ids) == [self.home]:
            yield from self.workspace_ids
            return
        for workspace_id in self.workspace_ids:
            set_local(db, "workspace_id", str(int(workspace_id)))
            yield workspace_id
        self.return_home(db)

    def return_home(self, db: Connection) -> None:
        """Let the row policies show the rows of `home` again, if another workspace was visited."""
        if self.home is not None and list(self.workspace_ids) != [self.home]:
            set_local(db, "workspace_id", str(int(self.home)))


def find_levels(db: Connection, workspace_id: WorkspaceId, *, locks: bool = False) -> list[Level]:
    """Return the quota of a workspace, and that of its account if it has any limit.

    With `locks`, others wait who look for room in either, until the transaction ends.
    """
    own = workspace_quotas.WORKSPACES
    if locks:
        own.lock(db, workspace_id)
    levels = [Level("workspace", own.find(db, workspace_id), [workspace_id], workspace_id)]
    # Under the lock of the workspace: it is not moved to another account meanwhile.
    account = workspace_quotas.find_account(db, workspace_id)
    if account is not None:
        if locks:
            workspace_quotas.ACCOUNTS.lock(db, account)
        level = find_account_level(db, account, workspace_id)
        if level.quota != Quota():
            levels.append(level)
    return levels


def find_account_level(db: Connection, account: UserId, home: WorkspaceId | None = None) -> Level:
    """Return the quota of an account; `home` is the workspace of the transaction."""
    quota = workspace_quotas.ACCOUNTS.find(db, account)
    return Level("account", quota, workspace_quotas.list_of_account(db, account), home)


def make_room(
    db: Connection, workspace_id: WorkspaceId, experiment_id: ExperimentId, added: Usage
) -> None:
    """Let an experiment's counter, which exists, grow by `added`.

    Locks the quotas of the workspace and its account until the transaction ends. Raises
    QuotaExceeded.
    """
    levels = find_levels(db, workspace_id, locks=True)
    if not any(each.is_counted for each in levels):  # else `_find_maxima` does it
        usage_counters.create_of_workspace(db, workspace_id)
    own = usage_counters.find(db, experiment_id) or Usage()
    maxima = _find_room(db, levels, experiment_id, own, added)
    usage_counters.set_maxima(db, experiment_id, maxima)


def reserve_copy(
    db: Connection,
    workspace_id: WorkspaceId,
    experiment_id: ExperimentId,
    counter_id: str,
    seconds: float,
) -> None:
    """Reserve as much as an experiment stores, blobs excepted: a frozen copy refers to the same.

    Raises QuotaExceeded.
    """
    levels = find_levels(db, workspace_id, locks=True)
    source = (usage_counters.find(db, experiment_id) or Usage())._replace(blob_bytes=0)
    _find_room(db, levels, counter_id, Usage(), source)
    usage_counters.reserve(db, workspace_id, counter_id, source, seconds)


def check_experiments(db: Connection, workspace_id: WorkspaceId) -> None:
    """Check that a workspace may have the experiments that it has now. Raises QuotaExceeded."""
    _check_rows(db, workspace_id, "experiments", workspace_quotas.count_experiments, 0)


def check_members(db: Connection, workspace_id: WorkspaceId) -> None:
    """Check that a workspace may have another member. Raises QuotaExceeded."""
    _check_rows(db, workspace_id, "members", workspace_quotas.count_members, 1)


def _check_rows(
    db: Connection,
    workspace_id: WorkspaceId,
    name: str,
    count: Callable[[Connection, WorkspaceId], int],
    added: int,
) -> None:
    """Check that a limit has room for the rows that there are, and `added` more."""
    if not usage_counters.exist(db):
        return
    if all(each.quota.as_dict()[name] is None for each in find_levels(db, workspace_id)):
        return
    for level in find_levels(db, workspace_id, locks=True):
        limit = level.quota.as_dict()[name]
        if limit is None:
            continue
        rows = sum(count(db, each) for each in level.visit(db)) + added
        if rows > limit:
            raise QuotaExceeded(name, UNITS[name], rows - 1, limit, 1, level.holder)


def _find_room(
    db: Connection, levels: Sequence[Level], counter_id: str, own: Usage, added: Usage
) -> dict[str, int]:
    """Return up to which counts a counter may grow by all of these quotas. Raises QuotaExceeded."""
    every = []
    for level in levels:
        maxima = _find_maxima(db, level, counter_id, own, added)
        if maxima is None:
            for workspace_id in level.visit(db):
                usage_counters.take_back(db, workspace_id, counter_id)
            maxima = _find_maxima(db, level, counter_id, own, added)
        if maxima is None:
            raise _make_error(db, level, added)
        every.append(maxima)
    return {name: min(maxima[name] for maxima in every) for name in COUNTED}


def _find_maxima(
    db: Connection, level: Level, counter_id: str, own: Usage, added: Usage
) -> dict[str, int] | None:
    """Return up to which counts a counter may grow; None if not by what is to be added."""
    limits = level.quota.as_dict()
    others = dict.fromkeys(COUNTED, 0)
    if level.is_counted:
        others = usage_counters.sum_granted(db, level.workspace_ids, counter_id)
        level.return_home(db)
    maxima = {}
    for name in COUNTED:
        has, needs, limit = getattr(own, name), getattr(added, name), limits[name]
        if limit is None:
            maxima[name] = has + max(needs, 0) + UNLIMITED_GRANT[name]
            continue
        free = limit - others[name] - has
        if needs > max(free, 0):
            return None
        rest = max(0, free - max(needs, 0))
        maxima[name] = has + max(needs, 0) + rest // GRANTED_FRACTION
    return maxima


def _make_error(db: Connection, level: Level, added: Usage) -> QuotaExceeded:
    """Return the error for the first limit without room for what is to be added.

    What others have reserved and not used counts as used if nothing else explains the refusal.
    """
    used = Usage()
    for workspace_id in level.visit(db):
        used = used.plus(usage_counters.sum_all(db, workspace_id))
    limits = {name: limit for name, limit in level.quota.as_dict().items() if limit is not None}
    counted = [name for name in COUNTED if name in limits and getattr(added, name) > 0]
    over = [name for name in counted if getattr(used, name) + getattr(added, name) > limits[name]]
    name = (over or counted)[0]
    needed = getattr(added, name)
    return QuotaExceeded(name, UNITS[name], getattr(used, name), limits[name], needed, level.holder)
