"""Numbers of PostgreSQL statements and of worker threads that a small request takes."""

from __future__ import annotations

import gc
from functools import partial

import anyio.to_thread
import pytest
from starlette.requests import Request

from support.batches import PROTOBUF, batch, scalars, segment, stream
from support.statements import record_statements
from support.waiting import wait_until
from tbservice.audit.acts import Act
from tbservice.audit.recording import record

pytestmark = pytest.mark.plain("counts statements at one server")

TAGS = 50


@pytest.fixture
def count(monkeypatch, client):
    """Return a function that makes a request, and returns it with what it cost."""
    # It stores counts of requests meanwhile, for which the pool opens another connection.
    client.app.state.traffic.stop()
    run_sync = anyio.to_thread.run_sync

    def count(ask):
        ask()  # admission caches the caller; connections are opened
        threads = []

        async def record_run(*arguments, **options):
            threads.append(arguments)
            return await run_sync(*arguments, **options)

        with monkeypatch.context() as patch:
            statements = record_statements(patch)
            patch.setattr(anyio.to_thread, "run_sync", record_run)
            return ask(), {"threads": len(threads), "statements": len(statements)}

    return count


def test_request_for_own_token_takes_one_thread(api, count):
    answer, counts = count(lambda: api.client.get("/api/v1/me", headers=api.headers))
    assert answer.json()["token"]["scopes"] == ["admin"]
    # The token; and, with the workspace set, all else.
    assert counts == {"threads": 1, "statements": 3}


def test_current_answer_costs_one_statement(api, experiment, count):
    path = f"/api/v1/experiments/{experiment}/scalars"
    tag = api.client.get(path, headers=api.headers).headers["ETag"]
    headers = {**api.headers, "If-None-Match": tag}
    answer, counts = count(lambda: api.client.get(path, headers=headers))
    assert answer.status_code == 304
    assert counts == {"threads": 1, "statements": 1}


def test_second_viewer_costs_one_statement(api, experiment, count):
    api.write(experiment, segment(stream(), 0, 9, scalars("loss", [0])))
    path = f"/api/v1/experiments/{experiment}/scalars/data"
    answer, counts = count(lambda: api.client.get(path, headers=api.headers))
    assert answer.json()["train"]["loss"]["steps"] == [0]
    assert counts == {"threads": 1, "statements": 1}

    api.write(experiment, segment(stream(), 9, 19, scalars("loss", [1])))
    answer = api.client.get(path, headers=api.headers)
    assert answer.json()["train"]["loss"]["steps"] == [0, 1]


def test_kept_answer_is_not_for_revoked_token(api, experiment):
    created = api.request("POST", f"/experiments/{experiment}/tokens", json={"scopes": ["read"]})
    headers = {"Authorization": f"Bearer {created.json()['token']}"}
    path = f"/api/v1/experiments/{experiment}/runs"
    assert api.client.get(path, headers=headers).status_code == 200
    api.request("DELETE", f"/experiments/{experiment}/tokens/{created.json()['id']}")
    assert api.client.get(path, headers=headers).status_code == 401


def test_read_takes_one_thread(api, experiment, count):
    path = f"/api/v1/experiments/{experiment}"
    answer, counts = count(lambda: api.client.get(path, headers=api.headers))
    assert answer.json()["experiment_id"] == experiment
    assert counts["threads"] == 1


def test_flush_takes_one_thread_and_few_statements(api, experiment, count):
    tags = [f"tag{number}" for number in range(TAGS)]
    api.write(experiment, segment(stream(), 0, 9, *(scalars(tag, [0]) for tag in tags)))
    flushes = iter(range(1, 3))

    def flush():
        step = next(flushes)
        series = [scalars(tag, [step]) for tag in tags]
        for sent in series:
            sent.summary_metadata = b""
        content = batch(segment(stream(), step * 9, step * 9 + 9, *series))
        path = f"/experiments/{experiment}/batches"
        return api.request("POST", path, content=content, headers=PROTOBUF)

    answer, counts = count(flush)
    assert answer.status_code == 200
    # Look-up, begin, streams, series, points, cursor, version, usage; the commit is no cursor's.
    assert counts["threads"] == 1
    assert counts["statements"] <= 8


def test_record_of_an_act_costs_five_statements(database, workspace_id, count):
    def act(makes_record):
        with database.transaction(workspace_id) as db:
            if makes_record:
                record(db, Act.WORKSPACE_RENAME, workspace_id, "x")

    (_, without), (_, counts) = (count(partial(act, made)) for made in (False, True))
    # The workspace, the end of its chain, the time; the record, the new end: two round trips.
    assert counts["statements"] - without["statements"] == 5


def test_new_token_takes_few_statements(api, experiment, count):
    path = f"/experiments/{experiment}/tokens"
    answer, counts = count(lambda: api.request("POST", path, json={"scopes": ["read"]}))
    assert answer.status_code == 201
    # Look-up, begin, ended tokens, two limits, insert; five of the record.
    assert counts == {"threads": 1, "statements": 11}


@pytest.mark.parametrize("query", ["downsample=-1", "sampling=some", "last=x"])
def test_mistakes_are_told_only_with_grant(api, experiment, query):
    path = f"/api/v1/experiments/{experiment}/scalars/data?{query}"
    assert api.client.get(path, headers=api.headers).status_code == 422
    assert api.client.get(path).status_code == 401
    wrong = {"Authorization": "Bearer nonsense"}
    assert api.client.get(path, headers=wrong).status_code == 401


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/scalars", {}, 200),
        ("/scalars", {"If-None-Match": "*"}, 304),
        ("/scalars?unknown=1", {}, 422),
        ("/scalars", {"Authorization": "Bearer no-token"}, 401),
        ("/nothing", {}, 404),
    ],
    ids=str,
)
def test_request_leaves_no_cycle_of_objects(api, experiment, path, headers, status):
    def ask():
        url = f"/api/v1/experiments/{experiment}{path}"
        return api.client.get(url, headers=api.headers | headers).status_code

    assert ask() == status
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            ask()
        # The thread of the last one may still be on its way out when the answer is there.
        wait_until(lambda: not any(isinstance(kept, Request) for kept in gc.get_objects()), 10)
    finally:
        gc.enable()
