"""Receipts of deletion: they say what the tables and the bucket confirm, and nothing before."""

from __future__ import annotations

import contextvars
import json
import threading
from contextlib import closing, contextmanager
from datetime import datetime, timedelta

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr
from sqlalchemy import text

from support.batches import ApiClient, images, scalars, segment, stream
from support.page_forms import new_reader
from support.people import new_member, new_personal_token
from support.servers import s3_client
from tbservice.audit.acts import Act
from tbservice.audit.log import check_chains
from tbservice.audit.recording import record
from tbservice.audit.signatures import NotGenuine, generate_key, list_public_keys, verify
from tbservice.audit.tables import audit_records
from tbservice.experiments import run_deletion
from tbservice.experiments.eraser import erase_due
from tbservice.experiments.tables import erased_series
from tbservice.integrity.sweeper import sweep_now
from tbservice.server.app import create_app
from tbservice.throttle import Progress
from tbservice.types.audit import AuditFilter, AuditRecord, Receipt
from tbservice.types.grants import AdminGrant, Scope
from tbservice.types.people import Role


@pytest.fixture
def owner(client, database, workspace_id):
    """The API for a person who owns the workspace."""
    person = new_member(database, workspace_id, Role.OWNER)
    return ApiClient(client, new_personal_token(database, workspace_id, person, Scope.ADMIN))


@pytest.fixture
def erased(api, database):
    """The id of an experiment with an image that was deleted for good, and erased."""
    experiment = api.new_experiment(name="secret trial")
    sent = scalars("loss", range(9)), images("cat", [0], [[b"png" * 999]])
    api.write(experiment, segment(stream(), 0, 9, *sent))
    api.request("DELETE", f"/experiments/{experiment}?final=true").raise_for_status()
    while contextvars.Context().run(erase_due, database, threading.Event()):
        pass
    return experiment


@pytest.fixture
def receipts(owner, workspace_id):
    """Returns the receipts of the workspace."""
    return lambda: owner.request("GET", f"/workspaces/{workspace_id}/receipts").json()["receipts"]


@pytest.fixture
def sweep(client, database):
    """Sweeps objects that are older than so many days."""

    def sweep(days):
        objects = client.app.state.objects
        call = (database, objects, days, Progress(None))
        return contextvars.Context().run(sweep_now, *call, deletes=True)

    return sweep


@pytest.fixture
def count_objects(settings, workspace_id):
    """Counts the workspace's objects in the bucket."""

    def count():
        with closing(s3_client(settings)) as plain:
            prefix = f"{workspace_id}/"
            return plain.list_objects_v2(Bucket=settings.s3_bucket, Prefix=prefix)["KeyCount"]

    return count


def test_receipt_says_when_tables_and_bucket_have_nothing(
    database, workspace_id, erased, receipts, sweep, count_objects
):
    (receipt,) = receipts()
    assert (receipt["experiment_id"], receipt["name"]) == (erased, "secret trial")
    assert receipt["points"] == 10
    # Two series, two tags, a run, a stream, an image's point and its object.
    told = [receipt[name] for name in ("rows", "objects", "object_bytes")]
    assert told == [8, 1, 2997]
    assert receipt["deleted_at"] < receipt["erased_at"]
    assert (receipt["objects_gone_at"], receipt["backups_until"]) == (None, None)
    assert count_objects() == 1

    sweep(0.0)
    (receipt,) = receipts()
    assert count_objects() == 0
    assert receipt["objects_gone_at"] > receipt["erased_at"]
    assert receipt["swept"]["details"]["objects"] == 1
    assert list(check_chains(database, [workspace_id])) == []


@pytest.fixture
def signing(settings):
    """Runs the service with these keys of receipts, while the block lasts."""

    @contextmanager
    def run(keys):
        changed = settings.model_copy(update={"receipt_keys": SecretStr(keys)})
        with TestClient(create_app(changed)) as client:
            yield client

    return run


