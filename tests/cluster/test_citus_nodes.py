"""A transaction of one experiment is opened on the node that has its rows; on another if that is away."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
from sqlalchemy import event, text

from support.servers import database_name, new_workspace
from support.uploading import wait_until
from tbservice import limits
from tbservice.auth.workspaces import create_workspace
from tbservice.db.cluster import citus
from tbservice.db.database import Database
from tbservice.errors import Unavailable
from tbservice.experiments import lifecycle
from tbservice.experiments.metadata import Metadata
from tbservice.series.tables import runs_tags
from tbservice.types.grants import AppendGrant, ReadGrant, WorkspaceGrant
from tbservice.types.identifiers import ExperimentId, WorkspaceId

POOL_SIZE = 4
EXPERIMENTS = [ExperimentId(f"experiment{number:012}") for number in range(12)]
WORKSPACE = WorkspaceId(1)

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("cluster")]


@pytest.fixture(autouse=True)
def _short_times(monkeypatch):
    monkeypatch.setattr(citus, "NODE_SECONDS_MAX", 0.2)
    monkeypatch.setattr("tbservice.db.cluster.nodes.NODE_REST_SECONDS", 0.2)


@pytest.fixture
def small(cluster, database_url):
    """A database with few connections."""
    assert cluster
    database = Database(database_url, POOL_SIZE)
    yield database
    database.close()


def port_of(opened):
    """Return the port of the node where a transaction runs."""
    with opened as db:
        return db.execute(text("SELECT inet_server_port()")).scalar_one()


def port_in_catalog(database, experiment_id):
    """Return the port of the node that has the experiment's rows."""
    with database.transaction() as db:
        return citus.node_of(db, experiment_id).port


def test_transaction_runs_where_its_experiment_is(small, cluster):
    ports = set()
    for experiment_id in EXPERIMENTS:
        port = port_in_catalog(small, experiment_id)
        assert port_of(small.transaction(AppendGrant(WORKSPACE, experiment_id))) == port
        assert port_of(small.snapshot(ReadGrant(WORKSPACE, experiment_id))) == port
        ports.add(port)
    assert ports == set(cluster.ports[1:])
    assert port_of(small.transaction(WORKSPACE)) == cluster.port


def test_experiment_is_created_where_its_key_is_locked(small, database_url):
    """The writer that waits for the lock gets it when the experiment is there: one node commits both."""
    grant = WorkspaceGrant(WorkspaceId(new_workspace(database_url).workspace_id))
    for number in range(8):
        with small.transaction(grant.workspace_id) as db:
            made = lifecycle.create_experiment(db, grant, request_key=f"key {number}")
            named, is_new = lifecycle.get_or_create_experiment(db, grant, Metadata(f"{number}"))
            assert is_new
            for experiment, locked in ((made, f"key {number}"), (named, f"name/{number}")):
                place = citus.node_of(db, ExperimentId(f"{grant.workspace_id}/{locked}"))
                assert citus.node_of(db, experiment.experiment_id) == place


def move(cluster, database_url, experiment_id, before):
    """Move the experiment's shards from the worker at a port to the other one; return its port."""
    (after,) = set(cluster.ports[1:]) - {before}
    with cluster.connect(database_name(database_url)) as db:
        db.execute(
            """
                SELECT citus_move_shard_placement(
                    get_shard_id_for_distribution_column('experiments', %s::text),
                    '127.0.0.1', %s, '127.0.0.1', %s, 'block_writes')
            """,
            (experiment_id, before, after),
        )
    return after


def test_transaction_follows_shard_that_moves(small, cluster, database_url):
    grant = AppendGrant(WORKSPACE, EXPERIMENTS[0])
    before = port_of(small.transaction(grant))
    after = move(cluster, database_url, EXPERIMENTS[0], before)
    wait_until(lambda: port_of(small.transaction(grant)) == after)


