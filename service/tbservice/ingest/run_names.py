"""Find or create the runs that something is written to, except runs that were deleted.

And bound how many of them an experiment has.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection

from tbservice.errors import Conflict, RunDeleted
from tbservice.experiments.tables import deleted_runs, experiment_size
from tbservice.series.tables import runs_tags
from tbservice.types.grants import AppendGrant

EXPERIMENT_RUNS_ITEMS_MAX: Final = 200_000
"""Runs (items) of an experiment, those included that were deleted from it."""

EXPERIMENT_STREAMS_ITEMS_MAX: Final = 200_000
"""Event files (items) of an experiment, each generation of a file counted."""


def check_room(db: Connection, grant: AppendGrant, new_streams: int = 0) -> None:
    """Raise Conflict if the experiment has more runs than it may, or no room for new streams.

    After the transaction has created runs. Several at once may create a few more.
    """
    items_max = max(EXPERIMENT_RUNS_ITEMS_MAX, EXPERIMENT_STREAMS_ITEMS_MAX)
    runs, streams = experiment_size.count_runs_and_streams(db, grant.experiment_id, items_max + 1)
    for count, limit, what in (
        (runs, EXPERIMENT_RUNS_ITEMS_MAX, "runs, with deleted ones"),
        (streams + new_streams, EXPERIMENT_STREAMS_ITEMS_MAX, "event files"),
    ):
        if count > limit:
            raise Conflict(
                f"an experiment has at most {limit:,} {what}: upload to another experiment",
                code="experiment_full",
            )


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
