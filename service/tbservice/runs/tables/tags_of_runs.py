"""Queries on the tags that people give to runs: a column of `runs`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection, text

from tbservice.db.arrays import encode_array
from tbservice.db.schema_parts import has_column
from tbservice.types.identifiers import ExperimentId


def is_supported(db: Connection) -> bool:
    """Return whether the schema has tags of runs: not before its migration."""
    return has_column(db, "runs", "tags")


def lock_tags(
    db: Connection, experiment_id: ExperimentId, name_digests: Collection[bytes]
) -> list[tuple[int, bytes, list[str]]]:
    """Return id, digest of the name and tags of those of the runs that exist.

    Locks them against other changes until the transaction ends, but not against points.
    """
    statement = text("""
        SELECT run_id, name_digest, tags FROM runs
        WHERE experiment_id = :experiment_id AND name_digest = ANY (CAST(:digests AS bytea[]))
        ORDER BY name_digest FOR NO KEY UPDATE
    """)
    digests = encode_array("bytea", list(name_digests))
    rows = db.execute(statement, {"experiment_id": experiment_id, "digests": digests})
    return [(run_id, bytes(digest), tags) for run_id, digest, tags in rows]


def set_tags(
    db: Connection, experiment_id: ExperimentId, run_ids: Mapping[tuple[str, ...], Sequence[int]]
) -> None:
    """Replace the tags of runs: for each list of tags, of all runs that have it from now on."""
    statement = text("""
        UPDATE runs SET tags = CAST(:tags AS text[])
        WHERE experiment_id = :experiment_id AND run_id = ANY (CAST(:run_ids AS bigint[]))
    """)
    for tags, ids in run_ids.items():
        values = {"tags": encode_array("text", list(tags)), "run_ids": list(ids)}
        db.execute(statement, {"experiment_id": experiment_id, **values})
