"""The connection pool on a real PostgreSQL: statements sent, rights of each transaction, lost
connections.
"""

from __future__ import annotations

import traceback

import psycopg
import pytest

from support.postgres_faults import postgres_faults
from tbservice.db import connection as module
from tbservice.db.database import Database
from tbservice.db.pipeline import execute_binary, fetch_binary, pipeline, query_with_rls
from tbservice.errors import StartupError

pytestmark = pytest.mark.own_database

SEEN = "SELECT coalesce(current_setting('tbhub.workspace_id', true), '')"


@pytest.fixture
def single(database_url):
    """A pool of one connection, so that each use gets the connection of the use before."""
    database = Database(database_url, 1)
    yield database
    database.close()


def test_connections_ended_by_postgres_are_replaced_unnoticed(database, database_url, servers):
    with database.transaction(), database.transaction(), database.transaction():
        pass
    ended = servers.execute_on_nodes(
        database_url,
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE usename IN ('tbhub', 'tbhub_app')",
    )
    assert ended.count((True,)) >= 3
    with database.transaction(), database.transaction(), database.without_transaction() as db:
        assert query_with_rls(db, {"workspace_id": "7"}, SEEN, {}) == [("7",)]


def test_connections_are_probed_only_after_long_idle(database_url, monkeypatch):
    with postgres_faults(database_url) as proxy:
        database = Database(proxy.url, 1)
        database.check()
        proxy.disarm()
        database.check()
        assert proxy.statements == ["BEGIN", "SELECT 1", "COMMIT"]
        monkeypatch.setattr(module, "IDLE_SECONDS_MAX", 0)
        proxy.disarm()
        database.check()
        assert proxy.statements == ["SELECT 1", "BEGIN", "SELECT 1", "COMMIT"]
        database.close()


def test_connection_rights_before_tenant_end_with_lookup(single):
    with single.without_transaction() as db:
        assert query_with_rls(db, {"workspace_id": "7"}, SEEN, {}) == [("7",)]
        assert fetch_binary(db, SEEN, {}) == [("",)]
    with single.transaction(7) as db:
        assert fetch_binary(db, SEEN, {}) == [("7",)]
    with single.snapshot() as db:
        assert fetch_binary(db, SEEN, {}) == [("",)]
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            fetch_binary(db, "SELECT nextval('runs_run_id_seq')", {})


def test_pipeline_with_failing_statement_leaves_nothing(single):
    make = "INSERT INTO workspaces (name) VALUES (%(name)s) RETURNING name"
    for attempt in range(8):  # beyond the sixth time statements are prepared
        with pytest.raises(psycopg.errors.DivisionByZero), single.transaction() as db, pipeline(db):  # noqa: PT012 - its end raises
            execute_binary(db, make, {"name": "before"})
            execute_binary(db, "SELECT 1 / %(zero)s", {"zero": 0})
            execute_binary(db, make, {"name": "after"})
        with single.transaction() as db:
            with pipeline(db):
                made = [
                    execute_binary(db, make, {"name": f"{attempt} {name}"})
                    for name in ("first", "second")
                ]
            assert [sent.rows() for sent in made] == [
                [(f"{attempt} first",)],
                [(f"{attempt} second",)],
            ]
    with single.transaction() as db:
        assert fetch_binary(db, "SELECT count(*), count(DISTINCT name) FROM workspaces", {}) == [
            (16, 16)
        ]


@pytest.mark.parametrize(
    "url", ["postgresql://u:secret@a:1,b:2x/db", "postgresql://u:secret@[host/db", "u:secret@h/d"]
)
def test_database_url_that_libpq_cannot_read(url):
    with pytest.raises(StartupError, match="not a PostgreSQL URL") as raised:
        Database(url, 1)
    assert "secret" not in "".join(traceback.format_exception(raised.value))


def test_database_url_keeps_its_own_options(database_url):
    database = Database(f"{database_url}&options=-c%20geqo%3Doff&connect_timeout=7", 1)
    with database.transaction() as db:
        shown = fetch_binary(
            db, "SELECT current_setting('geqo'), current_setting('statement_timeout')", {}
        )
    database.close()
    assert shown == [("off", "1min")]
