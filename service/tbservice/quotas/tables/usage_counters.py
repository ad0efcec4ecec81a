"""Queries on `usage_counters`: what each experiment stores, in the transactions that store it.

The counter of a workspace, under the name of `workspace_counter`, has the bytes of the blobs whose
experiments were erased, and of those from before the migration. The sum over all counters of a
workspace is what it stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, text

from tbservice.db.cluster import citus
from tbservice.db.pipeline import (
    PendingResult,
    execute_binary,
    fetch_binary,
    pipeline,
    set_locals,
)
from tbservice.db.schema_parts import has_table
from tbservice.types.identifiers import ExperimentId, WorkspaceId
from tbservice.types.quotas import COUNTED, QUOTA_MAX, Usage

_COLUMNS: Final = ", ".join(Usage._fields)
_SUMS: Final = ", ".join(f"coalesce(sum({name}), 0)::bigint AS {name}" for name in Usage._fields)
_ADDED: Final = ", ".join(f"{name} = u.{name} + %({name})s" for name in Usage._fields)
_POINTS: Final = "(u.scalars + u.tensors + u.blob_sequences)"
_COUNTS: Final = {"points": _POINTS, "tensor_bytes": "u.tensor_bytes", "blob_bytes": "u.blob_bytes"}
"""SQL of what each limit counts."""

_MAXIMA: Final = {name: f"{name}_max" for name in COUNTED}
_IS_LIVE: Final = "(u.reserved_until IS NULL OR u.reserved_until > now())"

_UNCOUNTED: Final = f"""
    SELECT e.points AS {", 0 AS ".join(Usage._fields)} FROM experiments AS e
    WHERE e.workspace_id = :workspace_id
        AND NOT EXISTS (SELECT FROM usage_counters AS u WHERE u.experiment_id = e.experiment_id)