def test_batch_that_move_waits_for_gets_its_numbers(small, cluster, servers, database_url):
    workspace = WorkspaceGrant(WorkspaceId(new_workspace(database_url).workspace_id))
    with small.transaction(workspace.workspace_id) as db:
        experiment_id = lifecycle.create_experiment(db, workspace).experiment_id
    grant = AppendGrant(workspace.workspace_id, experiment_id)
    with ThreadPoolExecutor(1) as threads:
        with small.transaction(grant) as db:
            port = db.execute(text("SELECT inet_server_port()")).scalar_one()
            runs_tags.resolve_runs(db, grant, ["run"])
            moving = threads.submit(move, cluster, database_url, experiment_id, port)
            wait_until(lambda: servers.count_waiting(database_url))
            runs_tags.resolve_tags(db, grant, ["first", "second"])
        after = moving.result()
    wait_until(lambda: port_of(small.transaction(grant)) == after)
    with small.transaction(grant) as db:
        runs_tags.resolve_tags(db, grant, ["third"])
        tags = runs_tags.list_tag_names(db, experiment_id)
    assert list(tags.values()) == ["first", "second", "third"]


def test_ids_that_anybody_asks_for_displace_none_in_use(small, monkeypatch):
    monkeypatch.setattr(citus, "NODE_SECONDS_MAX", 60.0)
    monkeypatch.setattr("tbservice.db.cluster.nodes.KNOWN_NODES_ITEMS_MAX", 4)
    asked = []

    def count(_db, _cursor, statement, *_rest):
        asked.append("pg_dist_placement" in statement)

    event.listen(small.engine, "before_cursor_execute", count)
    for _ in range(2):
        for experiment_id in EXPERIMENTS[:2]:
            with small.without_transaction(experiment_id):
                pass
            with small.transaction(ReadGrant(WORKSPACE, experiment_id)):
                pass
        for experiment_id in EXPERIMENTS[2:]:  # of which nobody has a grant
            with small.without_transaction(experiment_id):
                pass
    assert sum(asked) == 2 + 2 * len(EXPERIMENTS[2:])


@contextmanager
def killed(cluster, node):
    cluster.kill(node)
    try:
        yield
    finally:
        cluster.start(node)


def test_node_that_is_away_is_passed_by(small, cluster):
    grant = AppendGrant(WORKSPACE, EXPERIMENTS[1])
    port = port_of(small.transaction(grant))
    with killed(cluster, port - cluster.port):
        for _ in range(3):
            begin = time.monotonic()
            assert port_of(small.transaction(grant)) == cluster.port
            assert time.monotonic() - begin < limits.NODE_CONNECT_SECONDS_MAX
    wait_until(lambda: port_of(small.transaction(grant)) == port)


def test_connections_of_all_nodes_together_are_bounded(small, cluster, database_url):
    small.check()
    in_use = []

    def use(number):
        experiment_id = EXPERIMENTS[number % len(EXPERIMENTS)]
        with small.transaction(AppendGrant(WORKSPACE, experiment_id)) as db:
            in_use.append(1)
            used = len(in_use)
            db.execute(text("SELECT pg_sleep(0.05)"))
            in_use.pop()
        return used

    with ThreadPoolExecutor(4 * POOL_SIZE) as pool:
        used = list(pool.map(use, range(8 * POOL_SIZE)))
    assert 1 < max(used) <= POOL_SIZE
    opened = 0
    for node in range(cluster.workers + 1):
        with cluster.connect(database_name(database_url), node) as db:
            (count,) = db.execute(
                """
                    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                        AND usename = 'tbhub_app' AND application_name NOT LIKE 'citus%'
                """
            ).fetchone()
            opened += count
    assert opened <= POOL_SIZE + (cluster.workers + 1) * POOL_SIZE // 2


def test_lost_connections_between_nodes_fail_one_transaction(small, servers, database_url):
    def write_everywhere():
        """Use all connections, each of which opens one to each node."""
        with ExitStack() as stack:
            for _ in range(POOL_SIZE):
                create_workspace(stack.enter_context(small.transaction()), "a test's workspace")

    write_everywhere()
    servers.execute_on_nodes(
        database_url,
        """
        SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'citus_internal%'
        """,
    )
    with pytest.raises(Unavailable):
        write_everywhere()
    write_everywhere()
