"""Points have one way in: only the door of `ingest` reaches what inserts them.

A second caller would pass by quotas, counts, and whatever else observes the door.
"""

from __future__ import annotations

import ast
import re

from support.source_code import modules

SERVICE = modules("service/tbservice")

TABLES = (
    r'(?:ONLY\s+)?(?:\w+\.)?"?'
    r"(?:time_series|scalar_tail|scalar_blocks|tensor_points|blob_points|superseded_\w+|\{\})"
)
STORING = re.compile(
    rf"(?:INSERT INTO|MERGE INTO|UPDATE)\s+{TABLES}|COPY\s+{TABLES}.*\bFROM\b",
    re.IGNORECASE | re.DOTALL,
)
"""A statement that stores rows in a table of points, or in one that it does not name."""

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
    ("series.tables.cluster_writes", "update_series"): {"tbservice.series.tables.series_rows"},
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

NO_POINTS = {
    ("runs_tags", "_make_resolve_statements"),  # runs and tags
    ("workspace_quotas", "put"),
    ("series_rows", "update_metadata"),
    ("summary_rows", "store"),
    ("scalar_blocks", "seal_in_place"),  # of stored points, by compaction
    ("scalar_blocks", "_compress_sealed"),
}
"""Statements that store rows in tables which they do not name, or change rows, but add no point."""


def find_callers(module, function):
    """Return the modules that call a function of a module, or import it, under any name."""
    return {
        caller.name
        for caller in SERVICE
        if f"tbservice.{module}.{function}" in caller.imports
        or find_names(caller, f"tbservice.{module}") & find_owners(caller, function)
    }


def find_names(module, imported):
    """Return the names under which a module imports another one."""
    return {
        alias.asname or alias.name
        for node in module.nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if ".".join(filter(None, (getattr(node, "module", ""), alias.name))) == imported
    }


def find_owners(module, attribute):
    """Return the expressions of which a module uses an attribute."""
    return {
        ast.unparse(node.value)
        for node in module.nodes
        if isinstance(node, ast.Attribute) and node.attr == attribute
    }


def find_stores(module):
    """Return the names of functions, methods and constants with a statement that stores points."""
    bodies = [module.tree.body]
    bodies += [node.body for node in module.tree.body if isinstance(node, ast.ClassDef)]
    return {
        name_of(node)
        for body in bodies
        for node in body
        if not isinstance(node, ast.ClassDef)
        and STORING.search(re.sub(r"\{[^}]*\}", "{}", " ".join(texts_in(node))))
    }


def name_of(node):
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name
    targets = getattr(node, "targets", None) or [getattr(node, "target", node)]
    return ast.unparse(targets[0])


def texts_in(node):
    """Yield the texts of a node, without docstrings: a docstring may say what a statement does."""
    docs = {
        ast.get_docstring(each, clean=False)
        for each in ast.walk(node)
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for each in ast.walk(node):
        if isinstance(each, ast.JoinedStr):
            yield ast.unparse(each)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield "" if each.value in docs else each.value


def test_points_are_inserted_by_the_door_alone():
    wrong = {
        (function, caller)
        for function, allowed in CALLERS.items()
        for caller in find_callers(*function) - allowed
    }
    assert not wrong
    assert not [function for function in CALLERS if not find_callers(*function)]


def test_writers_of_points_are_made_by_the_door_alone():
    """One made elsewhere would tell no observer. Others name the class as a parameter's type."""
    makers = {
        module.name
        for module in SERVICE
        for node in module.nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("PointWriter")
    }
    assert makers == DOOR


def test_statements_that_store_points_are_listed():
    """A new one needs its callers above."""
    storing = {
        (module.name.rpartition(".")[2], name) for module in SERVICE for name in find_stores(module)
    }
    listed = {
        ("series_rows", "create"),
        ("series_rows", "_write"),  # of `update`
        ("cluster_writes", "update_series"),
        ("scalar_tail", "append"),
        ("scalar_blocks", "insert"),
        ("points", "make_upsert"),
        ("snapshots", "copy_series"),
        ("snapshots", "copy_points"),
        ("superseded_blocks", "insert"),
        ("superseded_points", "keep_shown"),
    }
    assert storing == listed | NO_POINTS
