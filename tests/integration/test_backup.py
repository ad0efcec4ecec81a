"""`tbservice backup` and `restore`: of a service that is written to, incremental, and only whole."""

from __future__ import annotations

import contextvars
import hashlib
import json
import os
import signal
import threading
from contextlib import closing, contextmanager

import psycopg
import pytest
from pydantic import SecretStr
from sqlalchemy import text
from starlette.testclient import TestClient

from support import zygote
from support.batches import ApiClient, images, packed_scalars, scalars, segment, stream, texts
from support.people import new_person
from support.servers import environment_of, new_workspace, s3_client
from support.share_links import make_link, target_of
from support.subprocesses import run_to_end
from support.uploading import wait_until
from tbservice.auth import deletion, people, workspaces
from tbservice.backup.create import Backup
from tbservice.backup.manifest import object_name
from tbservice.backup.tables import backup_snapshot
from tbservice.backup.targets import open_target
from tbservice.db.database import Database
from tbservice.errors import CommandFailed, Forbidden, StartupError
from tbservice.experiments.eraser import erase_due
from tbservice.integrity.check import CheckOptions
from tbservice.objects.tables import blobs
from tbservice.server import maintenance
from tbservice.server.app import create_app
from tbservice.throttle import Progress, Throttle

pytestmark = pytest.mark.plain("no dump of a cluster has one state: `backup` refuses it")

FREE = Throttle(None), Progress(None)
CONTENT = b"\x89PNG an image"


@pytest.fixture(scope="module")
def source(servers, shared_settings, written):
    """The settings of the module's service, with a role that may back it up, as documented."""
    del written  # there is something to back up
    with servers.instance.postgres.connect_as_superuser("postgres") as db:
        db.execute("CREATE ROLE tbhub_backup LOGIN BYPASSRLS PASSWORD 'backup'")
        db.execute("GRANT pg_read_all_data TO tbhub_backup")
    url = shared_settings.database_url.get_secret_value()
    secret = url.partition("tbhub:")[2].partition("@")[0]
    backup_url = url.replace(f"tbhub:{secret}@", "tbhub_backup:backup@")
    return shared_settings.model_copy(update={"backup_database_url": SecretStr(backup_url)})


@pytest.fixture(scope="module")
def written(shared_application, shared_settings):
    """An API client of the module's workspace, and an experiment that is complete."""
    workspace = new_workspace(shared_settings.database_url.get_secret_value())
    api = ApiClient(shared_application, workspace.owner_token)
    experiment = api.new_experiment(name="complete")
    sent = (
        packed_scalars("bulk", range(20_000)),
        scalars("few", range(40)),
        texts("note", [1, 2], [b"one", b"two"]),
        images("image", range(3), [[CONTENT], [b"GIF89a"], [CONTENT, b"BM"]]),
    )
    api.write(experiment, segment(stream(), 0, 9, *sent))
    return api, experiment


def read_all(api, experiment):
    """Everything that is shown of the experiment, and the bytes of its blobs."""
    shown = [
        api.get(experiment, f"{kind}/data", sampling="all")
        for kind in ("scalars", "tensors", "blob_sequences")
    ]
    keys = [blob["key"] for step in shown[2]["train"]["image"]["values"] for blob in step]
    return shown, [api.request("GET", f"/blobs/{key}").content for key in keys]


@contextmanager
def empty_service(servers):
    """Settings with an empty database and no bucket."""
    with servers.database(migrated=False) as url, servers.settings(url) as settings:
        yield settings


def back_up(settings, target):
    return maintenance.back_up(settings, str(target), *FREE)


def restore(settings, target, **options):
    return restore_and_erase(settings, target, **options)[0]


def restore_and_erase(settings, target, name=None, **options):
    """Restore the backup of this name, or the last one; return what it lists and what was erased
    again.
    """
    options = {"keeps_objects": False} | options
    return maintenance.restore_backup(settings, str(target), name, *FREE, **options)


def check(settings):
    findings, is_complete = maintenance.check_service(
        settings, CheckOptions(reads_content=True), *FREE, lambda _damage: None
    )
    assert is_complete
    return findings


