"""Find or create the runs that something is written to, except runs that were deleted."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection

from tbservice.errors import RunDeleted
from tbservice.experiments.tables import deleted_runs
from tbservice.series.tables import runs_tags
from tbservice.types.grants import AppendGrant


def resolve_runs(db: Connection, grant: AppendGrant, names: Collection[str]) -> dict[str, int]:
    """Return the id of each run by name, creating new ones with ids in the order of `names`.

    Locks the runs against deletion until the transaction ends.

    Raises:
        RunDeleted: Some of them were deleted from the experiment. The caller rolls back.
    """
    run_ids = runs_tags.resolve_runs(db, grant, names)
    deleted = list_deleted(db, grant, names)
    if deleted:
        raise RunDeleted(_explain(deleted), runs=deleted)
    return run_ids


def list_deleted(db: Connection, grant: AppendGrant, names: Collection[str]) -> list[str]:
    """Return the names whose runs were deleted from the experiment, in their order.

    After `runs_tags.resolve_runs`, not before: that waits for a deletion of the run that is in
    progress, and would then create the run again.
    """
    by_digest = {runs_tags.hash_name(name): name for name in names}
    found = deleted_runs.find(db, grant.experiment_id, list(by_digest))
    return [name for digest, name in by_digest.items() if digest in found]


def _explain(names: list[str]) -> str:
    name, others = names[0], len(names) - 1
    more = f" (and {others} more of this request)" if others else ""
    return (
        f"run {name[:200]!r}{more} was deleted from this experiment and is not stored again: allow "
        "it with DELETE …/runs/deleted?run=NAME, or use another experiment"
    )