def test_signed_receipt_is_verified_by_everybody(
    database, owner, workspace_id, erased, signing, tmp_path, run_tbservice
):
    """Also after another key has taken its place."""
    (old, old_public), (new, new_public) = (generate_key() for _ in range(2))
    token = owner.headers["Authorization"].removeprefix("Bearer ")
    with signing(old) as client:
        api = ApiClient(client, token)
        (receipt,) = api.request("GET", f"/workspaces/{workspace_id}/receipts").json()["receipts"]
        first = client.get("/api/v1/receipt-keys").json()
        page = new_reader(client, database, new_member(database, workspace_id, Role.OWNER))
        number = receipt["erased"]["number"]
        downloaded = page.get(f"/workspace/{workspace_id}/receipts/{number}").json()
    assert (receipt["experiment_id"], receipt["issuer"]) == (erased, "http://testserver")
    assert verify(receipt, first) == verify(downloaded, first) == first["keys"][0]["kid"]

    with signing(f"{new},{old_public}") as client:
        keys = client.get("/api/v1/receipt-keys").json()
        api = ApiClient(client, token)
        (again,) = api.request("GET", f"/workspaces/{workspace_id}/receipts").json()["receipts"]
    assert [each["kid"] for each in keys["keys"]] == [
        list_public_keys(SecretStr(new_public))["keys"][0]["kid"],
        first["keys"][0]["kid"],
    ]
    assert (verify(again, keys), verify(receipt, keys)) == tuple(
        each["kid"] for each in keys["keys"]
    )

    files = {}
    changed = {**receipt, "points": 11}
    lines = "\n".join(map(json.dumps, (receipt, again)))
    for name, content in {
        "keys": json.dumps(keys),
        "page": json.dumps({"receipts": [receipt, again]}),
        "lines": lines,
        "changed": f"{json.dumps(changed)}\n{lines}",
        "unsigned": json.dumps({**receipt, "signature": None}),
    }.items():
        files[name] = tmp_path / name
        files[name].write_text(content)
    for name, code in (("page", 0), ("lines", 0), ("changed", 1), ("unsigned", 1)):
        ended, said, _ = run_tbservice("verify-receipt", files[name], "--keys", files["keys"])
        assert (ended, sum(line.startswith("genuine") for line in said)) == (
            code,
            0 if name == "unsigned" else 2,
        ), name
    with pytest.raises(NotGenuine, match="not one of these"):
        verify(again, first)
    other = again["signature"].rpartition(".")[2]
    forged = receipt["signature"].rpartition(".")[0] + "." + other
    with pytest.raises(NotGenuine, match="not of this key"):
        verify({**receipt, "signature": forged}, keys)


def test_receipt_counts_rows_only_of_an_erasure_of_one_process(
    api, database, experiment, receipts, monkeypatch
):
    monkeypatch.setattr("tbservice.experiments.eraser.ERASE_TRANSACTION_ITEMS_MAX", 2)
    api.write(experiment, segment(stream(), 0, 9, scalars("loss", [1]), scalars("b", [1])))
    api.request("DELETE", f"/experiments/{experiment}?final=true").raise_for_status()
    stopping = threading.Event()
    stopping.set()
    contextvars.Context().run(erase_due, database, stopping)  # its first rows
    contextvars.Context().run(erase_due, database, threading.Event())
    (receipt,) = receipts()
    assert (receipt["rows"], receipt["objects"], receipt["points"]) == (None, None, 2)


@pytest.fixture
def parted(api, experiment):
    """The path of an experiment with a run of two series, one of images, and another run."""
    sent = scalars("loss", range(9)), images("cat", [0, 1], [[b"png" * 9], [b"other"]])
    api.write(experiment, segment(stream(), 0, 9, *sent))
    kept = scalars("loss", range(5)), images("cat", [0], [[b"png" * 9]])
    api.write(experiment, segment(stream("kept"), 0, 9, *kept))
    return f"/experiments/{experiment}"


def test_runs_and_series_have_receipts(
    api, client, database, workspace_id, parted, receipts, sweep, count_objects
):
    series = {"run": "train", "tag": "cat"}
    api.request("DELETE", f"{parted}/series", params=series).raise_for_status()
    api.request("DELETE", f"{parted}/runs", params={"run": "train"}).raise_for_status()
    told = ("kind", "run", "tag", "points", "bytes", "objects", "object_bytes", "objects_gone_at")
    assert [tuple(each[name] for name in told) for each in receipts()] == [
        ("run", "train", None, 9, 108, 0, 0, None),
        ("series", "train", "cat", 2, 0, 2, 32, None),
    ]
    with database.snapshot(workspace_id) as db:
        left = db.execute(text("SELECT count(*) FROM blob_points")).scalar_one()
        assert (left, erased_series.are_left(db, parted.rpartition("/")[2])) == (1, False)
    assert count_objects() == 2

    sweep(0.0)
    assert count_objects() == 1  # the other run has the image, too
    run, _ = receipts()
    assert run["deleted_at"] < run["erased_at"] < run["objects_gone_at"]
    page = new_reader(client, database, new_member(database, workspace_id, Role.OWNER))
    address = f"/workspace/{workspace_id}/receipts"
    assert "Series <bdi>train</bdi>, <bdi>cat</bdi> of" in page.get(address).text
    assert json.loads(page.get(f"{address}/{run['erased']['number']}").text)["run"] == "train"
    assert list(check_chains(database, [workspace_id])) == []


