"""Every table has a row in the table of growth limits of docs/operations.md; some of the limits."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import text

from support.batches import ApiClient, scalars, segment, stream
from support.katib import log
from support.people import new_member, new_personal_token
from support.source_code import ROOT
from tbservice.auth.tokens import EXPERIMENT_TOKENS_ITEMS_MAX, WORKSPACE_TOKENS_ITEMS_MAX
from tbservice.errors import Conflict
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


def test_every_row_names_a_limit_of_the_code():
    for tables, limit in read_rows():
        names = re.findall(r"`([A-Z_]+_MAX|[A-Z_]+_SECONDS)`", limit)
        assert names or limit.startswith("none needed"), tables
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


def test_tokens_made_from_a_network_are_bounded(api, experiment, monkeypatch):
    monkeypatch.setattr("tbservice.auth.tokens.TOKENS_PER_NETWORK_ITEMS_MAX", 2)
    path = f"/experiments/{experiment}/tokens"
    made = [api.request("POST", path, json={"scopes": ["read"]}) for _ in range(3)]
    assert [each.status_code for each in made] == [201, 201, 409]
    assert made[2].json()["code"] == "too_many_tokens"
    api.request("DELETE", f"{path}/{made[0].json()['id']}").raise_for_status()
    assert api.request("POST", path, json={"scopes": ["read"]}).status_code == 409
    assert api.request("POST", f"/experiments/{experiment}/links", json={}).status_code == 201


@pytest.mark.plain("inserts rows by one statement")
def test_tokens_of_a_workspace_are_bounded(client, database, workspace_id):
    owner = new_member(database, workspace_id)
    api = ApiClient(client, new_personal_token(database, workspace_id, owner, Scope.ADMIN))
    fill(database, workspace_id, None, WORKSPACE_TOKENS_ITEMS_MAX)
    for path in (f"/workspaces/{workspace_id}/tokens", "/me/tokens"):
        refused = api.request("POST", path, json={"scopes": ["read"]})
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")


def test_runs_and_files_of_an_experiment_are_bounded(api, experiment, monkeypatch):
    def send(run, file_name, start=0):
        step = scalars("loss", [start])
        return api.send(experiment, segment(stream(run, file_name), start, start + 9, step))

    limits = "tbservice.ingest.run_names.EXPERIMENT_"
    assert send("a", "1").status_code == send("b", "2").status_code == 200
    api.request("DELETE", f"/experiments/{experiment}/runs", params={"run": "a"})
    with monkeypatch.context() as patch:
        patch.setattr(f"{limits}RUNS_ITEMS_MAX", 2)  # b, and a, which was deleted
        for refused in (
            send("c", "3"),
            api.request(
                "PUT", f"/experiments/{experiment}/runs/d/hparams", json={"hparams": {"x": 1}}
            ),
        ):
            assert (refused.status_code, refused.json()["code"]) == (409, "experiment_full")
            assert "at most 2 runs, with deleted ones" in refused.json()["detail"]
        assert send("b", "4").status_code == 200
    with monkeypatch.context() as patch:
        patch.setattr(f"{limits}STREAMS_ITEMS_MAX", 2)
        refused = send("b", "5")
        assert (refused.status_code, refused.json()["code"]) == (409, "experiment_full")
        assert "at most 2 event files" in refused.json()["detail"]
        assert send("b", "4", 9).status_code == 200  # a file that is there
    assert [run["run"] for run in api.get(experiment, "runs")["runs"]] == ["b"]


def test_unfinished_blobs_of_an_experiment_are_bounded(api, experiment, monkeypatch):
    monkeypatch.setattr("tbservice.ingest.blob_uploads.BLOBS_UNFINISHED_ITEMS_MAX", 1)
    monkeypatch.setattr("tbservice.limits.BLOB_PART_BYTES", 5 * 2**20)

    def begin(digest):
        path = f"/experiments/{experiment}/blobs/{digest * 64}"
        part = {"offset": 0, "size": 5 * 2**20 + 1}
        return api.request("PUT", path, params=part, content=bytes(5 * 2**20))

    assert begin("a").status_code == 200
    refused = begin("b")
    assert (refused.status_code, refused.json()["code"]) == (409, "experiment_full")
    assert begin("a").status_code == 200  # sent again


def test_trials_and_logs_of_katib_are_bounded(katib, monkeypatch):
    katib.report("first", log("m", 1), log("m", 2))
    with monkeypatch.context() as patch:
        patch.setattr("tbservice.katib.places.KATIB_EXPERIMENT_TRIALS_ITEMS_MAX", 1)
        with pytest.raises(Conflict, match="at most 1 trials"):
            katib.report("second", log("m", 1))
        katib.report("first", log("m", 3))
    monkeypatch.setattr("tbservice.katib.log_writer.KATIB_TRIAL_LOGS_ITEMS_MAX", 4)
    with pytest.raises(Conflict, match="at most 4 logs; this one has 3"):
        katib.report("first", log("m", 4), log("m", 5))
    assert [value for *_, value in katib.get("first")] == ["1", "2", "3"]
