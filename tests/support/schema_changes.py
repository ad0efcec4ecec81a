"""Changes of a migration in a real database, and the rules of decision 0033 that they break."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sqlalchemy import Connection, text

RELATIONS = """
    SELECT CASE n.nspname WHEN 'public' THEN relname ELSE n.nspname || '.' || relname END AS name,
        c.oid, relfilenode, relkind
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
    WHERE relkind IN ('r', 'p', 'v') AND nspname IN ('public', 'link_views')
        AND relname <> 'alembic_version'
"""
COLUMNS = """
    SELECT attrelid, attname, format_type(atttypid, atttypmod) || ' ' || attcollation AS type,
        attnotnull, atthasdef OR attidentity <> '' AS has_default
    FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped
"""
CONSTRAINTS = """
    SELECT conrelid, conname, contype::text, ARRAY(
        SELECT attname::text FROM pg_attribute WHERE attrelid = conrelid AND attnum = ANY (conkey)
    ) AS columns
    FROM pg_constraint WHERE contype IN ('c', 'f', 'u', 'x')
    UNION ALL
    SELECT indrelid, indexrelid::regclass::text, 'unique index', ARRAY(
        SELECT attname::text FROM pg_attribute
        WHERE attrelid = indrelid AND attnum = ANY (indkey[0:indnkeyatts - 1])
    )
    FROM pg_index WHERE indisunique AND NOT indisprimary
"""
LOCKS = """
    SELECT relation, mode FROM pg_locks
    WHERE pid = pg_backend_pid() AND locktype = 'relation' AND granted AND mode IN (
        'ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock',
        'AccessExclusiveLock')
"""
SCANS = "SELECT relid FROM pg_stat_xact_user_tables WHERE seq_scan > 0"
MODES = ("SHARE UPDATE EXCLUSIVE", "SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE")
"""The weakest first."""


@dataclass
class Relation:
    """A table or view: its oid, the file of its rows, and its columns."""

    name: str
    oid: int
    file: int
    kind: str
    columns: dict = field(default_factory=dict)
    constraints: dict = field(default_factory=dict)


def read_schema(db: Connection) -> dict[str, Relation]:
    """Return the tables and views by name."""
    relations = {
        row.oid: Relation(row.name, row.oid, row.relfilenode, row.relkind)
        for row in db.execute(text(RELATIONS))
    }
    for row in db.execute(text(COLUMNS)):
        if row.attrelid in relations:
            relations[row.attrelid].columns[row.attname] = row
    for row in db.execute(text(CONSTRAINTS)):
        if row.conrelid in relations:
            relations[row.conrelid].constraints[row.conname] = row
    return {relation.name: relation for relation in relations.values()}


def held_locks(db: Connection, before: dict[str, Relation]) -> dict[str, str]:
    """Return the strongest lock of this transaction against writers on each relation of before."""
    names = {relation.oid: relation.name for relation in before.values()}
    locks: dict[str, str] = {}
    for oid, mode in db.execute(text(LOCKS)):
        if oid in names:
            words = re.sub(r"(?<!^)([A-Z])", r" \1", mode.removesuffix("Lock")).upper()
            locks[names[oid]] = max(locks.get(names[oid], words), words, key=MODES.index)
    return locks


def lock_problems(db: Connection, before: dict[str, Relation]) -> list[str]:
    """Return what keeps writers out for long: files that were rewritten, tables that were read."""
    after = {relation.oid: relation for relation in read_schema(db).values()}
    names = {relation.oid: relation.name for relation in before.values()}
    rewritten = [
        f"rewrites {old.name}"
        for old in before.values()
        if old.oid in after and after[old.oid].file != old.file
    ]
    scanned = {names[oid] for (oid,) in db.execute(text(SCANS)) if oid in names}
    return rewritten + [f"reads all of {name}" for name in sorted(scanned)]


def break_problems(before: dict[str, Relation], after: dict[str, Relation]) -> list[str]:
    """Return what a program that knows only `before` would trip over."""
    problems = [f"drops {name}" for name in sorted(before.keys() - after.keys())]
    for name in sorted(before.keys() & after.keys()):
        old, new = before[name], after[name]
        for column, was in old.columns.items():
            problems += _column_problems(f"{name}.{column}", was, new.columns.get(column))
        added = new.columns.keys() - old.columns.keys()
        problems += [
            f"{name}.{column} is required"
            for column in sorted(added)
            if new.columns[column].attnotnull and not new.columns[column].has_default
        ]
        problems += [
            f"{constraint} restricts {name}"
            for constraint, row in new.constraints.items()
            if constraint not in old.constraints
            and not added.issuperset(row.columns)
            and not _is_unique_already(row, old)
        ]
    return problems


def _is_unique_already(row, old: Relation) -> bool:
    """Return whether a unique index has the columns of one of before."""
    return row.contype == "unique index" and any(
        was.contype == row.contype and set(was.columns) == set(row.columns)
        for was in old.constraints.values()
    )


def _column_problems(name, was, now) -> list[str]:
    if now is None:
        return [f"drops {name}"]
    problems = []
    if now.type != was.type:
        problems.append(f"{name} has another type")
    if now.attnotnull and not was.attnotnull:
        problems.append(f"{name} is required")
    if was.has_default and not now.has_default:
        problems.append(f"{name} has no default")
    return problems
