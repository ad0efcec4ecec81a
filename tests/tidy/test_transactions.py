"""Transactions are opened with a grant: one of a share link then sees only what the link shows."""

from __future__ import annotations

import ast
import re

from support.source_code import modules

OPENERS = {"snapshot", "transaction", "copying"}

SERVICE = modules("service/tbservice")

BEGINNING = (
    r"(?:SELECT|INSERT|UPDATE|DELETE|WITH|SET|BEGIN|COMMIT|CREATE|ALTER|DROP|TRUNCATE|LOCK)\b"
)
SEVERAL = re.compile(rf";\s*{BEGINNING}|^\s*{BEGINNING}.*;\s*\S", re.DOTALL)
NO_STATEMENTS = re.compile(r"--[^\n]*|'[^']*'|\$\$.*?\$\$", re.DOTALL)
"""Comments, texts and bodies of functions."""
SENT_IN_PIECES = {f"tbservice.db.{name}" for name in ("cluster.citus", "database", "pool")}
"""BEGIN and what is set with it: `Pool` sends each to a cluster by itself."""


def openings(module):
    """Yield the first argument of each call that opens a transaction, as source."""
    for node in module.nodes:
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if is_call and node.func.attr in OPENERS and node.args:
            yield ast.unparse(node.args[0])


def test_grant_opens_transaction_itself():
    """`grant.workspace_id` would show all of the workspace, whatever the grant is."""
    wrong = [
        (module.name, each)
        for module in SERVICE
        for each in openings(module)
        if each.endswith("grant.workspace_id")
    ]
    assert not wrong


def test_sql_names_no_schema():
    """A table with its schema would not be replaced by the view of a share link's readers."""
    schemas = ("public.", "link_views.")
    texts = {
        (module.name, node.value)
        for module in SERVICE
        for node in module.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    named = {
        name for name, text in texts if "FROM" in text and any(schema in text for schema in schemas)
    }
    assert named == {"tbservice.experiments.tables.snapshots"}


def strings(module):
    """Yield all strings of a module; an expression in one is {}."""
    for node in module.nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_string_of_sql_is_one_statement():
    """Citus passes on the whole string that a SET LOCAL is in, and takes no prepared string of several."""
    several = {
        module.name
        for module in SERVICE
        for each in strings(module)
        if SEVERAL.search(NO_STATEMENTS.sub("", each))
    }
    assert several == SENT_IN_PIECES


def test_openings_are_found():
    """The checks above look at what they are about."""
    arguments = {each for module in SERVICE for each in openings(module)}
    assert arguments >= {"grant", "self.grant"}
