"""The service behind PgBouncer in transaction mode, as Debian packages it, with no settings for us."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from support import servers as support
from support.complete_logdir import write_complete_logdir
from support.pgbouncer import CONNECTIONS, pgbouncer
from support.uploading import Uploader
from tbservice.db import migrate
from tbservice.db.connection import PREPARE_THRESHOLD
from tbservice.db.database import Database
from tbservice.db.pipeline import fetch_binary, query_with_rls
from tbservice.errors import Unavailable

CLIENTS = 3 * CONNECTIONS
TIMEOUT = "SELECT current_setting('statement_timeout'), current_setting('TimeZone')"


def test_upload_through_pgbouncer_is_proven(servers, tmp_path):
    logdir = write_complete_logdir(tmp_path / "logdir")
    with (
        servers.database(migrated=False) as owner_url,
        pgbouncer(owner_url) as pooled_owner_url,
        pgbouncer(servers.service_url(owner_url)) as url,
        servers.settings(url) as settings,
    ):
        assert migrate.upgrade(pooled_owner_url)
        with support.live_service(settings, tmp_path / "log") as live:
            uploader = Uploader(live.url, live.new_owner(), tmp_path)
            uploaded = uploader.run("--logdir", logdir, "--one-shot", "--json")
            assert uploaded.code == 0, uploaded.err
            verified = uploader.run(
                "verify", "--logdir", logdir, "--experiment", uploaded.experiment_id
            )
            assert verified.code == 0, verified.out


@pytest.fixture(scope="module")
def pooled_url(shared_settings):
    with pgbouncer(shared_settings.database_url.get_secret_value()) as url:
        yield url


def use_often(database, workspace_id):
    """Repeat transactions and look-ups until statements would be prepared; return what they see."""
    seen = set()
    for _ in range(2 * PREPARE_THRESHOLD):
        with database.transaction(workspace_id) as db:
            seen.add((workspace_id, *fetch_binary(db, TIMEOUT, {})[0]))
            db.execute(text("SELECT count(*) FROM runs"))
        with database.without_transaction() as db:
            query = "SELECT current_setting('tbhub.workspace_id'), %(id)s::bigint"
            assert query_with_rls(
                db, {"workspace_id": str(workspace_id)}, query, {"id": workspace_id}
            ) == [(str(workspace_id), workspace_id)]
    return seen


def test_clients_share_connections_without_a_trace(pooled_url):
    database = Database(pooled_url, CLIENTS)
    with ThreadPoolExecutor(CLIENTS) as pool:
        seen = pool.map(lambda number: use_often(database, number), range(1, CLIENTS + 1))
        assert set().union(*seen) == {(number, "1min", "UTC") for number in range(1, CLIENTS + 1)}
    with database.snapshot() as db:
        prepared = fetch_binary(db, "SELECT name FROM pg_prepared_statements", {})
        assert [name for (name,) in prepared if not name.startswith("PGBOUNCER_")] == []
    database.close()


def test_cancelled_statement_behind_pgbouncer_ends(pooled_url):
    database = Database(pooled_url, 1)
    with ThreadPoolExecutor(1) as pool, pytest.raises(Unavailable), database.transaction() as db:  # noqa: PT012 - its end raises
        sleeping = pool.submit(db.execute, text("SELECT pg_sleep(60)"))
        while not sleeping.done():
            database.cancel(db)
        sleeping.result()
    database.close()