def test_backup_under_load_is_restored_and_sound(servers, source, written, tmp_path):
    api, experiment = written
    busy = api.new_experiment(name="busy")
    stopping = threading.Event()
    sent = []

    def upload():
        while not stopping.is_set():
            n = len(sent)
            batch = (
                scalars("loss", range(n * 100, n * 100 + 100)),
                images("image", [n], [[b"an image of %d" % n]]),
            )
            api.write(busy, segment(stream(), n, n + 1, *batch))
            sent.append(n)

    thread = threading.Thread(target=upload)
    thread.start()
    try:
        wait_until(lambda: len(sent) > 2)
        before = len(sent)
        first = back_up(source, tmp_path / "backup")
        after = len(sent)
    finally:
        stopping.set()
        thread.join()
    with empty_service(servers) as restored:
        assert restore(restored, tmp_path / "backup") == first
        findings = check(restored)
        assert (findings.damage, findings.looked.experiments) == ([], 2)
        with TestClient(create_app(restored)) as client:
            reader = ApiClient(client, api.headers["Authorization"].removeprefix("Bearer "))
            assert read_all(reader, experiment) == read_all(api, experiment)
            loss = reader.get(busy, "scalars/data", sampling="all")["train"]["loss"]
            points = len(loss["steps"])
    assert before * 100 <= points <= (after + 1) * 100
    assert first.counts["points"] == findings.looked.points

    second = back_up(source, tmp_path / "backup")
    assert 0 <= second.copied_objects <= len(sent) - before  # what the first one has is not copied
    third = back_up(source, tmp_path / "backup")
    assert (third.copied_objects, third.objects) == (0, second.objects)


def test_backup_in_bucket_is_restored(servers, source):
    place = "s3://test-backups/nightly"
    manifest = back_up(source, place)
    read, faults = maintenance.verify_backup(source, place, None, *FREE, reads_content=True)
    assert (read, faults) == (manifest, [])
    with empty_service(servers) as restored:
        assert restore(restored, place) == manifest
        assert check(restored).damage == []


def test_large_file_in_bucket_is_written_in_parts(source, monkeypatch):
    monkeypatch.setattr(
        "tbservice.backup.targets.BACKUP_PART_BYTES", 5 << 20
    )  # the least that S3 allows
    target = open_target("s3://test-backups/parts", source)
    chunks = [bytes([number]) * (3 << 20) for number in range(4)]

    def broken():
        yield from chunks
        raise StartupError("pg_dump failed")

    try:
        with pytest.raises(StartupError, match="pg_dump"):
            target.write("broken", broken())
        assert target.find_size("broken") is None
        target.write("a file", chunks)
        assert b"".join(target.read("a file")) == b"".join(chunks)
        assert target.list_sizes("x") == {}
    finally:
        target.close()


