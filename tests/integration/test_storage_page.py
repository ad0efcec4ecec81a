"""docs/storage.md has the tables, columns, indexes and references of the migrated schema, no more."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import UniqueConstraint

from support.schema_diagram import draw, read_tables
from support.source_code import ROOT

pytestmark = pytest.mark.plain("a cluster does without some foreign keys")

PAGE = (ROOT / "docs" / "storage.md").read_text()
SECTION = PAGE.partition("\n## Tables\n")[2].partition("\n\nNames are unique")[0]
ITEM = re.compile(r"^- `(\w+)`: (.*?)(?=^- `|^$)", re.MULTILINE | re.DOTALL)
SHARED = {"experiment_id", "workspace_id", "series_id", "slot"}
"""Keys that the text above the tables explains once."""

FOREIGN = {"iss", "sub", "state", "hparams"}
"""Names of OpenID Connect and TensorBoard in descriptions of columns."""


@pytest.fixture(scope="module")
def tables(servers):
    with servers.database() as url:
        return read_tables(url)


def described():
    """Return the names in the item of each table."""
    items = dict(ITEM.findall(SECTION))
    items["time_series"] += SECTION.partition("Columns of `time_series`")[2]
    return {table: {*re.findall(r"`([a-z0-9_]+)`", item)} for table, item in items.items()}


def names_of(table):
    unique = (each for each in table.constraints if isinstance(each, UniqueConstraint))
    return {each.name for each in (*table.columns, *table.indexes, *unique)}


def test_storage_page_draws_every_reference(tables):
    (drawn,) = re.findall(r"```mermaid\n(.*?)```", SECTION, re.DOTALL)
    assert drawn.splitlines() == draw(tables).splitlines()


def test_storage_page_names_every_table_column_and_index(tables):
    items = described()
    assert sorted(items) == [table.name for table in tables]
    wrong = {}
    for table in tables:
        names, item = names_of(table), items[table.name]
        wrong[table.name] = (names - item - SHARED) | (item - names - {*items} - FOREIGN)
    assert not {table: names for table, names in wrong.items() if names}