@pytest.mark.usefixtures("parted")
def test_receipt_of_run_waits_for_its_last_point(database, workspace_id, experiment, receipts):
    grant = AdminGrant(workspace_id, experiment)
    with database.transaction(grant) as db:  # as a process that is killed then
        run_deletion.delete_run(db, grant, "train")
    with database.transaction(workspace_id) as db:
        assert not run_deletion.erase_some(db, workspace_id, experiment, 1)
    assert receipts() == []
    with database.transaction(grant) as deleting:  # of more, while the first is erased
        erased_series.erase_some(deleting, experiment, 1_000)
        with database.transaction(workspace_id) as db:
            assert run_deletion.erase_some(db, workspace_id, experiment, 1_000)
    assert receipts() == []  # it did not see what the other had not committed yet
    contextvars.Context().run(erase_due, database, threading.Event())
    run_deletion.erase_points(database, grant)
    assert [each["run"] for each in receipts()] == ["train"]
    run_deletion.erase_points(database, grant)
    assert len(receipts()) == 1


def test_sweep_of_older_objects_proves_nothing(erased, receipts, sweep):
    assert sweep(1.0).objects == 0
    (receipt,) = receipts()
    assert (receipt["experiment_id"], receipt["objects_gone_at"]) == (erased, None)


@pytest.mark.usefixtures("erased")
def test_sweeps_without_news_are_not_recorded(database, workspace_id, sweep):
    for _ in range(3):
        sweep(0.0)
    with database.snapshot(workspace_id) as db:
        wanted = AuditFilter(Act.OBJECTS_SWEEP)
        assert len(audit_records.list_page(db, workspace_id, wanted, None, 9)) == 1


def test_receipt_is_shown_and_downloaded_by_owners(
    client, database, workspace_id, erased, receipts
):
    page = new_reader(client, database, new_member(database, workspace_id, Role.OWNER))
    number = receipts()[0]["erased"]["number"]
    address = f"/workspace/{workspace_id}/receipts"
    assert "secret trial" in page.get(address).text
    file = page.get(f"{address}/{number}")
    assert f'filename="receipt-{erased}.json"' in file.headers["Content-Disposition"]
    assert json.loads(file.text).items() <= receipts()[0].items()
    for other in (number - 1, number + 1, "x", "9" * 30):
        assert page.get(f"{address}/{other}").status_code == 404
    editor = new_reader(client, database, new_member(database, workspace_id, Role.EDITOR))
    assert editor.get(f"{address}/{number}").status_code == 403


@pytest.mark.usefixtures("erased")
def test_receipt_names_the_last_backup_before_it(client, database, workspace_id, receipts):
    (receipt,) = receipts()
    assert receipt["last_backup_at"] is None
    erased_at = datetime.fromisoformat(receipt["erased_at"])
    days = [-2, -1, 1]
    for day in days:
        began_at = (erased_at + timedelta(days=day)).isoformat()
        details = {"bytes": 1, "objects": 0, "lost": 0, "keep_days": "30.0"}
        with database.transaction() as db:
            record(db, Act.DATABASE_BACKUP, None, "b", target="t", began_at=began_at, **details)
    (receipt,) = receipts()
    assert datetime.fromisoformat(receipt["last_backup_at"]) == erased_at - timedelta(days=1)
    page = new_reader(client, database, new_member(database, workspace_id, Role.OWNER))
    assert "in none since that of" in page.get(f"/workspace/{workspace_id}/receipts").text


def test_receipt_says_until_when_backups_have_it():
    erased = AuditRecord(
        1,
        datetime.fromisoformat("2030-01-02T00:00:00Z"),
        "experiment.erase",
        *("", "", "", "", "", "id"),
        '{"name": "", "deleted_at": "2030-01-01T00:00:00Z", "points": 0, "bytes": 0}',
        b"",
    )
    swept = erased._replace(recorded_at=erased.recorded_at + timedelta(days=3))
    assert Receipt(erased, swept).to_json(30.0)["backups_until"] == "2030-02-04T00:00:00Z"
    assert Receipt(erased, swept).to_json(None)["backups_until"] is None
    assert Receipt(erased, None).to_json(30.0)["backups_until"] is None
