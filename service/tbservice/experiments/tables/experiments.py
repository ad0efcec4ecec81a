"""Queries on `experiments`: create, find, update, erase, and the version of the data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from tbservice.db.arrays import encode_array
from tbservice.db.cluster import citus
from tbservice.db.database import set_local
from tbservice.db.pipeline import PendingResult, execute_binary
from tbservice.db.schema_parts import has_column
from tbservice.experiment_values import ExperimentNotes
from tbservice.types.experiments import Experiment, Visibility
from tbservice.types.identifiers import ExperimentId, UserId, WorkspaceId

COLUMNS: Final = """experiment_id, name, description, visibility, created_at, updated_at, version,
    tags, created_by, points, bytes, data_at, deleted_at, erase_at, number"""
"""The columns of `make_experiment`."""

_COLUMN_NAMES: Final = tuple(column.strip() for column in COLUMNS.split(","))

COLUMNS_OF_E: Final = ", ".join(f"e.{name}" for name in _COLUMN_NAMES)
"""Columns of `make_experiment` of `experiments AS e`."""

ARCHIVED: Final = "NOT e.is_listed AND e.deleted_at IS NULL AND e.snapshot_of IS NULL"
"""The condition that an experiment `e` is archived: not deleted, and no copy."""

_TYPES: Final = {
    "is_listed": "boolean",
    "is_published": "boolean",
    "tags": "text[]",
    "properties": "jsonb",
    "origin": "jsonb",
    "erase_at": "timestamptz",
}
"""SQL types of the columns that are not text."""


@contextmanager
def show_deleted(db: Connection) -> Iterator[None]:
    """Let the row policies show deleted experiments to the statements of the block."""
    set_local(db, "shows_deleted", "on")
    yield
    set_local(db, "shows_deleted", "off")


def create(
    db: Connection,
    workspace_id: WorkspaceId,
    generate_id: Callable[[], ExperimentId],
    fields: Mapping[str, Any],
    request_key: str | None,
    created_by: UserId | None,
    *,
    is_name_locked: bool = False,
) -> tuple[Experiment, bool]:
    """Create an experiment, or return the one that was created with the same request key.

    An advisory lock makes concurrent requests with one key wait for each other.

    Args:
        db: A transaction of the workspace.
        workspace_id: The workspace.
        generate_id: Returns a new id.
        fields: Values by column, as for `update`; name, description and visibility are required.
        request_key: The idempotency key; None for a new experiment in any case.
        created_by: The person who creates it, if one does.
        is_name_locked: The transaction has locked the name by `lock_name`.

    Returns:
        The experiment, and whether it is new.
    """
    locked = _name_lock(workspace_id, fields["name"]) if is_name_locked else None
    if request_key is not None:
        locked = f"{workspace_id}/{request_key}"
        citus.lock_name(db, locked)
        existing = db.execute(
            text(f"""
                SELECT {COLUMNS} FROM experiments
                WHERE workspace_id = :workspace_id AND request_key = :request_key
            """),  # noqa: S608 - a constant above
            {"workspace_id": workspace_id, "request_key": request_key},
        ).one_or_none()
        if existing is not None:
            return make_experiment(existing), False

    experiment_id = citus.choose_id(db, generate_id, locked)
    created = db.execute(
        text(f"""
            INSERT INTO experiments
                (experiment_id, workspace_id, request_key, created_by, {", ".join(fields)})
            VALUES (:experiment_id, :workspace_id, :request_key, :created_by,
                {", ".join(map(_placeholder, fields))})
            RETURNING {COLUMNS}
        """),  # noqa: S608 - columns, which are names of the code
        {
            "experiment_id": experiment_id,
            "workspace_id": workspace_id,
            "request_key": request_key,
            "created_by": created_by,
            **_parameters(fields),
        },
    ).one()
    citus.begin_counter(db, workspace_id, experiment_id)
    return make_experiment(created), True


def lock_name(
    db: Connection,
    workspace_id: WorkspaceId,
    name: str,
    name_key: str,
    archived_word: str,
    limit: int,
) -> list[Experiment]:
    """Return up to `limit` experiments with this name and its key, oldest first; lock the name.

    If all that have it are archived, those, which are found by their word.

    The advisory lock makes other calls with this name wait until the transaction ends. It does not
    stop creations and renamings that do not take it: names are not unique.
    """
    citus.lock_name(db, _name_lock(workspace_id, name))
    for condition in (
        "e.is_listed AND e.name_key = :name_key",
        f"""{ARCHIVED} AND e.number IN (SELECT number FROM experiment_words
            WHERE workspace_id = :workspace_id AND word = :word)""",  # noqa: S608 - a constant
    ):
        rows = db.execute(
            text(f"""
                SELECT {COLUMNS} FROM experiments AS e
                WHERE e.workspace_id = :workspace_id AND {condition} AND e.name = :name
                ORDER BY e.number LIMIT :limit
            """),  # noqa: S608 - constants above
            {
                "workspace_id": workspace_id,
                "name": name,
                "name_key": name_key,
                "word": archived_word,
                "limit": limit,
            },
        ).all()
        if rows:
            break
    return [make_experiment(row) for row in rows]


def _name_lock(workspace_id: WorkspaceId, name: str) -> str:
    return f"{workspace_id}/name/{name}"


def find(
    db: Connection, experiment_id: ExperimentId, *, is_locked: bool = False
) -> Experiment | None:
    """Return an experiment of the transaction's workspace; None if it does not exist.

    With `is_locked`, its row is locked until the transaction ends.
    """
    lock = " FOR UPDATE" if is_locked else ""
    statement = text(
        f"SELECT {COLUMNS} FROM experiments WHERE experiment_id = :experiment_id{lock}"  # noqa: S608 - constants
    )
    row = db.execute(statement, {"experiment_id": experiment_id}).one_or_none()
    return None if row is None else make_experiment(row)


def is_archived(db: Connection, experiment_id: ExperimentId) -> bool:
    """Return whether an experiment is archived; False if it does not exist."""
    statement = text(f"SELECT {ARCHIVED} FROM experiments AS e WHERE e.experiment_id = :id")  # noqa: S608 - a constant above
    return bool(db.execute(statement, {"id": experiment_id}).scalar())


def has_publishing(db: Connection) -> bool:
    """Return whether the database has the migration 0033, which servers must not wait for."""
    return has_column(db, "experiments", "is_published")


def is_published(db: Connection, experiment_id: ExperimentId) -> bool:
    """Return whether search engines may list an experiment; False if it does not exist."""
    statement = text("SELECT is_published FROM experiments WHERE experiment_id = :id")
    return has_publishing(db) and bool(db.execute(statement, {"id": experiment_id}).scalar())


def find_by_request(
    db: Connection, workspace_id: WorkspaceId, request_key: str
) -> ExperimentId | None:
    """Return the experiment that was created with this request key; None if there is none."""
    statement = text("""
        SELECT experiment_id FROM experiments
        WHERE workspace_id = :workspace_id AND request_key = :request_key
    """)
    parameters = {"workspace_id": workspace_id, "request_key": request_key}
    experiment_id: ExperimentId | None = db.execute(statement, parameters).scalar()
    return experiment_id


def find_notes(db: Connection, experiment_id: ExperimentId) -> ExperimentNotes | None:
    """Return notes, properties and origin of an experiment; None if it does not exist."""
    statement = text("""
        SELECT notes, properties, origin FROM experiments WHERE experiment_id = :experiment_id
    """)
    row = db.execute(statement, {"experiment_id": experiment_id}).one_or_none()
    return None if row is None else ExperimentNotes(*row)


def update(
    db: Connection, experiment_id: ExperimentId, fields: Mapping[str, Any]
) -> Experiment | None:
    """Change these columns; return None if the experiment does not exist. Locks its row.

    Args:
        db: A transaction of the workspace.
        experiment_id: The experiment.
        fields: Values by column: texts, a sequence of texts, mappings of texts.
    """
    assignments = "".join(f", {column} = {_placeholder(column)}" for column in fields)
    row = db.execute(
        text(f"""
            UPDATE experiments SET updated_at = now() {assignments}
            WHERE experiment_id = :experiment_id RETURNING {COLUMNS}
        """),  # noqa: S608 - columns, which are names of the code
        {"experiment_id": experiment_id, **_parameters(fields)},
    ).one_or_none()
    return None if row is None else make_experiment(row)


def list_versions(
    db: Connection, experiment_ids: Sequence[ExperimentId]
) -> dict[ExperimentId, int]:
    """Return the version of each of the experiments that exists in the transaction's workspace."""
    statement = text("""
        SELECT experiment_id, version FROM experiments
        WHERE experiment_id = ANY (CAST(:ids AS text[]))
    """)
    rows = db.execute(statement, {"ids": encode_array("text", experiment_ids)})
    return {row.experiment_id: row.version for row in rows}


