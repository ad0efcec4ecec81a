"""Every table has a row in the table of growth limits of docs/operations.md; limits of tokens."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import text

from support.batches import ApiClient
from support.people import new_member, new_personal_token
from support.source_code import ROOT
from tbservice.auth.tokens import EXPERIMENT_TOKENS_ITEMS_MAX, WORKSPACE_TOKENS_ITEMS_MAX
from tbservice.types.grants import Scope

CODE = "\n".join(path.read_text() for path in (ROOT / "service").rglob("*.py"))


def read_rows():
    """Return tables, and limit, of each row of the page's table."""
    page = (ROOT / "docs" / "operations.md").read_text()
    section = page.partition("### What can grow")[2].partition("\n### ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:3] == "| `"]
    assert rows
    return [(re.findall(r"`(\w+)`", tables), limit) for tables, *_, limit in rows]


def test_every_table_has_a_row(database):
    statement = text("""
        SELECT relname FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY relname
    """)
    with database.transaction() as db:
        tables = list(db.execute(statement).scalars())
    assert sorted(table for row, _ in read_rows() for table in row) == tables


def test_every_row_names_a_limit_of_the_code_or_a_gap():
    for tables, limit in read_rows():
        names = re.findall(r"`([A-Z_]+_MAX|[A-Z_]+_SECONDS)`", limit)
        assert names or limit.startswith(("**Gap**", "none needed")), tables
        assert all(re.search(rf"^{name}: Final", CODE, re.MULTILINE) for name in names), names


def fill(database, workspace_id, experiment, count):
    """Insert so many tokens that are not revoked."""
    with database.transaction(workspace_id) as db:
        db.execute(
            text("""
                INSERT INTO tokens (token_id, digest, prefix, label, workspace_id, experiment_id,
                    scopes)
                SELECT 'filler ' || :id || n, sha256(('filler ' || :id || n)::text::bytea),
                    'tbh_', '', :id, :experiment, ARRAY['read'] FROM generate_series(1, :count) AS n
            """),
            {"id": workspace_id, "experiment": experiment, "count": count},
        )


@pytest.mark.plain("inserts rows by one statement")
def test_tokens_and_links_of_an_experiment_are_bounded(api, experiment, database, workspace_id):
    fill(database, workspace_id, experiment, EXPERIMENT_TOKENS_ITEMS_MAX - 1)
    path = f"/experiments/{experiment}"
    made = api.request("POST", f"{path}/links", json={})
    assert made.status_code == 201
    for what, body in (
        ("tokens", {"scopes": ["read"]}),
        ("links", {}),
        ("links", {"frozen": True}),
    ):
        refused = api.request("POST", f"{path}/{what}", json=body)
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert "1000 tokens or links" in refused.json()["detail"]
    api.request("DELETE", f"{path}/links/{made.json()['id']}").raise_for_status()
    assert api.request("POST", f"{path}/tokens", json={"scopes": ["read"]}).status_code == 201


@pytest.mark.plain("inserts rows by one statement")
def test_tokens_of_a_workspace_are_bounded(client, database, workspace_id):
    owner = new_member(database, workspace_id)
    api = ApiClient(client, new_personal_token(database, workspace_id, owner, Scope.ADMIN))
    fill(database, workspace_id, None, WORKSPACE_TOKENS_ITEMS_MAX)
    for path in (f"/workspaces/{workspace_id}/tokens", "/me/tokens"):
        refused = api.request("POST", path, json={"scopes": ["read"]})
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
