"""`tbservice migrate` on a cluster: who is in its way on any node, and what it would do."""

from __future__ import annotations

import re

import psycopg
import pytest

from support.later_migrations import Migrations
from support.servers import database_name
from tbservice import limits
from tbservice.db import migrate
from tbservice.errors import StartupError
from tbservice.local.embedded.ports import LOOPBACK
from tbservice.server.administration import check_migrations

pytestmark = [pytest.mark.cluster, pytest.mark.own_database]

FIRST, SECOND = 1, 2


@pytest.fixture
def owner_url(servers, database_url):
    """The URL of the role that migrates."""
    return servers.owner_url(database_url)


def test_migrate_names_who_is_in_its_way_on_any_node(
    cluster, owner_url, database_url, tmp_path, monkeypatch
):
    monkeypatch.setattr(limits, "MIGRATE_LOCK_SECONDS_MAX", 0.2)
    monkeypatch.setattr(migrate, "MIGRATE_ATTEMPTS_MAX", 1)
    migrations = Migrations(tmp_path / "migrations", monkeypatch)
    statement = "ALTER TABLE time_series ADD COLUMN note text"
    migrations.add("9001_series_note", statement, LOCKS={"time_series": "ACCESS EXCLUSIVE"})
    url = cluster.url(database_name(database_url), FIRST)
    with psycopg.connect(url, application_name="an export") as reader:
        pid = reader.info.backend_pid
        reader.execute("SELECT count(*) FROM time_series")
        with pytest.raises(StartupError) as raised:
            migrate.upgrade(owner_url)
    (told,) = re.findall(r"at each of 1 attempts \((.*)\); wait until", str(raised.value))
    entry, *others = sorted(told.split("; "), key=lambda text: "an export" not in text)
    assert entry.startswith(f"process {pid}, an export, ")
    assert entry.endswith(f", on {LOOPBACK}:{cluster.ports[FIRST]}")
    assert any(
        f", for process {pid} of the node with nodeid " in text
        and text.endswith(f", on {LOOPBACK}:{cluster.ports[SECOND]}")
        for text in others
    ), told


def test_check_tells_tables_and_nodes_that_lack_something(cluster, owner_url, settings):
    assert check_migrations(settings)[1]
    with psycopg.connect(owner_url) as db:
        db.execute('CREATE TABLE notes (experiment_id text COLLATE "C")')
    told = "not distributed over the cluster yet: notes; locks each until all are"
    assert check_migrations(settings) == ([told], False)
    assert migrate.upgrade(owner_url) == []
    assert check_migrations(settings)[1]
    with psycopg.connect(owner_url) as db:
        revoke = "REVOKE SELECT ON ALL TABLES IN SCHEMA link_views FROM tbhub_app"
        db.execute("SELECT run_command_on_workers(%s)", [revoke])
    told, is_current = check_migrations(settings)
    assert not is_current
    nodes = [f"{LOOPBACK}:{port}" for port in cluster.ports[1:]]
    lacks = "the role that serves lacks rights to the views of share links; locks nothing"
    assert told == [f"{node}: {lacks}" for node in nodes]
    migrate.upgrade(owner_url)
    assert check_migrations(settings)[1]
