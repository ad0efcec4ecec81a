"""An operator sees which node of a cluster is unavailable, and whose standby was promoted."""

from __future__ import annotations

import logging
import os
import signal
import time
from contextlib import closing, contextmanager

import pytest
from starlette.testclient import TestClient

from support.citus import APPLICATION
from support.servers import database_name
from support.waiting import wait_until
from tbservice import limits
from tbservice.api.http.metrics_exposition import expose
from tbservice.db.database import Database
from tbservice.local.embedded.ports import LOOPBACK
from tbservice.server.app import create_app

pytestmark = [pytest.mark.cluster, pytest.mark.own_database]

FIRST, SECOND = 1, 2


@pytest.fixture(autouse=True)
def _short_times(monkeypatch):
    monkeypatch.setattr("tbservice.db.cluster.node_watch.NODE_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(limits, "NODE_CONNECT_SECONDS_MAX", 2)


@pytest.fixture
def ready(settings):
    """Asks /readyz, which is 200, and returns what it says."""
    with TestClient(create_app(settings)) as client:

        def ready():
            answer = client.get("/readyz")
            assert answer.status_code == 200
            return answer.json()

        yield ready


@contextmanager
def killed(cluster, _database):
    cluster.kill(FIRST)
    try:
        yield "refused"
    finally:
        cluster.start(FIRST)


@contextmanager
def frozen(cluster, _database):
    postmaster = int((cluster.data(FIRST) / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGSTOP)
    try:
        yield "timeout expired"
    finally:
        os.kill(postmaster, signal.SIGCONT)


@contextmanager
def read_only(cluster, database):
    alter = f"ALTER DATABASE {database} SET default_transaction_read_only = {{}}"
    with cluster.connect("postgres", FIRST) as db:
        db.execute(alter.format(True))
        try:
            yield "accepts no writes"
        finally:
            db.execute(alter.format(False))


@pytest.mark.parametrize("unavailable", [killed, frozen, read_only])
def test_unavailable_node_is_told_and_the_host_stays_ready(
    cluster, database_url, ready, caplog, unavailable
):
    node = f"{LOOPBACK}:{cluster.ports[FIRST]}"
    sample = f'\ntbhub_database_node_unavailable{{group="{FIRST}",node="{node}"}} '
    wait_until(lambda: ready().get("unavailable_nodes") == [])
    with caplog.at_level(logging.WARNING):
        with unavailable(cluster, database_name(database_url)) as reason:
            wait_until(lambda: ready()["unavailable_nodes"] == [FIRST])
            assert f"{sample}1.0".encode() in expose("")[0]
            (told,) = [line for line in caplog.messages if "is unavailable" in line]
            assert (node in told, reason in told) == (True, True), told
        wait_until(lambda: ready()["unavailable_nodes"] == [])
    assert f"{sample}0.0".encode() in expose("")[0]
    assert f"the node {node} of the cluster is available again" in caplog.messages


def test_node_that_is_removed_is_no_longer_unavailable(cluster, database_url, ready):
    nobody = cluster.port + cluster.workers + 1
    add = "INSERT INTO pg_dist_node (nodeid, groupid, nodename, nodeport) VALUES (99, 99, %s, %s)"
    with cluster.connect(database_name(database_url)) as db:
        db.execute(add, (LOOPBACK, nobody))
        wait_until(lambda: ready().get("unavailable_nodes") == [99])
        db.execute("DELETE FROM pg_dist_node WHERE nodeid = 99")
        wait_until(lambda: ready()["unavailable_nodes"] == [])
    sample = f'tbhub_database_node_unavailable{{group="99",node="{LOOPBACK}:{nobody}"}} 0.0'
    assert sample.encode() in expose("")[0]


def promote(cluster, node):
    """Give a node a new timeline: let it be a standby of nobody, which is promoted."""
    cluster.kill(node)
    (cluster.data(node) / "standby.signal").touch()
    os.chown(cluster.data(node) / "standby.signal", *_owner(cluster.data(node)))
    cluster.start(node)
    with cluster.connect("postgres", node) as db:
        assert db.execute("SELECT pg_promote()").fetchone() == (True,)


def _owner(path):
    status = path.stat()
    return status.st_uid, status.st_gid


def test_promotion_of_any_node_is_told_once(cluster, database_url, caplog):
    hosts = ",".join(f"{LOOPBACK}:{port}" for port in cluster.ports)
    name = database_name(database_url)
    url = f"postgresql://{APPLICATION}@{hosts}/{name}?load_balance_hosts=random"
    promote(cluster, SECOND)
    database = Database(url, 4)

    def look(seconds):
        """Look at all nodes again and again, entering by another connection each time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            database.engine.dispose()
            database.check_writable()
            database.list_unavailable_nodes()
            time.sleep(0.05)
        return [line for line in caplog.messages if "a standby was promoted" in line]

    with closing(database), caplog.at_level(logging.WARNING):
        wait_until(lambda: database.list_unavailable_nodes() == [])
        assert look(2) == []
        promote(cluster, SECOND)
        (told,) = wait_until(lambda: look(0.5))
        assert look(1) == [told]
    node = f"{LOOPBACK}:{cluster.ports[SECOND]}"
    assert told.startswith(f"the timeline of the node {node} of the cluster was 2 and is 3:")
    assert f'tbhub_database_timeline{{group="{SECOND}"}} 3.0'.encode() in expose("")[0]
