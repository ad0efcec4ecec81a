"""Reads from a real streaming replica: each sees what was written before, and the primary answers
whatever the replica cannot.
"""

from __future__ import annotations

import time
from contextlib import contextmanager

import pytest
from pydantic import SecretStr
from sqlalchemy import event, text
from starlette.testclient import TestClient

from support.batches import ApiClient, scalars, segment, stream
from support.servers import database_name, new_owner
from support.standby import standby_of
from support.uploading import SECONDS_MAX, wait_until
from tbservice.db.database import Database
from tbservice.db.reachability import Reachability
from tbservice.errors import StartupError
from tbservice.local.embedded.ports import LOOPBACK, choose_ports
from tbservice.metrics import REGISTRY
from tbservice.server.app import create_app

pytestmark = pytest.mark.plain("TBHUB_READ_DATABASE_URL is refused on a cluster")

ROUNDS = 8


@pytest.fixture(scope="module")
def standby(servers, tmp_path_factory):
    with standby_of(servers.instance, tmp_path_factory.mktemp("standby")) as standby:
        yield standby


@pytest.fixture(scope="module")
def primary_url(standby, shared_settings):
    """A database that the standby has."""
    assert standby
    return shared_settings.database_url.get_secret_value()


@pytest.fixture(scope="module")
def read_url(standby, primary_url):
    return standby.postgres.url(database_name(primary_url))


@pytest.fixture(scope="module")
def served(shared_settings, read_url):
    """The application with the replica."""
    values = shared_settings.model_dump() | {"read_database_url": SecretStr(read_url)}
    with TestClient(create_app(type(shared_settings)(**values))) as client:
        yield client


@pytest.fixture
def replicated(primary_url, read_url):
    """A database with the replica, and connections of its own."""
    database = Database(primary_url, 2, read_url)
    yield database
    database.close()


@pytest.fixture
def owner(served, primary_url):
    return ApiClient(served, new_owner(primary_url))


@pytest.fixture(autouse=True)
def _short_rests(monkeypatch):
    for name in ("REPLICA_REST_SECONDS", "REPLICA_BEHIND_SECONDS"):
        monkeypatch.setattr(f"tbservice.db.replica.{name}", 0.2)


def count_reads(outcome):
    value = REGISTRY.get_sample_value("tbhub_replica_reads_total", {"outcome": outcome})
    return value or 0


@contextmanager
def reads(outcome):
    """The block has reads with this outcome."""
    before = count_reads(outcome)
    yield
    assert count_reads(outcome) > before, outcome


def repeat_until(outcome, read):
    """Repeat a read until one has this outcome: what an earlier test found is forgotten soon."""
    before = count_reads(outcome)

    def has_outcome():
        read()
        return count_reads(outcome) > before

    wait_until(has_outcome)


def write(owner, experiment, number):
    """Write one point; return how many the experiment has."""
    of = stream(file_name=str(number))
    owner.write(experiment, segment(of, 0, 9, scalars("loss", [number])))
    return number + 1


def count_points(owner, experiment):
    return len(owner.get(experiment, "scalars/data", downsample=100)["train"]["loss"]["steps"])


def test_reads_at_replica_see_what_was_written_before(owner):
    experiment = owner.new_experiment()
    repeat_until("answered", lambda: owner.request("GET", "/experiments"))
    with reads("answered"):
        for number in range(ROUNDS):
            written = write(owner, experiment, number)
            assert count_points(owner, experiment) == written
            listed = owner.request("GET", "/experiments").json()["experiments"]
            assert experiment in [each["experiment_id"] for each in listed]


@pytest.mark.parametrize("outcome", ["behind", "away"])
def test_replica_that_is_behind_or_away_is_not_read(owner, standby, outcome):
    experiment = owner.new_experiment()
    repeat_until("answered", lambda: owner.request("GET", "/experiments"))
    interrupt, resume = {
        "behind": (
            lambda: standby.execute("SELECT pg_wal_replay_pause()"),
            lambda: standby.execute("SELECT pg_wal_replay_resume()"),
        ),
        "away": (standby.stop, standby.restart),
    }[outcome]
    interrupt()
    try:
        with reads(outcome):
            for number in range(3):
                written = write(owner, experiment, number)
                assert count_points(owner, experiment) == written
    finally:
        resume()
    repeat_until("answered", lambda: count_points(owner, experiment))
    assert count_points(owner, experiment) == written