"""  # noqa: S608 - constants
"""Experiments from before the migration that nothing was added to since: points that arrived, as
the first field.
"""


def exist(db: Connection) -> bool:
    """Return whether the schema has the tables of quotas; a migration may add them meanwhile."""
    return has_table(db, "quota_plans")


def workspace_counter(workspace_id: WorkspaceId) -> str:
    """Return the id of the counter of a workspace, which no experiment can have."""
    return f"workspace/{int(workspace_id)}"


def charge(db: Connection, counter_id: str, added: Usage) -> PendingResult:
    """Add to a counter if it stays within its maxima; else the result has no row.

    Nothing is locked then. A counter that is missing has none either. A number that does not grow
    is not checked: over a quota that was lowered, a point may still be replaced by a smaller one.
    """
    grows = {"points": added.points, **added._asdict()}
    checks = [
        f"AND {count} + %(added_{name})s <= u.{_MAXIMA[name]}"
        for name, count in _COUNTS.items()
        if grows[name] > 0
    ]
    return execute_binary(
        db,
        f"""
            UPDATE usage_counters AS u SET {_ADDED}
            WHERE u.experiment_id = %(counter_id)s {" ".join(checks)} RETURNING 1
        """,  # noqa: S608 - constants above
        {
            "counter_id": counter_id,
            **added._asdict(),
            **{f"added_{name}": grows[name] for name in COUNTED},
        },
    )


def adjust(db: Connection, counter_id: str, added: Usage) -> None:
    """Add to a counter, whatever its maxima are; a missing one stays missing."""
    statement = f"""
        UPDATE usage_counters AS u SET {_ADDED} WHERE u.experiment_id = %(counter_id)s
    """  # noqa: S608 - constants above
    execute_binary(db, statement, {"counter_id": counter_id, **added._asdict()})


def adjust_locked(db: Connection, experiment_id: ExperimentId, added: Usage) -> None:
    """Add to the counter of an experiment, whose row is locked until the transaction ends.

    The lock makes it wait for a transaction that measures the experiment for a new counter.
    """
    lock_experiment(db, experiment_id)
    adjust(db, experiment_id, added)


def lock_experiment(db: Connection, experiment_id: ExperimentId) -> bool:
    """Lock the row of an experiment, as a batch does; return False if it was deleted."""
    statement = text("SELECT 1 FROM experiments WHERE experiment_id = :id FOR NO KEY UPDATE")
    return db.execute(statement, {"id": experiment_id}).first() is not None


def create(db: Connection, workspace_id: WorkspaceId, counter_id: str, usage: Usage) -> None:
    """Create a counter, or set the one that there is, with its maxima as they are."""
    db.execute(
        text(f"""
            INSERT INTO usage_counters (experiment_id, workspace_id, {_COLUMNS})
            VALUES (:counter_id, :workspace_id, {", ".join(f":{name}" for name in Usage._fields)})
            ON CONFLICT (experiment_id) DO UPDATE SET
                {", ".join(f"{name} = excluded.{name}" for name in Usage._fields)}
        """),  # noqa: S608 - constants above
        {"counter_id": counter_id, "workspace_id": workspace_id, **usage._asdict()},
    )


def find(db: Connection, counter_id: str) -> Usage | None:
    """Return what a counter has counted; None if it is missing."""
    query = f"SELECT {_COLUMNS} FROM usage_counters WHERE experiment_id = %(counter_id)s"  # noqa: S608 - a constant above
    rows = fetch_binary(db, query, {"counter_id": counter_id})
    return Usage(*rows[0]) if rows else None


def has_room_for_blobs(db: Connection, counter_id: str, size: int) -> bool:
    """Return whether a counter may grow by so many bytes of blobs as it is."""
    statement = text("""
        SELECT 1 FROM usage_counters
        WHERE experiment_id = :counter_id AND blob_bytes + :size <= blob_bytes_max
    """)
    return db.execute(statement, {"counter_id": counter_id, "size": size}).first() is not None


def set_maxima(db: Connection, counter_id: str, maxima: Mapping[str, int]) -> None:
    """Set up to which counts a counter may grow without a look at the quota, by names of limits."""
    assigned = ", ".join(f"{column} = %({column})s" for column in _MAXIMA.values())
    statement = f"""
        UPDATE usage_counters SET {assigned}
        WHERE experiment_id = %(counter_id)s
    """  # noqa: S608 - constants above
    bounded = {_MAXIMA[name]: min(value, QUOTA_MAX) for name, value in maxima.items()}
    execute_binary(db, statement, {"counter_id": counter_id, **bounded})


def reset_maxima(db: Connection, workspace_id: WorkspaceId) -> None:
    """Let all experiments of a workspace look at its quota before they grow again."""
    assigned = ", ".join(f"{column} = 0" for column in _MAXIMA.values())
    statement = f"UPDATE usage_counters SET {assigned} WHERE workspace_id = :workspace_id"  # noqa: S608 - constants
    db.execute(text(statement), {"workspace_id": workspace_id})


_LOWERED: Final = ", ".join(
    f"{_MAXIMA[name]} = least(u.{_MAXIMA[name]}, {count})" for name, count in _COUNTS.items()
)
_HAS_ROOM: Final = " OR ".join(f"u.{_MAXIMA[name]} > {count}" for name, count in _COUNTS.items())
_OTHERS: Final = (
    f"u.workspace_id = :workspace_id AND u.experiment_id <> :counter_id AND ({_HAS_ROOM})"
)
# Waiting for a batch that waits for the quota would be a deadlock.
_TAKEN_FROM: Final = citus.Forms(
    f"""
        u.experiment_id IN (SELECT u.experiment_id FROM usage_counters AS u
            WHERE {_OTHERS} FOR UPDATE SKIP LOCKED)
    """,  # noqa: S608 - constants
    _OTHERS,
)


def take_back(db: Connection, workspace_id: WorkspaceId, counter_id: str) -> None:
    """Take from the other counters what they may still grow by, but from those in use right now.

    In a cluster, also from those, after a wait: it locks no rows of several nodes in a sub-select.
    """
    statement = text(f"UPDATE usage_counters AS u SET {_LOWERED} WHERE {_TAKEN_FROM.of(db)}")  # noqa: S608 - constants
    db.execute(statement, {"workspace_id": workspace_id, "counter_id": counter_id})


def sum_all(db: Connection, workspace_id: WorkspaceId) -> Usage:
    """Return what a workspace stores. Experiments without a counter count as what arrived."""
    row = db.execute(
        text(f"""
            SELECT {_SUMS} FROM (
                SELECT {_COLUMNS} FROM usage_counters AS u
                WHERE u.workspace_id = :workspace_id AND {_IS_LIVE}
                UNION ALL {_UNCOUNTED}
            ) AS s
        """),  # noqa: S608 - constants above
        {"workspace_id": workspace_id},
    ).one()
    return Usage(*row)


def sum_granted(
    db: Connection, workspace_ids: Sequence[WorkspaceId], counter_id: str
) -> dict[str, int]:
    """Return what all counters of workspaces but one have, or may grow to, by names of limits.

    The row policies show the rows of the last one afterwards. Of a workspace, one statement, so
    that it sees each batch before or after its commit. A batch that grows within its maximum
    changes nothing here.
    """
    greater = ", ".join(
        f"greatest({count}, u.{_MAXIMA[name]}) AS {name}" for name, count in _COUNTS.items()
    )
    sums = ", ".join(f"coalesce(sum({name}), 0)::bigint AS {name}" for name in COUNTED)
    query = f"""
        SELECT {sums}, coalesce(bool_or(id = %(own_id)s), false) FROM (
            SELECT u.experiment_id AS id, {greater} FROM usage_counters AS u
            WHERE u.workspace_id = %(workspace_id)s AND u.experiment_id <> %(counter_id)s
                AND {_IS_LIVE}
            UNION ALL
            SELECT NULL, scalars, tensor_bytes, blob_bytes
            FROM ({_UNCOUNTED.replace(":workspace_id", "%(workspace_id)s")}) AS e
        ) AS s
    """  # noqa: S608 - constants above
    results = []
    with pipeline(db):  # in one round trip, whatever an account has
        for each in workspace_ids:
            set_locals(db, {"tbhub.workspace_id": str(int(each))})
            own_id = workspace_counter(each)
            values = {"workspace_id": each, "counter_id": counter_id, "own_id": own_id}
            results.append(execute_binary(db, query, values))
    totals = dict.fromkeys(COUNTED, 0)
    for each, result in zip(workspace_ids, results, strict=True):
        ((*granted, has_own),) = result.rows()
        if not (has_own or counter_id == workspace_counter(each)):
            set_locals(db, {"tbhub.workspace_id": str(int(each))})
            create_of_workspace(db, each)
            return sum_granted(db, workspace_ids, counter_id)
        totals = {name: totals[name] + its for name, its in zip(COUNTED, granted, strict=True)}
    return totals


def create_of_workspace(db: Connection, workspace_id: WorkspaceId) -> None:
    """Create the counter of a workspace if it is missing: blobs that no other counter has.

    Call it before a blob is added or deleted, or an experiment erased. Concurrent additions change
    both sums alike.
    """
    counter_id = workspace_counter(workspace_id)
    if find(db, counter_id) is not None:
        return
    bytes_ = find_uncounted_blob_bytes(db, workspace_id)
    db.execute(
        text("""
            INSERT INTO usage_counters (experiment_id, workspace_id, blob_bytes)
            VALUES (:counter_id, :workspace_id, :blob_bytes) ON CONFLICT DO NOTHING
        """),
        {"counter_id": counter_id, "workspace_id": workspace_id, "blob_bytes": bytes_},
    )


def find_uncounted_blob_bytes(db: Connection, workspace_id: WorkspaceId) -> int:
    """Return the bytes of the workspace's blobs that no counter has; below 0 if they have more."""
    statement = text("""
        SELECT (SELECT coalesce(sum(size), 0) FROM blobs WHERE workspace_id = :workspace_id)
            - (SELECT coalesce(sum(blob_bytes), 0) FROM usage_counters
               WHERE workspace_id = :workspace_id)
    """)
    return int(db.execute(statement, {"workspace_id": workspace_id}).scalar_one())


