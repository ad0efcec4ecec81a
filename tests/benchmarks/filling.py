"""Fill a database with packed blocks, by copies of one experiment within PostgreSQL."""

from __future__ import annotations

import time
from typing import Any

from bench import say
from logdirs import MILLION
from machine import report
from service import Service

from tbservice.auth.secrets import generate_experiment_id

COPIES_PER_COMMIT = 25
TABLES = ("experiments", "runs", "tags", "time_series", "scalar_blocks", "upload_streams")
CHANGED = {
    "experiment_id": "copies.experiment_id",
    "number": "nextval(pg_get_serial_sequence('experiments', 'number'))",
    "request_key": "NULL",
    "created_at": "t.created_at - copies.age",
    "updated_at": "t.updated_at - copies.age",
    "data_at": "t.data_at - copies.age",
}
"""Columns of a copied experiment that differ; other tables only have another experiment_id."""

COPY_WORDS = """
    INSERT INTO experiment_words (workspace_id, word, number)
    SELECT w.workspace_id, w.word, e.number
    FROM experiments AS e JOIN copies USING (experiment_id)
    CROSS JOIN experiments AS o
    JOIN experiment_words AS w ON (w.workspace_id, w.number) = (o.workspace_id, o.number)
    WHERE o.experiment_id = %s
"""
SIZES = """
    SELECT (SELECT count(*) FROM scalar_blocks), pg_database_size(current_database())
"""


def fill(service: Service, copies: int) -> list[str]:
    """Copy the only experiment of the database, until there are `copies`; return the ids of all.

    Each copy is a minute older than the one before. The blocks are copied as they are, so a million
    scalars take less than a second.
    """
    ((original,),) = service.query("SELECT experiment_id FROM experiments")
    ids = [generate_experiment_id() for _ in range(copies - 1)]
    say(f"copying {MILLION.points:,} scalars {len(ids):,} times")
    began = time.monotonic()
    postgres = service.servers.instance.postgres
    with postgres.connect_as_superuser(service.database_name) as db:
        statements = [*(_copy_statement(db, table) for table in TABLES), COPY_WORDS]
        db.execute('CREATE TEMPORARY TABLE copies (experiment_id text COLLATE "C", age interval)')
        for start in range(0, len(ids), COPIES_PER_COMMIT):
            page = ids[start : start + COPIES_PER_COMMIT]
            _copy(db, statements, original, page, start)
            if start % 200 == 0:
                say(
                    f"{MILLION.points * (start + len(page)):,} after {time.monotonic() - began:.0f} s"
                )
        db.execute("CHECKPOINT")
        ((blocks, size),) = db.execute(SIZES).fetchall()
    report("filling", f"{time.monotonic() - began:,.0f} s")
    points = MILLION.points * copies
    report("scalars", f"{points:,}", f"{blocks:,} blocks, {size / 2**30:.2f} GiB")
    return [original, *ids]


def _copy(db: Any, statements: list[str], original: str, ids: list[str], start: int) -> None:
    with db.transaction():
        db.execute("TRUNCATE copies")
        for number, experiment_id in enumerate(ids, start):
            db.execute(
                "INSERT INTO copies VALUES (%s, %s * interval '1 minute')",
                [experiment_id, number + 1],
            )
        for statement in statements:
            db.execute(statement, [original])


def _copy_statement(db: Any, table: str) -> str:
    rows = db.execute(
        """
        SELECT column_name FROM information_schema.columns
        WHERE table_schema = 'public' AND table_name = %s AND is_generated = 'NEVER'
        """,
        [table],
    ).fetchall()
    names = [name for (name,) in rows]
    changed = CHANGED if table == "experiments" else {"experiment_id": "copies.experiment_id"}
    values = [changed.get(name, f"t.{name}") for name in names]
    return (
        f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} "  # noqa: S608 - ours
        f"FROM {table} AS t CROSS JOIN copies WHERE t.experiment_id = %s"
    )
