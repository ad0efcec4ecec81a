"""Whether a workspace has room: exact, and without a row that all of its uploads change.

Each experiment may grow up to the maxima of its counter without looking at others: a part of what
is left of the quota. Only who needs more takes the lock of the workspace, sums the counters, takes
back what others have not used, and gets another part.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tbservice.errors import QuotaExceeded
from tbservice.quotas.tables import usage_counters, workspace_quotas
from tbservice.types.identifiers import ExperimentId, WorkspaceId
from tbservice.types.quotas import COUNTED, UNITS, Quota, Usage

GRANTED_FRACTION: Final = 16
"""An experiment gets one part in so many of what is left, beside what it needs."""

UNLIMITED_GRANT: Final = {"points": 10**7, "tensor_bytes": 10**10, "blob_bytes": 10**10}
"""Points and bytes that an experiment gets at a time where there is no quota.

A default plan that is introduced later applies to it when it has used these, or at the next
`tbservice workspace quota` of its workspace.
"""


def make_room(
    db: Connection, workspace_id: WorkspaceId, experiment_id: ExperimentId, added: Usage
) -> None:
    """Let an experiment's counter, which exists, grow by `added`.

    Locks the quota of the workspace until the transaction ends. Raises QuotaExceeded.
    """
    workspace_quotas.lock(db, workspace_id)
    quota = workspace_quotas.find(db, workspace_id)
    usage_counters.create_of_workspace(db, workspace_id)
    own = usage_counters.find(db, experiment_id) or Usage()
    if (maxima := _find_maxima(db, workspace_id, experiment_id, quota, own, added)) is None:
        usage_counters.take_back(db, workspace_id, experiment_id)
        maxima = _find_maxima(db, workspace_id, experiment_id, quota, own, added)
    if maxima is None:
        raise _make_error(db, workspace_id, quota, added)
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
    workspace_quotas.lock(db, workspace_id)
    quota = workspace_quotas.find(db, workspace_id)
    source = (usage_counters.find(db, experiment_id) or Usage())._replace(blob_bytes=0)
    if _find_maxima(db, workspace_id, counter_id, quota, Usage(), source) is None:
        usage_counters.take_back(db, workspace_id, counter_id)
        if _find_maxima(db, workspace_id, counter_id, quota, Usage(), source) is None:
            raise _make_error(db, workspace_id, quota, source)
    usage_counters.reserve(db, workspace_id, counter_id, source, seconds)


def check_experiments(db: Connection, workspace_id: WorkspaceId) -> None:
    """Check that a workspace may have the experiments that it has now. Raises QuotaExceeded."""
    if not usage_counters.exist(db):
        return
    limit = workspace_quotas.find(db, workspace_id).experiments
    if limit is None:
        return
    workspace_quotas.lock(db, workspace_id)
    count = workspace_quotas.count_experiments(db, workspace_id)
    if count > limit:
        raise QuotaExceeded("experiments", UNITS["experiments"], count - 1, limit, 1)


def check_members(db: Connection, workspace_id: WorkspaceId, count: int) -> None:
    """Check that a workspace with `count` members may have another. Raises QuotaExceeded."""
    if not usage_counters.exist(db):
        return
    limit = workspace_quotas.find(db, workspace_id).members
    if limit is not None and count >= limit:
        raise QuotaExceeded("members", UNITS["members"], count, limit, 1)


def _find_maxima(
    db: Connection,
    workspace_id: WorkspaceId,
    counter_id: str,
    quota: Quota,
    own: Usage,
    added: Usage,
) -> dict[str, int] | None:
    """Return up to which counts a counter may grow; None if not by what is to be added."""
    limits = quota.as_dict()
    others = dict.fromkeys(COUNTED, 0)
    if any(limits[name] is not None for name in COUNTED):
        others = usage_counters.sum_granted(db, workspace_id, counter_id)
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


def _make_error(
    db: Connection, workspace_id: WorkspaceId, quota: Quota, added: Usage
) -> QuotaExceeded:
    """Return the error for the first limit without room for what is to be added.

    What others have reserved and not used counts as used if nothing else explains the refusal.
    """
    used = usage_counters.sum_all(db, workspace_id)
    limits = {name: limit for name, limit in quota.as_dict().items() if limit is not None}
    counted = [name for name in COUNTED if name in limits and getattr(added, name) > 0]
    over = [name for name in counted if getattr(used, name) + getattr(added, name) > limits[name]]
    name = (over or counted)[0]
    return QuotaExceeded(name, UNITS[name], getattr(used, name), limits[name], getattr(added, name))
