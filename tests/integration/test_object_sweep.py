"""`tbservice sweep-objects`, and the service itself, delete what nothing refers to while they run."""

from __future__ import annotations

import hashlib
import threading

import psycopg
import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from support.batches import ApiClient, images, segment, stream
from support.servers import database_name, new_workspace, s3_client
from tbservice import metrics
from tbservice.db.database import Database
from tbservice.db.migrate import upgrade
from tbservice.errors import Unavailable
from tbservice.experiments.eraser import erase_due
from tbservice.ingest import blobs as ingest_blobs
from tbservice.ingest import string_lengths
from tbservice.integrity.check import CheckOptions
from tbservice.integrity.tables import unused_blobs
from tbservice.objects.tables import blobs, object_references
from tbservice.server.app import create_app
from tbservice.server.maintenance import check_service, sweep_objects
from tbservice.throttle import Progress, Throttle

pytestmark = pytest.mark.own_database

KEPT, SHARED, DELETED, RESTORABLE = b"kept", b"shared", b"deleted", b"restorable"


def sweep(settings, days=0.0, *, deletes=True):
    return sweep_objects(settings, days, Progress(None), deletes=deletes)


def write(api, *contents, experiment=None):
    """Write these images to an experiment, or to a new one; return its id."""
    experiment = experiment or api.new_experiment()
    sent = images("image", range(len(contents)), [[content] for content in contents])
    api.write(experiment, segment(stream(), 0, 1, sent))
    return experiment


def delete_series(api, experiment):
    series = {"run": "train", "tag": "image"}
    answer = api.request("DELETE", f"/experiments/{experiment}/series", params=series)
    assert answer.status_code == 204, answer.text


def digests(plain, settings):
    listed = plain.list_objects_v2(Bucket=settings.s3_bucket).get("Contents", [])
    return {item["Key"].rpartition("/")[2].partition(".")[0] for item in listed}


def sha(*contents):
    return {hashlib.sha256(content).hexdigest() for content in contents}


def check(settings):
    findings, _ = check_service(
        settings, CheckOptions(reads_content=True), Throttle(None), Progress(None), lambda _: None
    )
    return findings


@pytest.fixture
def plain(settings):
    client = s3_client(settings)
    yield client
    client.close()


@pytest.fixture
def service(settings):
    with TestClient(create_app(settings)) as client:
        yield client


@pytest.fixture
def workspace(database_url):
    return new_workspace(database_url)


@pytest.fixture
def api(service, workspace):
    return ApiClient(service, workspace.owner_token)


def test_sweep_deletes_what_nothing_refers_to(
    servers, settings, database_url, maintenance_command, plain, workspace, api
):
    kept = write(api, KEPT, SHARED)
    assert api.request("DELETE", f"/experiments/{write(api, RESTORABLE)}").status_code == 204
    gone = write(api, SHARED, DELETED)
    with servers.instance.postgres.connect_as_superuser(database_name(database_url)) as db:
        db.execute(
            "UPDATE experiments SET deleted_at = now(), erase_at = now(), is_listed = false "
            "WHERE experiment_id = %s",
            [gone],
        )
    database = Database(database_url, 2)
    while erase_due(database, threading.Event()):
        pass
    database.close()
    orphan = f"{workspace.workspace_id}/{'0' * 64}"
    plain.put_object(Bucket=settings.s3_bucket, Key=orphan, Body=b"refused")
    everything = sha(KEPT, SHARED, RESTORABLE, DELETED) | {"0" * 64}

    young = sweep(settings, 1.0)
    assert (young.blobs, young.orphans) == (0, 0)
    counted = sweep(settings, deletes=False)
    assert (counted.blobs, counted.blob_bytes) == (1, len(DELETED))
    assert (counted.orphans, counted.orphan_bytes) == (1, len(b"refused"))
    assert digests(plain, settings) == everything
    code, out, _ = maintenance_command(settings)("sweep-objects", "--delete", "--older-than", 0)
    said = "1 blobs (7 bytes) that no point refers to, and 1 objects (7 bytes) without a row"
    assert (code, out) == (0, f"{said}: deleted\n")
    assert digests(plain, settings) == sha(KEPT, SHARED, RESTORABLE)
    assert sweep(settings).objects == 0

    findings = check(settings)
    assert (findings.damage, findings.looked.blobs) == ([], 3)
    again = write(api, DELETED)  # what was deleted can be uploaded again
    for experiment, content in ((kept, KEPT), (again, DELETED)):
        steps = api.get(experiment, "blob_sequences/data")["train"]["image"]["values"]
        assert api.request("GET", f"/blobs/{steps[0][0]['key']}").content == content


def test_service_sweeps_every_workspace_that_is_due(settings, database_url, plain):
    settings = settings.model_copy(update={"sweep_older_than_days": 0.0})
    with TestClient(create_app(settings)) as client:
        apis = [ApiClient(client, new_workspace(database_url).owner_token) for _ in range(2)]
        for number, api in enumerate(apis):
            delete_series(api, write(api, KEPT, b"%d" % number))
        sweeper, before = client.app.state.sweeper, figures()
        assert sweeper.sweep_due().blobs == 4
        assert digests(plain, settings) == set()
        swept = [each - count for each, count in zip(figures(), before, strict=True)]
        assert swept == [4, 10]
        delete_series(apis[0], write(apis[0], KEPT))
        assert sweeper.sweep_due().objects == 0  # not before a day has passed
        assert digests(plain, settings) == sha(KEPT)


def figures():
    names = ("tbhub_swept_objects_total", "tbhub_swept_object_bytes_total")
    return [metrics.REGISTRY.get_sample_value(name) for name in names]