def bump_version(
    db: Connection, experiment_id: ExperimentId, points: int = 0, data_bytes: int = 0
) -> PendingResult:
    """Increment the experiment's version, which locks its row until the transaction ends.

    Concurrent batches wait for that row: execute this last. The result has no row if the
    experiment was deleted: then the caller must roll back.

    Args:
        db: A transaction of the workspace.
        experiment_id: The experiment.
        points: Points that arrived.
        data_bytes: Their size, estimated.
    """
    return execute_binary(
        db,
        """
            UPDATE experiments SET version = version + 1, updated_at = now(),
                points = points + %(points)s, bytes = bytes + %(bytes)s,
                -- Indexed: unchanged as long as lists may be behind, so that the update is HOT.
                listed_bytes = CASE WHEN bytes + %(bytes)s > listed_bytes + listed_bytes / 20
                    THEN bytes + %(bytes)s ELSE listed_bytes END,
                -- Rarely, too: by full minutes, at first by less. Citus has no now() in a CASE.
                data_at = greatest(data_at, date_bin(CASE WHEN version = 0
                    THEN interval '1 microsecond' ELSE interval '1 minute' END, now(), data_at))
            WHERE experiment_id = %(experiment_id)s RETURNING version
        """,
        {"experiment_id": experiment_id, "points": points, "bytes": data_bytes},
    )


def set_size(db: Connection, experiment_id: ExperimentId, points: int, data_bytes: int) -> None:
    """Set the number of points and their estimated size, after some were deleted."""
    db.execute(
        text("""
            UPDATE experiments SET points = :points, bytes = :bytes, listed_bytes = :bytes
            WHERE experiment_id = :experiment_id
        """),
        {"experiment_id": experiment_id, "points": points, "bytes": data_bytes},
    )


def make_experiment(row: Row[Any]) -> Experiment:
    """Return the experiment of a row that has COLUMNS; others are ignored."""
    columns = {name: getattr(row, name) for name in _COLUMN_NAMES}
    return Experiment(
        **columns | {"visibility": Visibility(row.visibility), "tags": tuple(row.tags)}
    )


def _placeholder(column: str) -> str:
    return f"CAST(:{column} AS {_TYPES.get(column, 'text')})"


def _parameters(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        column: json.dumps(value)
        if _TYPES.get(column) == "jsonb"
        else list(value)
        if _TYPES.get(column) == "text[]"
        else value
        for column, value in fields.items()
    }
