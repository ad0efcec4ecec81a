"""Transactions are opened with a grant: one of a share link then sees only what the link shows."""

from __future__ import annotations

import ast

from support.source_code import modules

OPENERS = {"snapshot", "transaction", "copying"}

SERVICE = modules("service/tbservice")


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
    assert named == {"tbservice.store.snapshots"}


def test_openings_are_found():
    """The checks above look at what they are about."""
    arguments = {each for module in SERVICE for each in openings(module)}
    assert arguments >= {"grant", "self.grant"}