def test_sweep_waits_until_database_requires_it(
    settings, owner_url, service, api, plain, maintenance_command
):
    with psycopg.connect(owner_url) as db:
        db.execute("UPDATE alembic_version SET required_revision = '0013_compressed_blocks'")
    delete_series(api, write(api, DELETED))
    assert service.app.state.sweeper.sweep_due().objects == 0
    code, _, error = maintenance_command(settings)("sweep-objects", "--delete", "--older-than", 0)
    assert (code, "migrate --sweep-objects" in error) == (2, True)
    assert digests(plain, settings) == sha(DELETED)
    upgrade(owner_url, sweep_objects=True)
    assert sweep(settings).blobs == 1


def test_sweep_that_was_killed_is_completed_by_next(settings, api, plain, monkeypatch):
    """It is killed between the rows and their objects, which the next one finds by their keys."""
    delete_series(api, write(api, KEPT, DELETED))
    with monkeypatch.context() as patched:
        patched.setattr("tbservice.objects.object_store.ObjectStore.delete", interrupt)
        with pytest.raises(KeyboardInterrupt):
            sweep(settings)
    assert digests(plain, settings) == sha(KEPT, DELETED)
    swept = sweep(settings)
    assert (swept.blobs, swept.orphans) == (0, 2)
    assert digests(plain, settings) == set()


def interrupt(*_arguments):
    raise KeyboardInterrupt


def at_step(monkeypatch, module, name, act):
    """Call `act` once, before the function of this name runs the next time."""
    function = getattr(module, name)

    def acting(*arguments, **more):
        monkeypatch.setattr(module, name, function)
        act()
        return function(*arguments, **more)

    monkeypatch.setattr(module, name, acting)


@pytest.mark.parametrize("step", ["condemn", "list_references", "delete_condemned"])
def test_blob_sent_again_during_sweep_is_kept(settings, api, monkeypatch, step):
    delete_series(api, write(api, KEPT))

    def send_again():
        write(api, KEPT)

    at_step(monkeypatch, unused_blobs, step, send_again)
    sweep(settings)
    findings = check(settings)
    assert (findings.damage, findings.looked.blobs, findings.looked.orphans) == ([], 1, 0)


def test_batch_whose_blob_is_swept_meanwhile_is_sent_again(settings, api, monkeypatch):
    """The sweep comes between the look at the object and the transaction of the batch."""
    delete_series(api, write(api, KEPT))
    experiment = api.new_experiment()
    at_step(monkeypatch, string_lengths, "check_string_lengths", lambda: sweep(settings))
    with pytest.raises(AssertionError, match="send the batch again"):
        write(api, KEPT, experiment=experiment)
    write(api, KEPT, experiment=experiment)
    assert (check(settings).damage, check(settings).looked.blobs) == ([], 1)


def test_object_of_upload_that_counts_as_ended_is_not_recorded(
    settings, database_url, workspace, api, plain, monkeypatch
):
    """A request is suspended between its object and its row until both count as left behind."""

    def forget_uploads():
        database = Database(database_url, 1)
        with database.transaction(workspace.workspace_id) as db:
            assert sweep(settings).objects == 0  # it is still in progress
            db.execute(text("DELETE FROM blob_uploads"))
        assert sweep(settings).orphans == 1
        database.close()

    at_step(monkeypatch, ingest_blobs, "_record", forget_uploads)
    with pytest.raises(AssertionError, match="try again"):
        write(api, KEPT)
    assert digests(plain, settings) == set()
    write(api, KEPT)
    assert (check(settings).damage, digests(plain, settings)) == ([], sha(KEPT))


def test_damaged_object_is_replaced_under_new_key(settings, api, plain):
    write(api, KEPT)
    (before,) = plain.list_objects_v2(Bucket=settings.s3_bucket)["Contents"]
    plain.put_object(Bucket=settings.s3_bucket, Key=before["Key"], Body=b"KEPT")
    experiment, path = api.new_experiment(), f"blobs/{next(iter(sha(KEPT)))}"
    url = f"/experiments/{experiment}/{path}"
    assert api.request("PUT", url, content=KEPT).status_code == 204
    (after,) = plain.list_objects_v2(Bucket=settings.s3_bucket)["Contents"]
    assert after["Key"] != before["Key"]
    assert api.request("PUT", url, content=KEPT).status_code == 204  # sound: it is not stored again
    (again,) = plain.list_objects_v2(Bucket=settings.s3_bucket)["Contents"]
    assert (again["Key"], check(settings).damage) == (after["Key"], [])


@pytest.mark.plain("a cluster has no backups")
def test_sweep_leaves_rows_alone_while_backup_runs(settings, database_url, api, plain):
    delete_series(api, write(api, KEPT))
    database = Database(database_url, 1)
    with database.transaction() as db:
        object_references.lock_out_deletion(db)
        with pytest.raises(Exception, match="a backup runs"):
            sweep(settings)
        assert digests(plain, settings) == sha(KEPT)
    database.close()
    assert sweep(settings).blobs == 1


def test_copy_of_blob_that_is_swept_meanwhile_fails(settings, database_url, workspace, api):
    """A copy that began before the points were erased must not commit references to their blobs."""
    experiment = write(api, KEPT)
    database = Database(database_url, 2)

    def copy():
        with database.copying(workspace.workspace_id) as db:
            series = list(db.execute(text("SELECT series_id FROM time_series")).scalars())
            held = object_references.list_all_digests(db, experiment, series)
            delete_series(api, experiment)
            assert sweep(settings).blobs == 1
            blobs.hold(db, workspace.workspace_id, held)

    with pytest.raises(Unavailable):
        copy()
    database.close()
