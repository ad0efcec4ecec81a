"""Deletion of experiments: hidden at once, restored completely, and erased in the background."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from support.batches import ApiClient, images, scalars, segment, stream, texts
from support.breaking_database import erase_broken_at_each_step
from support.people import race
from support.servers import database_name, new_workspace
from support.share_links import make_link
from support.uploading import wait_until
from tbservice.db.cluster import citus
from tbservice.db.database import set_local
from tbservice.errors import NotFound
from tbservice.experiments import deletion, share_links
from tbservice.experiments.eraser import erase_due
from tbservice.experiments.tables import experiment_deletion
from tbservice.ingest.door import Door
from tbservice.quotas.tables import usage_counters
from tbservice.server.app import create_app
from tbservice.types.grants import AdminGrant

TABLES = (
    *("scalar_tail", "scalar_blocks", "tensor_points", "blob_points", "runs", "tags"),
    *("superseded_blocks", "superseded_tensors", "superseded_blobs"),
    *("time_series", "upload_streams", "experiment_blobs", "experiment_words"),
)


@pytest.fixture
def written(api):
    """The id of an experiment with data of each kind."""
    experiment = api.new_experiment(name="mnist", tags=["old"])
    for number in range(2):  # the second supersedes the first
        time = 1000.0 * (number + 1)
        sent = (
            scalars("loss", range(9), wall_times=[time] * 9),
            texts("t", [0], [b"t"], [time]),
            images("i", [0], [[b"png"]], [time]),
        )
        of = stream(file_name=f"events.{number}")
        api.write(experiment, segment(of, 0, 9, *sent, start_time=time))
    again = scalars("again", [0, 0], wall_times=[1000.0, 2000.0])
    api.write(experiment, segment(stream(file_name="events.1"), 9, 18, again))
    return experiment


@pytest.fixture
def count_rows(database, workspace_id):
    """Counts the rows of the test's workspace, in all tables of an experiment's data."""

    def count():
        with database.transaction(workspace_id) as db:
            statements = (f"SELECT count(*) FROM {table}" for table in TABLES)  # noqa: S608 - constants
            return [db.execute(text(statement)).scalar() for statement in statements]

    return count


@pytest.fixture
def become_due(database, workspace_id):
    """Lets the time come at which deleted experiments, and their copies, are to be erased."""

    def become_due():
        with database.transaction(workspace_id) as db:
            set_local(db, "shows_deleted", "on")
            due = "UPDATE experiments SET erase_at = now() WHERE deleted_at IS NOT NULL"
            db.execute(text(due))

    return become_due


def erase_until_done(database):
    while erase_due(database, threading.Event()):
        pass


def test_deleted_experiment_is_nowhere(client, api, written):
    reader = ApiClient(client, api.new_token(written, "read", "append"))
    path = f"/experiments/{written}"
    api.request("PATCH", path, json={"visibility": "link"}).raise_for_status()
    assert api.request("DELETE", path).status_code == 204
    for who in (api, reader):
        for address in (path, f"{path}/scalars/data", f"{path}/streams", f"{path}/runs"):
            assert who.request("GET", address).status_code == 404
        assert who.send(written, segment(stream(), 9, 19)).status_code == 404
    assert ApiClient(client, None).request("GET", path).status_code == 401
    assert client.get(f"/experiment/{written}/").status_code == 401
    for parameters in ({}, {"q": "mnist"}, {"tag": "old"}, {"sort": "name"}):
        assert api.request("GET", "/experiments", params=parameters).json()["experiments"] == []
    assert api.request("DELETE", path).status_code == 404
    assert api.request("PATCH", path, json={"name": "x"}).status_code == 404


def test_deletion_is_undone_completely(client, api, written):
    token = api.new_token(written, "read")
    before = api.get(written, "scalars/data", sampling="all")
    api.request("DELETE", f"/experiments/{written}").raise_for_status()
    (deleted,) = api.request("GET", "/experiments/deleted").json()["experiments"]
    assert (deleted["experiment_id"], deleted["name"]) == (written, "mnist")
    assert deleted["erase_at"] > deleted["deleted_at"]

    restored = api.request("POST", f"/experiments/{written}/restore")
    assert (restored.status_code, restored.json()["name"]) == (200, "mnist")
    assert ApiClient(client, token).get(written, "scalars/data", sampling="all") == before
    for parameters in ({}, {"q": "mnist"}, {"tag": "old"}):
        listed = api.request("GET", "/experiments", params=parameters).json()["experiments"]
        assert [each["experiment_id"] for each in listed] == [written]
    assert api.request("GET", "/experiments/deleted").json()["experiments"] == []
    assert api.request("POST", f"/experiments/{written}/restore").status_code == 404


def test_two_deletions_and_an_undo_at_once(api, database, workspace_id, written):
    grant = AdminGrant(workspace_id, written)

    def delete(db):
        deletion.delete_experiment(db, grant)

    def restore(db):
        deletion.restore_experiment(db, grant, written)

    assert isinstance(race(database, workspace_id, delete, delete), NotFound)
    assert isinstance(race(database, workspace_id, restore, restore), NotFound)
    # The undo comes before what it would undo: the experiment stays deleted.
    assert isinstance(race(database, workspace_id, delete, restore), NotFound)
    api.request("POST", f"/experiments/{written}/restore").raise_for_status()
    assert api.get(written, "scalars/data")["train"]["loss"]["total"] == 9


def test_restore_wants_own_workspace(client, api, written, database_url):
    other = ApiClient(client, new_workspace(database_url).owner_token)
    api.request("DELETE", f"/experiments/{written}").raise_for_status()
    assert other.request("GET", "/experiments/deleted").json()["experiments"] == []
    for experiment_id in (written, "A" * 22, "x"):
        answer = other.request("POST", f"/experiments/{experiment_id}/restore")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_deleted_experiments_are_listed_in_pages(api):
    made = [api.new_experiment() for _ in range(5)]
    for experiment in made:
        api.request("DELETE", f"/experiments/{experiment}").raise_for_status()
    seen, after = [], {}
    while after is not None:
        parameters = {"limit": 2, **after}
        page = api.request("GET", "/experiments/deleted", params=parameters).json()
        seen += [each["experiment_id"] for each in page["experiments"]]
        after = {"after": page["next"]} if page["next"] else None
    assert seen == made[::-1]


def test_request_key_of_deleted_experiment_makes_another(api):
    headers = {"Idempotency-Key": "k"}
    first = api.request("POST", "/experiments", json={}, headers=headers).json()["experiment_id"]
    api.request("DELETE", f"/experiments/{first}").raise_for_status()
    second = api.request("POST", "/experiments", json={}, headers=headers).json()["experiment_id"]
    assert first != second


def test_erasing_leaves_no_row(api, written, database, count_rows, monkeypatch):
    monkeypatch.setattr("tbservice.experiments.eraser.ERASE_TRANSACTION_ITEMS_MAX", 2)
    kept = api.new_experiment(scalars("loss", range(9)), name="kept")
    api.request("DELETE", f"/experiments/{written}").raise_for_status()
    both = count_rows()
    erase_until_done(database)
    assert count_rows() == both  # not due yet

    api.request("POST", f"/experiments/{written}/restore").raise_for_status()
    path = f"/experiments/{written}"
    assert api.request("DELETE", path, params={"final": True}).status_code == 204
    assert api.request("GET", "/experiments/deleted").json()["experiments"] == []
    assert api.request("POST", f"{path}/restore").status_code == 404
    erase_until_done(database)
    left = count_rows()
    api.request("DELETE", f"/experiments/{kept}", params={"final": True}).raise_for_status()
    assert sum(left) > 0
    erase_until_done(database)
    assert count_rows() == [0] * len(TABLES)


@pytest.mark.plain(
    "a node's transaction begins with its first statement, not with that of the entry"
)
def test_undo_and_erasing_wait_for_each_other(
    api, written, database, workspace_id, become_due, count_rows, monkeypatch
):
    grant = AdminGrant(workspace_id, written)

    def restore(db):  # in a transaction that began before the time has come
        become_due()
        deletion.restore_experiment(db, grant, written)

    api.request("DELETE", f"/experiments/{written}").raise_for_status()
    race(database, workspace_id, restore, lambda _: erase_until_done(database))
    assert api.get(written, "scalars/data")["train"]["loss"]["total"] == 9

    api.request("DELETE", f"/experiments/{written}").raise_for_status()
    monkeypatch.setattr("tbservice.experiments.eraser.ERASE_TRANSACTION_ITEMS_MAX", 2)
    stopping = threading.Event()
    stopping.set()
    with database.transaction(workspace_id) as db:  # which begins before the time has come
        become_due()
        erase_due(database, stopping)  # its first steps
        with pytest.raises(NotFound):
            deletion.restore_experiment(db, grant, written)
    erase_until_done(database)
    assert count_rows() == [0] * len(TABLES)


def test_eraser_broken_at_each_step_leaves_no_row(
    api,
    written,
    database,
    workspace_id,
    settings,
    become_due,
    count_rows,
    run_tbservice,
    monkeypatch,
):
    monkeypatch.setattr("tbservice.experiments.eraser.ERASE_TRANSACTION_ITEMS_MAX", 3)
    make_link(api, written, frozen=True)
    api.request("DELETE", f"/experiments/{written}").raise_for_status()
    become_due()
    assert erase_broken_at_each_step(settings.database_url.get_secret_value()) >= 5
    assert count_rows() == [0] * len(TABLES)
    printed = run_tbservice("receipts", "--workspace", workspace_id)[1]
    assert [json.loads(line)["experiment_id"] for line in printed] == [written]
    with database.transaction(workspace_id) as db:
        left = usage_counters.sum_all(db, workspace_id)
    assert (left.points, left.tensor_bytes) == (0, 0)


def test_frozen_copy_of_what_is_being_erased_is_refused(
    client, api, written, database, workspace_id, count_rows, monkeypatch
):
    """Its transaction sees a state from before the deletion, and the eraser does not see the copy."""
    monkeypatch.setattr("tbservice.experiments.eraser.ERASE_TRANSACTION_ITEMS_MAX", 2)
    stopping = threading.Event()
    stopping.set()
    door = client.app.state.ingest.door
    begin = Door.copying

    @contextmanager
    def begin_before_deletion(door, grant):
        with begin(door, grant) as writer:
            writer.db.execute(text("SELECT 1"))
            api.request("DELETE", f"/experiments/{written}", params={"final": True})
            erase_due(database, stopping)  # its first steps
            yield writer

    monkeypatch.setattr(Door, "copying", begin_before_deletion)
    grant = AdminGrant(workspace_id, written)
    with (
        pytest.raises(NotFound),
        share_links.begin_link(door, grant, is_frozen=True) as writer,
    ):
        share_links.create_link(writer, grant, is_frozen=True)
    erase_until_done(database)
    assert count_rows() == [0] * len(TABLES)


def test_erasing_is_for_one_process(api, written, database):
    api.request("DELETE", f"/experiments/{written}", params={"final": True}).raise_for_status()
    with database.transaction() as other:
        citus.lock_name(other, experiment_deletion.SWEEP_LOCK)
        assert erase_due(database, threading.Event()) == 0
    assert erase_due(database, threading.Event()) == 1


@pytest.mark.own_database
@pytest.mark.plain("asks the one server what its transactions keep")
def test_erasing_keeps_no_snapshot_meanwhile(
    api, written, servers, settings, database, monkeypatch
):
    api.request("DELETE", f"/experiments/{written}", params={"final": True}).raise_for_status()
    name = database_name(settings.database_url.get_secret_value())
    waiting = """
        SELECT backend_xmin::text FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'idle in transaction'
            AND query LIKE '%idle_in_transaction_session_timeout%'
    """
    erase_some, kept = deletion.erase_some, []

    def erase_and_look(*args, **options):
        kept.extend(superuser.execute(waiting).fetchall())
        return erase_some(*args, **options)

    monkeypatch.setattr(deletion, "erase_some", erase_and_look)
    (superuser,) = servers.superusers(name)
    with superuser:
        erase_until_done(database)
    assert kept == [(None,)]


def test_service_erases_in_background(settings, database, monkeypatch):
    monkeypatch.setattr("tbservice.experiments.eraser.ERASE_INTERVAL_SECONDS", 0.05)
    with TestClient(create_app(settings)) as client:
        workspace = new_workspace(settings.database_url.get_secret_value())
        api = ApiClient(client, workspace.owner_token)
        experiment = api.new_experiment(scalars("loss", range(9)))
        api.request(
            "DELETE", f"/experiments/{experiment}", params={"final": True}
        ).raise_for_status()

        def is_erased():
            with database.transaction(workspace.workspace_id) as db:
                return db.execute(text("SELECT count(*) FROM time_series")).scalar() == 0

        wait_until(is_erased)
