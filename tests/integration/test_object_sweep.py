"""`tbservice sweep-objects` deletes what nothing refers to, and nothing while somebody may upload."""

from __future__ import annotations

import hashlib
import threading

import pytest
from starlette.testclient import TestClient

from support.batches import ApiClient, images, segment, stream
from support.servers import database_name, new_workspace, s3_client
from tbservice.db.database import Database
from tbservice.experiments.eraser import erase_due
from tbservice.integrity.check import CheckOptions
from tbservice.integrity.tables import object_sweep
from tbservice.server.app import create_app
from tbservice.server.maintenance import check_service, sweep_objects
from tbservice.throttle import Progress, Throttle

pytestmark = pytest.mark.own_database

KEPT, SHARED, DELETED, RESTORABLE = b"kept", b"shared", b"deleted", b"restorable"


def sweep(settings, days=0.0, *, deletes=True):
    return sweep_objects(settings, days, Progress(None), deletes=deletes)


def write(api, *contents):
    """Write an experiment with these images; return its id."""
    experiment = api.new_experiment()
    sent = images("image", range(len(contents)), [[content] for content in contents])
    api.write(experiment, segment(stream(), 0, 1, sent))
    return experiment


def digests(plain, settings):
    listed = plain.list_objects_v2(Bucket=settings.s3_bucket).get("Contents", [])
    return {item["Key"].rpartition("/")[2] for item in listed}


def sha(*contents):
    return {hashlib.sha256(content).hexdigest() for content in contents}


def test_sweep_deletes_what_nothing_refers_to(servers, settings, database_url, maintenance_command):
    plain = s3_client(settings)
    workspace = new_workspace(database_url)
    with TestClient(create_app(settings)) as client:
        api = ApiClient(client, workspace.owner_token)
        kept = write(api, KEPT, SHARED)
        assert api.request("DELETE", f"/experiments/{write(api, RESTORABLE)}").status_code == 204
        gone = write(api, SHARED, DELETED)
        database = Database(database_url, 2)
        with servers.instance.postgres.connect_as_superuser(database_name(database_url)) as db:
            db.execute(
                "UPDATE experiments SET deleted_at = now(), erase_at = now(), is_listed = false "
                "WHERE experiment_id = %s",
                [gone],
            )
        while erase_due(database, threading.Event()):
            pass
        database.close()
        code, _, error = maintenance_command(settings)("sweep-objects", "--delete")
        assert (code, "other sessions use the database" in error) == (2, True)
        assert sweep(settings, deletes=False).blobs == 1  # counting needs no stop
    orphan = f"{workspace.workspace_id}/{'0' * 64}"
    plain.put_object(Bucket=settings.s3_bucket, Key=orphan, Body=b"refused")
    everything = sha(KEPT, SHARED, RESTORABLE, DELETED) | {"0" * 64}

    young = sweep(settings, 1.0)
    assert (young.blobs, young.orphans) == (0, 0)
    counted = sweep(settings, deletes=False)
    assert (counted.blobs, counted.blob_bytes) == (1, len(DELETED))
    assert (counted.orphans, counted.orphan_bytes) == (1, len(b"refused"))
    assert digests(plain, settings) == everything
    assert sweep(settings) == counted
    assert digests(plain, settings) == sha(KEPT, SHARED, RESTORABLE)
    assert sweep(settings).blobs == 0

    findings, _ = check_service(
        settings, CheckOptions(reads_content=True), Throttle(None), Progress(None), lambda _: None
    )
    assert (findings.damage, findings.looked.blobs) == ([], 3)
    with TestClient(create_app(settings)) as client:
        api = ApiClient(client, workspace.owner_token)
        again = write(api, DELETED)  # what was deleted can be uploaded again
        for experiment, content in ((kept, KEPT), (again, DELETED)):
            steps = api.get(experiment, "blob_sequences/data")["train"]["image"]["values"]
            assert api.request("GET", f"/blobs/{steps[0][0]['key']}").content == content
    plain.close()


def test_sweep_counts_sessions_of_other_roles(servers, database_url):
    """A role without special rights sees little of them: neither their kind nor their query."""
    database = Database(database_url, 1)
    with database.transaction() as db:
        before = object_sweep._count_others(db)
        with servers.instance.postgres.connect_as_superuser(database_name(database_url)):
            assert (before, object_sweep._count_others(db)) == (0, 1)
    database.close()


def test_sweep_that_was_killed_is_completed_by_next(settings, database_url, monkeypatch):
    """It is killed between the objects and the rows of a workspace."""
    plain = s3_client(settings)
    with TestClient(create_app(settings)) as client:
        api = ApiClient(client, new_workspace(database_url).owner_token)
        experiment = write(api, KEPT, DELETED)
        series = {"run": "train", "tag": "image"}
        answer = api.request("DELETE", f"/experiments/{experiment}/series", params=series)
        assert answer.status_code == 204, answer.text
    with monkeypatch.context() as patched:
        patched.setattr("tbservice.integrity.tables.object_sweep.delete_blobs", interrupt)
        with pytest.raises(KeyboardInterrupt):
            sweep(settings)
    assert digests(plain, settings) == set()
    assert sweep(settings).blobs == 2
    assert sweep(settings).blobs == 0
    plain.close()


def interrupt(*_arguments):
    raise KeyboardInterrupt
