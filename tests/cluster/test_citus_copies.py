"""`tbservice check` compares the copies of reference tables, which each node of a cluster has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from support.servers import database_name, new_workspace
from tbservice.integrity import check
from tbservice.integrity.check import CheckOptions
from tbservice.server.maintenance import check_service
from tbservice.throttle import Progress, Throttle

pytestmark = [pytest.mark.cluster, pytest.mark.own_database]

FIRST = 1


@pytest.fixture
def change_copy(cluster, database_url):
    """Execute a statement on one node's own copy of a table, behind the back of the cluster."""

    def change(table, statement):
        with cluster.connect(database_name(database_url), FIRST) as db:
            db.execute("SET citus.enable_manual_changes_to_shards = on")
            (shard,) = db.execute(
                "SELECT shardid FROM pg_dist_shard WHERE logicalrelid = %s::regclass", [table]
            ).fetchone()
            assert db.execute(statement.format(f"{table}_{shard}")).rowcount

    return change


def damage(settings):
    """Return what `tbservice check` prints of damage, as the role that serves."""
    everything = CheckOptions(skips_objects=True), Throttle(None), Progress(None)
    findings, _ = check_service(settings, *everything, lambda _damage: None)
    return [str(each) for each in findings.damage]


def test_check_tells_copies_that_differ(cluster, settings, database_url, change_copy):
    new_workspace(database_url)
    new_workspace(database_url)
    assert damage(settings) == []
    change_copy("tokens", "UPDATE {} SET revoked_at = now() WHERE revoked_at IS NULL")
    change_copy("workspaces", "INSERT INTO {} SELECT 99, 'of a lost commit'")
    tokens, workspaces = damage(settings)
    nodes = [f"127.0.0.1:{port} has {{}} rows" for port in cluster.ports]
    told = "reference_table: the copies of {} differ: " + ", ".join(nodes)
    assert tokens == told.format("tokens", 2, 2, 2)
    assert workspaces == told.format("workspaces", 2, 3, 2)


def test_commit_that_arrives_late_is_no_damage(settings, database_url, change_copy, monkeypatch):
    """It arrives after the second look at its table."""
    new_workspace(database_url)
    change_copy("workspaces", "UPDATE {} SET name = name || 'x'")
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 2:
            change_copy("workspaces", "UPDATE {} SET name = left(name, -1)")

    monkeypatch.setattr(check, "time", SimpleNamespace(sleep=pause))
    assert damage(settings) == []
    assert len(pauses) == 2