def recount_blobs(db: Connection, workspace_id: WorkspaceId) -> None:
    """Make the sum of all counters that of the blobs which the workspace has."""
    statement = text("DELETE FROM usage_counters WHERE experiment_id = :counter_id")
    db.execute(statement, {"counter_id": workspace_counter(workspace_id)})
    create_of_workspace(db, workspace_id)


def release(db: Connection, workspace_id: WorkspaceId, experiment_id: ExperimentId) -> None:
    """Delete the counter of an experiment that cannot be restored; its blobs still count.

    Idempotent.
    """
    create_of_workspace(db, workspace_id)
    statement = text("DELETE FROM usage_counters WHERE experiment_id = :id RETURNING blob_bytes")
    blob_bytes = db.execute(statement, {"id": experiment_id}).scalar_one_or_none()
    if blob_bytes:
        adjust(db, workspace_counter(workspace_id), Usage(blob_bytes=blob_bytes))


def reserve(
    db: Connection, workspace_id: WorkspaceId, counter_id: str, usage: Usage, seconds: float
) -> None:
    """Count something that is about to be stored, for so many seconds."""
    create(db, workspace_id, counter_id, usage)
    statement = text("""
        UPDATE usage_counters SET reserved_until = now() + make_interval(secs => :seconds)
        WHERE experiment_id = :counter_id
    """)
    db.execute(statement, {"counter_id": counter_id, "seconds": seconds})
    ended = text("DELETE FROM usage_counters WHERE workspace_id = :id AND reserved_until < now()")
    db.execute(ended, {"id": workspace_id})


def end_reservation(db: Connection, counter_id: str) -> None:
    """Delete what `reserve` has created. Idempotent."""
    statement = text("DELETE FROM usage_counters WHERE experiment_id = :id")
    db.execute(statement, {"id": counter_id})