def test_backup_role_must_see_rows_of_all_tenants(shared_settings, tmp_path):
    with pytest.raises(StartupError, match=r"'tbhub' sees the rows of no tenant.*BYPASSRLS"):
        back_up(shared_settings, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_backup_needs_pg_dump_of_server_version(source, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "_list_programs", list)
    monkeypatch.setattr("tbservice.backup.client_programs._INSTALLED", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    program = tmp_path / "pg_dump"
    program.write_text("#!/bin/sh\necho 'pg_dump (PostgreSQL) 15.18'\n")
    program.chmod(0o755)
    with pytest.raises(StartupError, match=r"PostgreSQL 18 or newer.*is of version 15.*install"):
        back_up(source, tmp_path / "backup")


@pytest.fixture(scope="module")
def backup(source, tmp_path_factory):
    """The directory of a backup of that service, and what the backup lists."""
    target = tmp_path_factory.mktemp("backup")
    return target, back_up(source, target)


def test_restore_refuses_what_is_not_empty(servers, source, backup):
    target, manifest = backup
    with pytest.raises(StartupError, match=r"database is not empty"):
        restore(source, target, keeps_objects=True)
    with empty_service(servers) as restored:
        plain = s3_client(source)
        plain.create_bucket(Bucket=restored.s3_bucket)
        plain.put_object(Bucket=restored.s3_bucket, Key="1/other", Body=b"x")
        plain.close()
        with pytest.raises(StartupError, match=r"bucket is not empty.*--keep-objects"):
            restore(restored, target)
        assert restore(restored, target, keeps_objects=True) == manifest
        assert check(restored).damage == []


@pytest.mark.parametrize("interruption", ["signal", "server"])
def test_restore_interrupted_while_it_compares(servers, backup, monkeypatch, interruption):
    """SIGTERM, or the end of the session, while the restored rows are counted."""

    def interrupt(db):
        monkeypatch.undo()
        if interruption == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        with servers.instance.postgres.connect_as_superuser("postgres") as superuser:
            pid = db.execute(text("SELECT pg_backend_pid()")).scalar_one()
            superuser.execute("SELECT pg_terminate_backend(%s)", [pid])
        return backup_snapshot.count_workspace(db)

    with empty_service(servers) as restored:
        monkeypatch.setattr(backup_snapshot, "count_workspace", interrupt)
        with pytest.raises(CommandFailed, match=r"everything is restored, but .*tbservice check"):
            restore(restored, backup[0])
        assert check(restored).damage == []


def faults_of(target):
    return maintenance.verify_backup(None, str(target), None, *FREE, reads_content=True)[1]


@contextmanager
def changed(path, change):
    """Replace the bytes of a file during the block; delete it for None."""
    before = path.read_bytes()
    after = change(before)
    path.unlink() if after is None else path.write_bytes(after)
    try:
        yield
    finally:
        path.write_bytes(before)


def flip(at):
    return lambda content: content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


def test_damaged_backup_is_found_and_not_restored(servers, backup):
    target, manifest = backup
    assert faults_of(target) == []
    dump, listed = target / manifest.database.name, target / manifest.blobs.name
    copied = target / object_name(hashlib.sha256(CONTENT).digest())
    with empty_service(servers) as restored:
        for path, change, said in (
            (copied, lambda _content: None, f"{copied.name} is missing"),
            (copied, flip(0), f"{copied.name} is damaged"),
            (listed, flip(30), "blobs.tsv.gz is damaged"),
            (dump, flip(-9), "database.dump is damaged"),
        ):
            with changed(path, change):
                (fault,) = faults_of(target)
                assert said in fault
                if change(b"\0" * 99) is not None:
                    with pytest.raises(CommandFailed, match=r"damaged"):  # exit code 1
                        restore(restored, target, keeps_objects=True)
        restore(restored, target, keeps_objects=True)  # it is still empty, whatever was tried


def test_backup_names_objects_that_service_has_lost(servers, source, tmp_path):
    plain = s3_client(source)
    (key,) = [
        item["Key"]
        for item in plain.list_objects_v2(Bucket=source.s3_bucket)["Contents"]
        if hashlib.sha256(CONTENT).hexdigest() in item["Key"]
    ]
    plain.delete_object(Bucket=source.s3_bucket, Key=key)
    try:
        manifest = back_up(source, tmp_path)
        assert manifest.lost == [key]
        with empty_service(servers) as restored:
            restore(restored, tmp_path)
            assert [damage.kind for damage in check(restored).damage] == ["object_missing"]
    finally:
        plain.put_object(Bucket=source.s3_bucket, Key=key, Body=CONTENT)
        plain.close()


def test_backup_follows_object_that_repair_moves(source, tmp_path, monkeypatch):
    """A repair replaces the object of a blob between the dump and the copies."""
    digest = hashlib.sha256(CONTENT).digest()
    database = Database(source.database_url.get_secret_value(), 1)
    with database.transaction() as db:
        from tbservice.auth.workspaces import list_workspaces  # noqa: PLC0415 - of one test

        workspaces = [workspace_id for workspace_id, _ in list_workspaces(db)]
    copy_objects, plain, moved = Backup._copy_objects, s3_client(source), []

    def move_then_copy(backup, file):
        for workspace_id in workspaces:
            with database.transaction(workspace_id) as db:
                known = blobs.find(db, workspace_id, digest)
                if known is None:
                    continue
                suffix = ".0123456789abcdef"
                old, new = known.object_key, blobs.object_key(workspace_id, digest, suffix)
                plain.put_object(Bucket=source.s3_bucket, Key=new, Body=CONTENT)
                assert blobs.move(db, workspace_id, known, suffix)
                plain.delete_object(Bucket=source.s3_bucket, Key=old)
                moved.append((workspace_id, old, new))
        copy_objects(backup, file)

    monkeypatch.setattr(Backup, "_copy_objects", move_then_copy)
    try:
        assert back_up(source, tmp_path).lost == []
        assert (tmp_path / object_name(digest)).read_bytes() == CONTENT
        assert moved
    finally:
        for workspace_id, old, new in moved:
            plain.put_object(Bucket=source.s3_bucket, Key=old, Body=CONTENT)
            plain.delete_object(Bucket=source.s3_bucket, Key=new)
            with database.transaction(workspace_id) as db:
                current = blobs.find(db, workspace_id, digest)
                assert blobs.move(db, workspace_id, current, blobs.suffix_of(old))
        database.close()
        plain.close()


def test_backup_keeps_objects_that_are_swept_beside_and_after_it(
    servers, source, written, tmp_path, monkeypatch
):
    """Points are deleted after the dump: their objects stay until they are copied, and no longer."""
    api, _ = written
    content, copy_objects = b"deleted during a backup", Backup._copy_objects
    experiment = api.new_experiment(images("image", [0], [[content]]), name="deleted")
    postponed = []

    def delete_then_copy(backup, file):
        series = {"run": "train", "tag": "image"}
        answer = api.request("DELETE", f"/experiments/{experiment}/series", params=series)
        assert answer.status_code == 204, answer.text
        with pytest.raises(StartupError, match="a backup runs") as error:
            sweep(source)
        postponed.append(error)
        copy_objects(backup, file)

    monkeypatch.setattr(Backup, "_copy_objects", delete_then_copy)
    assert back_up(source, tmp_path).lost == []
    assert postponed
    assert sweep(source).blobs == 1
    with empty_service(servers) as restored:
        restore(restored, tmp_path)
        assert check(restored).damage == []
        with TestClient(create_app(restored)) as client:
            older = ApiClient(client, api.headers["Authorization"].removeprefix("Bearer "))
            values = older.get(experiment, "blob_sequences/data")["train"]["image"]["values"]
            assert older.request("GET", f"/blobs/{values[0][0]['key']}").content == content


def sweep(settings):
    return maintenance.sweep_objects(settings, 0.0, Progress(None), deletes=True)


def test_interrupted_backup_is_no_backup(source, tmp_path, maintenance_command):
    target, metrics = tmp_path / "backup", tmp_path / "tbhub.prom"
    url = source.backup_database_url.get_secret_value()
    environment = environment_of(source) | {"TBHUB_BACKUP_DATABASE_URL": url}
    with (tmp_path / "said").open("wb") as said:
        arguments = ["backup", str(target), "--rate", "0.01"]
        process = zygote.fork("tbservice", arguments, environment, said.fileno())
    wait_until(lambda: list(target.rglob("database.dump.part")))
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 1
    assert "there is no new backup" in (tmp_path / "said").read_text()
    assert list(target.rglob("*.part")) == []

    run = maintenance_command(source)
    assert run("restore", target, "--list") == (0, "", "")
    code, out, said = run("backup", target, "--quiet", "--metrics-file", metrics)
    assert (code, said) == (0, "")
    assert "\ntbhub_last_backup_timestamp_seconds 1" in metrics.read_text()
    name = out.partition(":")[0]
    assert run("restore", target, "--list") == (0, f"{name}\n", "")
    code, out, _ = run("restore", target, "--check")
    assert (code, out.startswith(f"{name}: sound; ")) == (0, True)

    # It records itself, and the one that was interrupted did not.
    last = json.loads(run("check", "--no-objects", "--quiet", "--json")[1])["last_backup"]
    manifest = json.loads((target / "backups" / name / "manifest.json").read_text())
    assert (last["name"], last["target"], last["lost"]) == (name, str(target), 0)
    assert last["bytes"] == manifest["database"]["bytes"] + manifest["object_bytes"]
    assert last["kept_until"] is None
    assert last["began_at"].rstrip("Z") == manifest["started_at"].removesuffix("+00:00")
    assert f"last backup: {name} in {target}, begun " in run("check", "--no-objects", "--quiet")[1]


def test_backup_that_cannot_run_ends_with_2(source, tmp_path, maintenance_command, monkeypatch):
    run = maintenance_command(source)
    (tmp_path / "file").write_text("")
    for arguments, said in (
        (("backup", tmp_path / "file"), "cannot be written: Not a directory"),
        (("backup", f"s3://{source.s3_bucket}/x"), "another bucket"),
        (("restore", tmp_path / "none"), "no complete backup"),
        (("restore", tmp_path / "none", "--check"), "no complete backup"),
        (("backup", tmp_path / "backup", "--data-dir", tmp_path / "none"), "no data directory"),
    ):
        code, _, error = run(*arguments)
        assert (code, said in error) == (2, True), error
    assert [each.name for each in tmp_path.iterdir()] == ["file"]

    # It is complete, and not reported: who watches the file is told of no backup.
    assert run("backup", tmp_path / "backup", "--metrics-file", tmp_path / "file" / "x")[0] == 1
    code, _, error = run("restore", tmp_path / "backup")
    assert (code, "the database is not empty" in error) == (2, True)
    monkeypatch.setattr(maintenance, "_list_programs", list)
    monkeypatch.setattr("tbservice.backup.client_programs._INSTALLED", ())
    monkeypatch.setenv("PATH", "")
    for arguments in (("--check",), ("--keep-objects",)):
        code, _, error = run("restore", tmp_path / "backup", *arguments)
        assert (code, "pg_restore of PostgreSQL 18 or newer is needed" in error) == (2, True)


def test_dump_has_no_secret_in_clear(written, backup):
    api, _ = written
    target, manifest = backup
    token = api.headers["Authorization"].removeprefix("Bearer ")
    programs = maintenance._list_programs()[0]
    dump = target / manifest.database.name
    text = run_to_end([programs / "pg_restore", "--file=-", dump], check=True).stdout
    assert hashlib.sha256(token.encode()).hexdigest() in text
    assert token not in text
    assert dump.stat().st_mode & 0o077 == 0


def test_restore_erases_again_what_was_erased_since(servers, shared_application, source, tmp_path):
    url = source.database_url.get_secret_value()
    home, doomed = new_workspace(url), new_workspace(url)
    api, other = (ApiClient(shared_application, each.owner_token) for each in (home, doomed))
    stays, goes, waits = (api.new_experiment(name=name) for name in ("stays", "goes", "waits"))
    gone = other.new_experiment(name="gone")
    kept = make_link(api, goes, frozen=True)
    api.request("DELETE", f"/experiments/{waits}").raise_for_status()
    with closing(Database(url, 2)) as database:
        person = new_person(database, "erased@example.org", "Erased Person")
        before = back_up(source, tmp_path)
        for experiment in (goes, waits):
            if experiment == waits:
                api.request("POST", f"/experiments/{waits}/restore").raise_for_status()
            query = "final=true&keep_frozen_links=true"
            api.request("DELETE", f"/experiments/{experiment}?{query}").raise_for_status()
        name = delete_workspace_and_person(database, doomed.workspace_id, person)
    erase_all(servers, url)
    back_up(source, tmp_path)

    with empty_service(servers) as restored:
        erased = {"experiment": 3, "person": 1, "workspace": 1}
        assert restore_and_erase(restored, tmp_path, before.name) == (before, erased)
        with TestClient(create_app(restored)) as client:
            statuses = [
                ApiClient(client, token).request("GET", f"/experiments/{each}").status_code
                for token, each in (
                    *((home.owner_token, each) for each in (stays, goes, waits)),
                    (kept["token"], target_of(kept)),
                    (doomed.owner_token, gone),
                )
            ]
            assert statuses == [200, 404, 404, 200, 404]
        restored_url = restored.database_url.get_secret_value()
        with closing(Database(restored_url, 2)) as database:
            with database.transaction() as db, pytest.raises(Forbidden, match="is deleted"):
                people.require_enabled(db, person.user_id)
            with database.transaction() as db:
                assert [each.name for each in workspaces.list_deleted(db)] == [name]
        erase_all(servers, restored_url)
        again = restore_and_erase(restored, tmp_path, before.name, erases_only=True)
        assert again == (before, {})


def test_restore_deletes_runs_and_series_again(servers, shared_application, source, tmp_path):
    home = new_workspace(source.database_url.get_secret_value())
    api = ApiClient(shared_application, home.owner_token)
    experiment = api.new_experiment()
    path, long = f"/experiments/{experiment}", "long/" + "x" * 500

    def upload(run, file="1"):
        series = (scalars("loss", [1]), scalars(f"a\ttag {long}", [1]))
        api.write(experiment, segment(stream(run, file), 0, 9, *series))

    def delete(kind, **names):
        api.request("DELETE", f"{path}/{kind}", params=names).raise_for_status()

    for run in ("kept", "gone", "came back", "before", long):
        upload(run)
    delete("runs", run="before")
    delete("runs/deleted", run="before")
    upload("before", "2")
    before = back_up(source, tmp_path)
    for run in ("gone", "came back", long):
        delete("runs", run=run)
    delete("series", run="kept", tag=f"a\ttag {long}")
    delete("runs/deleted", run="came back")
    back_up(source, tmp_path)

    with empty_service(servers) as restored:
        _, erased = restore_and_erase(restored, tmp_path, before.name)
        assert erased == {"run": 3, "series": 1}
        with TestClient(create_app(restored)) as client:
            api = ApiClient(client, home.owner_token)
            shown = {run: set(tags) for run, tags in api.get(experiment, "scalars").items()}
            assert shown == {"before": {f"a\ttag {long}", "loss"}, "kept": {"loss"}}
            upload("came back", "3")
            sent = api.send(experiment, segment(stream("gone", "4"), 0, 9, scalars("loss", [1])))
            assert sent.json()["code"] == "run_deleted"
        again = restore_and_erase(restored, tmp_path, before.name, erases_only=True)
        assert again == (before, {})  # also not what was uploaded since to a run of before


def test_workspace_erased_during_a_backup_is_erased_again(
    servers, shared_application, source, tmp_path, monkeypatch
):
    url = source.database_url.get_secret_value()
    doomed = new_workspace(url)
    api = ApiClient(shared_application, doomed.owner_token)
    gone, copy_objects = api.new_experiment(name="gone"), Backup._copy_objects

    def erase_then_copy(backup, file):
        with closing(Database(url, 2)) as database, database.transaction() as db:
            name = workspaces.get_name(db, doomed.workspace_id)
            deletion.delete_any_workspace(db, doomed.workspace_id, name, is_final=True)
        erase_all(servers, url)
        copy_objects(backup, file)

    with monkeypatch.context() as patched:
        patched.setattr(Backup, "_copy_objects", erase_then_copy)
        before = back_up(source, tmp_path)
    assert api.request("GET", f"/experiments/{gone}").status_code in (401, 404)
    back_up(source, tmp_path)
    with empty_service(servers) as restored:
        _, erased = restore_and_erase(restored, tmp_path, before.name)
        assert erased == {"experiment": 1, "workspace": 1}
        with TestClient(create_app(restored)) as client:
            answer = ApiClient(client, doomed.owner_token).request("GET", f"/experiments/{gone}")
            assert answer.status_code == 404


def delete_workspace_and_person(database, workspace_id, person):
    """Delete both for good; return the name of the workspace."""
    with database.transaction() as db:
        name = workspaces.get_name(db, workspace_id)
        deletion.delete_any_workspace(db, workspace_id, name, is_final=True)
        deletion.delete_person(db, person.user_id, is_final=True)
    return name


def erase_all(servers, url):
    """Erase all that is deleted for good, as if its time had come."""
    with psycopg.connect(servers.owner_url(url)) as db:
        db.execute("UPDATE suspensions SET erase_at = now() - interval '1 s'")
    with closing(Database(url, 2)) as database:
        for _ in range(4):
            contextvars.Context().run(erase_due, database, threading.Event())


def test_restored_number_of_a_workspace_is_not_erased(servers, source, tmp_path):
    before = back_up(source, tmp_path)
    url = source.database_url.get_secret_value()
    with closing(Database(url, 2)) as database, database.transaction() as db:
        workspace_id = workspaces.create_workspace(db, "created and erased since")
        deletion.delete_any_workspace(db, workspace_id, "created and erased since", is_final=True)
    erase_all(servers, url)
    back_up(source, tmp_path)
    with empty_service(servers) as restored:
        restore_and_erase(restored, tmp_path, before.name)
        restored_url = restored.database_url.get_secret_value()
        with closing(Database(restored_url, 2)) as database, database.transaction() as db:
            assert workspaces.create_workspace(db, "another") == workspace_id
        again = restore_and_erase(restored, tmp_path, before.name, erases_only=True)
        assert again == (before, {})
