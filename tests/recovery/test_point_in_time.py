"""Recovery to a point in time, with the commands of docs/backup.md: from a base backup and the
archived write-ahead log, while the bucket stays as it is.
"""

from __future__ import annotations

import re
import shlex
import shutil
from contextlib import contextmanager

import pytest
from starlette.testclient import TestClient

from support.batches import ApiClient, images, scalars, segment, stream
from support.servers import database_name, embedded_servers, new_workspace
from support.source_code import ROOT
from support.standby import run_program
from support.uploading import wait_until
from tbservice.integrity.check import CheckOptions
from tbservice.local.embedded.data_directory import DataDirectory
from tbservice.local.embedded.ports import choose_ports
from tbservice.local.embedded.postgres import Postgres
from tbservice.server.app import create_app
from tbservice.server.maintenance import check_service
from tbservice.throttle import Progress, Throttle

SECTION = (ROOT / "docs" / "backup.md").read_text().partition("## Point in time")[2]
TARGET_TIME = "2026-11-22 14:05:00+00"


def shown(language, number, archive):
    """Return a block of the page, with the test's own directory."""
    blocks = re.findall(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)
    lines = [line.strip() for line in blocks[number].strip().splitlines()]
    assert any("/archive" in line for line in lines)
    return [line.replace("/archive", str(archive)) for line in lines]


@pytest.fixture
def servers(tmp_path):
    """Servers whose PostgreSQL archives its log in `tmp_path`, as the page says."""
    (tmp_path / "wal").mkdir()
    with embedded_servers() as servers:
        instance = servers.instance
        files = instance.directory.path / "postgres" / "postgresql.conf"
        with files.open("a") as file:
            file.write("\n".join(["", *shown("ini", 0, tmp_path), ""]))
        instance._database.stop()
        instance.children.remove(instance._database)
        instance._database = instance._add(instance.postgres.start())
        instance.postgres.wait_ready(instance._database)
        yield servers


def write(api, name, content):
    """Write an experiment with scalars and one image; return its id."""
    experiment = api.new_experiment(name=name)
    sent = (scalars("loss", range(2_000)), images("image", [1], [[content]]))
    api.write(experiment, segment(stream(), 0, 1, *sent))
    return experiment


def clock(db):
    return db.execute("SELECT clock_timestamp()::text").fetchone()[0]


@contextmanager
def recovered(servers, archive, target_time):
    """Run a PostgreSQL that is recovered to a time, beside the first one."""
    path = archive / "recovered"
    directory = DataDirectory.open(path)
    directory.secrets = servers.instance.directory.secrets
    shutil.copytree(archive / "base", path / "postgres")
    lines = [line.replace(TARGET_TIME, target_time) for line in shown("ini", 1, archive)]
    with (path / "postgres" / "postgresql.conf").open("a") as file:
        file.write("\n".join(["", *lines, ""]))
    (path / "postgres" / "recovery.signal").touch()
    postgres = Postgres(directory, choose_ports(["recovered"], {})["recovered"])
    child = postgres.start()
    try:
        postgres.wait_ready(child)
        with postgres.connect_as_superuser("postgres") as db:
            wait_until(lambda: db.execute("SELECT pg_is_in_recovery()").fetchone() == (False,))
        yield postgres
    finally:
        child.stop()
        directory.close()


def test_recovery_returns_to_second_before_accident(servers, tmp_path, monkeypatch):
    monkeypatch.setattr("tbservice.integrity.stored_objects.ORPHAN_SECONDS_MIN", -60)
    postgres = servers.instance.postgres
    with servers.database() as url, servers.settings(url) as settings:
        with (
            TestClient(create_app(settings)) as client,
            postgres.connect_as_superuser(database_name(url)) as db,
        ):
            api = ApiClient(client, new_workspace(url).owner_token)
            first = write(api, "before the base backup", b"first")
            (command,) = shown("sh", 0, tmp_path)
            run_program(servers.instance, *shlex.split(command))
            second = write(api, "after it", b"second")
            before = clock(db)

            third = write(api, "after the accident", b"third")
            db.execute("DELETE FROM experiments WHERE experiment_id = %s", [first])  # the accident
            ((segment_file,),) = db.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchall()
            wait_until((tmp_path / "wal" / segment_file).exists)

        with recovered(servers, tmp_path, before) as other:
            there = settings.model_copy(
                update={"database_url": type(settings.database_url)(other.url(database_name(url)))}
            )
            findings, _ = check_service(
                there,
                CheckOptions(reads_content=True),
                Throttle(None),
                Progress(None),
                lambda _damage: None,
            )
            assert (findings.damage, findings.looked.experiments) == ([], 2)
            assert findings.looked.points == 2 * 2_001
            assert (findings.looked.orphans, findings.looked.orphan_bytes) == (1, len(b"third"))
            with TestClient(create_app(there)) as client:
                reader = ApiClient(client, api.headers["Authorization"].removeprefix("Bearer "))
                for experiment, content in ((first, b"first"), (second, b"second")):
                    steps = reader.get(experiment, "blob_sequences/data")["train"]["image"]
                    ((blob,),) = steps["values"]
                    assert reader.request("GET", f"/blobs/{blob['key']}").content == content
                assert reader.request("GET", f"/experiments/{third}").status_code == 404
