"""Backup and restore that are killed, or lose S3, in the middle: none passes for a complete one."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from support import process_kills, zygote
from support.batches import ApiClient, images, packed_scalars, segment, stream
from support.servers import database_name, environment_of, new_owner
from support.uploading import wait_until
from tbservice.errors import StartupError
from tbservice.integrity.check import CheckOptions
from tbservice.server import maintenance
from tbservice.server.app import create_app
from tbservice.throttle import Progress, Throttle

pytestmark = [
    pytest.mark.own_database,
    pytest.mark.plain("tbservice backup refuses a cluster, of which no dump has one state"),
]

OBJECTS = 24
FREE = Throttle(None), Progress(None)
SLOW_MEBIBYTES = 1.5
"""A second: the objects, and the dump, take about four."""

HOLD = """
    CREATE FUNCTION hold() RETURNS event_trigger LANGUAGE plpgsql
        AS 'BEGIN PERFORM pg_advisory_xact_lock(1); END';
    CREATE EVENT TRIGGER hold ON ddl_command_end WHEN TAG IN ('CREATE TABLE')
        EXECUTE FUNCTION hold();
    SELECT pg_advisory_lock(1)
"""
"""A restore then waits at its first table, however busy the machine is."""

HELD = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
RESTORING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'pg_restore'
"""


@pytest.fixture
def source(servers, settings):
    """The settings of a service with objects and a dump that take seconds, and a role for backups."""
    with TestClient(create_app(settings)) as client:
        api = ApiClient(client, new_owner(settings.database_url.get_secret_value()))
        draws = np.random.default_rng(1)
        contents = [[draws.bytes(256 << 10)] for _ in range(OBJECTS)]
        values = draws.random(300_000)
        experiment = api.new_experiment(images("image", range(OBJECTS), contents))
        steps = range(len(values))
        api.write(experiment, segment(stream(), 0, 1, packed_scalars("loss", steps, values)))
    with servers.instance.postgres.connect_as_superuser("postgres") as db:
        db.execute("CREATE ROLE tbhub_backup LOGIN BYPASSRLS PASSWORD 'backup'")
        db.execute("GRANT pg_read_all_data TO tbhub_backup")
    secret, at, place = settings.database_url.get_secret_value().partition("@")
    url = f"{secret.partition('//')[0]}//tbhub_backup:backup{at}{place}"
    yield settings.model_copy(update={"backup_database_url": SecretStr(url)})
    with servers.instance.postgres.connect_as_superuser("postgres") as db:
        db.execute("REVOKE pg_read_all_data FROM tbhub_backup")
        db.execute("DROP ROLE tbhub_backup")


def start(settings, *arguments):
    """Start a slow `tbservice` command."""
    environment = environment_of(settings)
    if settings.backup_database_url is not None:
        environment["TBHUB_BACKUP_DATABASE_URL"] = settings.backup_database_url.get_secret_value()
    options = [*map(str, arguments), "--rate", str(SLOW_MEBIBYTES)]
    with Path(os.devnull).open("w") as nowhere:
        return zygote.fork("tbservice", options, environment, nowhere.fileno())


def kill(process):
    process.kill()
    process.wait()


def copied(target):
    return {path.name for path in target.glob("objects/*/*") if not path.name.endswith(".part")}


def test_killed_backup_is_continued_by_next(servers, source, tmp_path):
    target = tmp_path / "backup"
    process = start(source, "backup", target)
    wait_until(lambda: copied(target))
    kill(process)
    assert maintenance.list_backups(None, str(target)) == []
    with pytest.raises(StartupError, match=r"no complete backup"):
        maintenance.verify_backup(None, str(target), None, *FREE, reads_content=False)

    first = len(copied(target))
    slow = Throttle(SLOW_MEBIBYTES * (1 << 20))

    def lose_objects():
        wait_until(lambda: len(copied(target)) > first)
        process_kills.kill_seaweedfs(servers.instance)

    thread = threading.Thread(target=lose_objects)
    thread.start()
    try:
        with pytest.raises(StartupError, match=r"object store.*no new backup.*continues"):
            maintenance.back_up(source, str(target), slow, Progress(None))
    finally:
        thread.join()
        process_kills.restart_seaweedfs(servers.instance)
    assert maintenance.list_backups(None, str(target)) == []

    before = len(copied(target))
    assert 0 < first < before < OBJECTS
    manifest = maintenance.back_up(source, str(target), *FREE)
    assert (manifest.copied_objects, manifest.lost) == (OBJECTS - before, [])
    read, faults = maintenance.verify_backup(None, str(target), None, *FREE, reads_content=True)
    assert (read, faults) == (manifest, [])


def test_killed_restore_is_continued_by_next(servers, source, tmp_path):
    """It is killed while pg_restore works: the objects are there, and nothing of the database."""
    manifest = maintenance.back_up(source, str(tmp_path), *FREE)
    with servers.database(migrated=False) as url, servers.settings(url) as empty:
        with servers.instance.postgres.connect_as_superuser(database_name(url)) as db:
            db.execute(HOLD)
            process = start(empty, "restore", tmp_path)
            wait_until(lambda: db.execute(HELD).fetchone()[0])
            kill(process)
            db.execute("SELECT pg_advisory_unlock(1)")
            wait_until(lambda: not db.execute(RESTORING).fetchone()[0])
            db.execute("DROP EVENT TRIGGER hold; DROP FUNCTION hold")
        with pytest.raises(StartupError, match=r"bucket is not empty.*--keep-objects"):
            maintenance.restore_backup(empty, str(tmp_path), None, *FREE, keeps_objects=False)
        restored, _ = maintenance.restore_backup(
            empty, str(tmp_path), None, *FREE, keeps_objects=True
        )
        assert restored == manifest
        findings, _ = maintenance.check_service(
            empty, CheckOptions(reads_content=True), *FREE, lambda _damage: None
        )
        assert (findings.damage, findings.looked.blobs) == ([], OBJECTS)
