"""Points have one way in: only the door of `ingest` reaches what inserts them.

A second caller would pass by quotas, counts, and whatever else observes the door.
"""

from __future__ import annotations

import ast
import re

from support.source_code import modules

SERVICE = modules("service/tbservice")

INSERT = re.compile(
    r"INSERT INTO (?:time_series|scalar_tail|scalar_blocks|tensor_points|blob_points|superseded_\w+|\{\})"
)
"""A statement that inserts points, or rows of a table that it does not name."""

DOOR = {"tbservice.ingest.door"}
WRITER = {"tbservice.ingest.series_writer"}
COMPACTION = {"tbservice.series.compaction"}
SUPERSEDED = {"tbservice.ingest.superseded"}

CALLERS = {
    ("ingest.series_writer", "lock_or_create"): DOOR,
    ("ingest.series_writer", "insert_tensors_and_blobs"): DOOR,
    ("ingest.series_writer", "insert_scalars"): DOOR,
    ("experiments.tables.snapshots", "copy_series"): DOOR,
    ("experiments.tables.snapshots", "copy_points"): DOOR,
    ("series.tables.series_rows", "create"): WRITER,
    ("series.tables.series_rows", "update"): WRITER | COMPACTION,
    ("series.tables.scalar_tail", "append"): WRITER,
    ("series.tables.scalar_blocks", "insert"): WRITER | COMPACTION,
    ("series.tables.points", "upsert_points"): WRITER,
    ("series.tables.points", "make_upsert"): {"tbservice.series.tables.superseded_points"},
    ("series.tables.superseded_blocks", "insert"): {"tbservice.series.superseded"},
    ("series.tables.superseded_points", "keep_shown"): SUPERSEDED,
    ("series.tables.superseded_points", "insert"): SUPERSEDED,
    ("series.superseded", "keep"): SUPERSEDED | COMPACTION,
    ("ingest.superseded", "keep"): {"tbservice.ingest.commit"},
}
"""Callers allowed for each function that inserts points, or moves stored ones."""

OTHER_INSERTS = {"runs_tags"}
"""Modules of the store that insert into tables which they do not name, none of them of points."""


def find_callers(module, function):
    """Return the modules that call a function, or import it."""
    package, _, name = module.rpartition(".")
    return {
        caller.name
        for caller in SERVICE
        if f"tbservice.{module}.{function}" in caller.imports
        or (
            f"tbservice.{package}.{name}" in caller.imports
            and any(ast.unparse(node) == f"{name}.{function}" for node in attributes(caller))
        )
    }


def attributes(module):
    return [node for node in module.nodes if isinstance(node, ast.Attribute)]


def find_inserts(module):
    """Return the names of functions and constants with a statement that inserts points."""
    return {
        node.name if isinstance(node, ast.FunctionDef) else ast.unparse(node.target)
        for node in module.tree.body
        if isinstance(node, ast.FunctionDef | ast.AnnAssign)
        and INSERT.search(re.sub(r"\{[^}]*\}", "{}", ast.unparse(node)))
    }


def test_points_are_inserted_by_the_door_alone():
    wrong = {
        (function, caller)
        for function, allowed in CALLERS.items()
        for caller in find_callers(*function) - allowed
    }
    assert not wrong
    assert not [function for function in CALLERS if not find_callers(*function)]


def test_statements_that_insert_points_are_listed():
    """A new one needs its callers above."""
    inserting = {
        (module.name.rpartition(".")[2], name)
        for module in SERVICE
        for name in find_inserts(module)
    }
    listed = {
        ("series_rows", "create"),
        ("series_rows", "_write"),  # of `update`
        ("scalar_tail", "append"),
        ("scalar_blocks", "insert"),
        ("points", "make_upsert"),
        ("snapshots", "copy_series"),
        ("snapshots", "copy_points"),
        ("superseded_blocks", "insert"),
        ("superseded_points", "keep_shown"),
    }
    assert {each for each in inserting if each[0] not in OTHER_INSERTS} == listed
