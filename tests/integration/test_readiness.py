"""`/readyz`: PostgreSQL must accept writes; a lost object store is only reported."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from psycopg.sql import SQL, Identifier
from starlette.testclient import TestClient

from support.batches import ApiClient, scalars, segment, stream
from support.servers import database_name
from support.small_disk import on_small_disk
from support.subprocesses import run_to_end
from support.uploading import wait_until
from tbservice.api.http.metrics_exposition import expose
from tbservice.errors import Unavailable
from tbservice.local.embedded.data_directory import FREE_BYTES_MIN
from tbservice.local.embedded.ports import LOOPBACK, choose_ports
from tbservice.server.app import create_app

pytestmark = pytest.mark.own_database

SMALL_BYTES = FREE_BYTES_MIN + (64 << 20)


def test_readiness_on_full_disk_says_so(tmp_path):
    command = on_small_disk(tmp_path / "small", SMALL_BYTES)
    tests = Path(__file__).parents[1]
    command += [sys.executable, str(tests / "support" / "full_disk.py"), str(tmp_path / "small")]
    done = run_to_end(command, timeout=120)
    assert done.returncode == 0, done.stderr
    before, full, after = json.loads(done.stdout)
    assert (before, after) == ("", "")
    assert "disk is full" in full


def test_readiness_without_object_store_is_200_and_told(settings, owner_token):
    away = f"http://{LOOPBACK}:{choose_ports(['nobody'], {})['nobody']}"
    application = create_app(settings.model_copy(update={"s3_endpoint": away}))
    application.state.is_prepared = True  # it went away after the start
    with TestClient(application) as client:
        assert client.get("/readyz").status_code == 200
        wait_until(
            lambda: (
                client.get("/readyz").json()
                == {"database": "writable", "object_store": "unavailable"}
            )
        )
        assert b"\ntbhub_object_store_up 0.0" in expose("")[0]
        api = ApiClient(client, owner_token)
        assert (
            api.write(api.new_experiment(), segment(stream(), 0, 9, scalars("loss", [0]))).scalars
            == 1
        )


@pytest.fixture
def set_read_only(servers, database_url):
    """Make new connections to the test's database read-only, as on a standby, or writable again."""
    alter = SQL("ALTER DATABASE {} SET default_transaction_read_only = {}")

    def set_read_only(value):
        with servers.instance.postgres.connect_as_superuser("postgres") as db:
            db.execute(alter.format(Identifier(database_name(database_url)), value))

    return set_read_only


def test_readiness_of_read_only_database_is_503(database, settings, set_read_only):
    set_read_only(True)
    with pytest.raises(Unavailable, match="accepts no writes"):
        database.check_writable()
    with TestClient(create_app(settings)) as client:
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert "accepts no writes" in answer.json()["detail"]
        set_read_only(False)
        # Another host of the URL may take writes: each look replaces a connection that does not,
        # and the application's own threads have opened some as well.
        assert any(client.get("/readyz").status_code == 200 for _ in range(8))


def test_read_only_database_is_unavailable_meanwhile(database, set_read_only):
    def write():
        with database.transaction() as db:
            db.exec_driver_sql("INSERT INTO workspaces (name) VALUES ('x')")

    set_read_only(True)
    with pytest.raises(Unavailable, match="accepts no writes"):
        write()
    set_read_only(False)
    write()