@pytest.fixture
def disturb(standby, served, servers, primary_url):
    """Let a change on the primary be in the way of the next transaction at the replica.

    Yields a list of how often that happened.
    """
    standby.execute("ALTER SYSTEM SET max_standby_streaming_delay = 0", "SELECT pg_reload_conf()")
    engine = served.app.state.database._replica.pool.engine
    done = []

    def lock(db):
        if done:
            return
        done.append(db)
        db.connection.driver_connection.execute("SELECT count(*) FROM time_series")
        name = database_name(primary_url)
        with (
            servers.instance.postgres.connect_as_superuser(name) as primary,
            primary.transaction(),
        ):
            primary.execute("LOCK TABLE time_series IN ACCESS EXCLUSIVE MODE")
        wait_until(lambda: standby.is_level_with(servers.instance.postgres))

    event.listen(engine, "begin", lock)
    yield done
    event.remove(engine, "begin", lock)
    standby.execute("ALTER SYSTEM RESET max_standby_streaming_delay", "SELECT pg_reload_conf()")


def repeat_until_disturbed(disturb, read):
    """Repeat a read until it runs at the replica, which may be behind; return that one's result."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        result = read()
        if disturb:
            return result
        assert time.monotonic() < deadline


def test_read_that_replica_cancels_is_answered_by_primary(owner, disturb):
    experiment = owner.new_experiment()
    written = write(owner, experiment, 0)
    with reads("conflict"):
        assert repeat_until_disturbed(disturb, lambda: count_points(owner, experiment)) == written


def test_request_that_may_not_be_repeated_is_503(owner, disturb):
    experiment = owner.new_experiment()
    write(owner, experiment, 0)
    path = f"/experiments/{experiment}/scalars/data"
    answer = repeat_until_disturbed(disturb, lambda: owner.request("POST", path, json={}))
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert answer.headers["Retry-After"]
    wait_until(lambda: owner.request("POST", path, json={}).status_code == 200)


def test_snapshot_at_replica_is_read_only_and_of_workspace(replicated, workspace_id):
    def read():
        with replicated.snapshot(workspace_id):
            pass

    repeat_until("answered", read)  # the replica has the workspace, which is new
    with reads("answered"), replicated.snapshot(workspace_id) as db:
        assert db.execute(text("SELECT pg_is_in_recovery()")).scalar_one()
        seen = db.execute(text("SELECT current_setting('tbhub.workspace_id')")).scalar_one()
        assert seen == str(workspace_id)
        with pytest.raises(Exception, match="read-only"):
            db.execute(text("INSERT INTO workspaces (name) VALUES ('x')"))
    with replicated.transaction(workspace_id) as db:
        assert not db.execute(text("SELECT pg_is_in_recovery()")).scalar_one()


def test_url_of_another_database_is_no_replica(replicated, primary_url, servers):
    replicated.check_replica()
    with servers.database() as other_url:
        wrong = Database(primary_url, 1, other_url)
        with pytest.raises(StartupError, match="TBHUB_READ_DATABASE_URL names another database"):
            wrong.check_replica()
        wrong.close()
    nobody = choose_ports(["nobody"], {})["nobody"]
    absent = Database(primary_url, 1, f"postgresql://tbhub@{LOOPBACK}:{nobody}/tbhub")
    absent.check_replica()
    absent.close()


def test_one_caller_at_a_time_tries_server_that_failed():
    now = [0.0]
    server = Reachability(lambda: now[0])
    assert (server.may_try(), server.may_try()) == (True, True)
    server.note_failure(5)
    assert not server.may_try()
    now[0] = 5
    assert (server.may_try(), server.may_try()) == (True, False)
    server.note_success()
    assert (server.may_try(), server.may_try()) == (True, True)


def test_promoted_replica_is_not_read(owner, standby):
    """The last test: the standby is another primary from here on."""
    experiment = owner.new_experiment()
    standby.promote()
    written = write(owner, experiment, 0)
    repeat_until("promoted", lambda: count_points(owner, experiment))
    assert count_points(owner, experiment) == written
