"""The tables of a migrated database as SQLAlchemy metadata, and the diagram that shows them."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Column, MetaData, NullPool, Table

from tbservice.db.engine import make_engine

NOT_CHECKED = ("runs", "tags", "time_series")
"""Tables whose rows are referred to without a foreign key, which would cost too much of an insert."""


def read_tables(database_url: str) -> list[Table]:
    """Return the tables by name, without Alembic's."""
    metadata = MetaData()
    metadata.reflect(make_engine(database_url, poolclass=NullPool))
    return [metadata.tables[name] for name in sorted(metadata.tables) if name != "alembic_version"]


def draw(tables: list[Table]) -> str:
    """Return an entity-relationship diagram for Mermaid, with a line for each reference."""
    lines = {line: None for table in tables for line in _list_references(table)}
    return "".join(f"{line}\n" for line in ("erDiagram", *lines))


def _list_references(table: Table) -> Iterator[str]:
    key = table.primary_key.columns.keys()
    for column in table.columns:
        for foreign_key in column.foreign_keys:
            yield _line(foreign_key.column.table.name, "--", table, column)
    for name in NOT_CHECKED:
        referred = table.metadata.tables[name].primary_key.columns.keys()
        if key != referred and referred[-1] in table.columns:
            yield _line(name, "..", table, table.columns[referred[-1]])


def _line(referred: str, link: str, table: Table, column: Column) -> str:
    parent = "|o" if column.nullable else "||"
    child = "o|" if [*table.primary_key.columns] == [column] else "o{"
    return f"    {referred} {parent}{link}{child} {table.name} : {column.name}"
