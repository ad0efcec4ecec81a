"""Quotas: what is over one is refused before anything is stored, also of many uploads at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from support.batches import ApiClient, images, scalars, segment, stream, texts
from support.katib import log
from support.quotas import (
    admit_member,
    assert_counted,
    set_quota,
    stored_usage,
    upload_until_refused,
)
from support.share_links import make_link
from tbservice.errors import Invalid, QuotaExceeded, StartupError
from tbservice.experiments import quota_changes
from tbservice.integrity.check import check_blob_bytes, check_usage
from tbservice.quotas import plans
from tbservice.quotas.tables import workspace_quotas
from tbservice.server import quota_administration
from tbservice.types.grants import AppendGrant
from tbservice.types.quotas import QUOTA_MAX, Quota

UPLOADERS = 8
POINTS = 100


def write(api, experiment, number, series=None):
    series = (
        scalars("loss", range(number * POINTS, (number + 1) * POINTS)) if series is None else series
    )
    return api.send(experiment, segment(stream(), number, number + 1, series))


def test_batch_over_quota_is_refused_and_says_what_remains(api, experiment, database, workspace_id):
    set_quota(database, workspace_id, points=250)
    assert [write(api, experiment, number).status_code for number in range(3)] == [200, 200, 507]
    answer = write(api, experiment, 2)
    assert answer.json() | {"detail": ""} == {
        "code": "quota_exceeded",
        "detail": "",
        "quota": "points",
        "holder": "workspace",
        "used": 200,
        "limit": 250,
        "remaining": 50,
        "needed": 100,
    }
    assert "200 are used and 50 remain" in answer.json()["detail"]
    assert stored_usage(database, workspace_id).scalars == 200
    assert write(api, experiment, 2, scalars("loss", range(200, 250))).status_code == 200
    assert_counted(database, workspace_id)


def test_repeat_and_replacement_need_no_room(api, experiment, database, workspace_id):
    write(api, experiment, 0, texts("note", [1, 2], [b"aaaa", b"bbbb"]))
    used = stored_usage(database, workspace_id)
    set_quota(database, workspace_id, points=2, tensor_bytes=used.tensor_bytes)
    later = [2e9, 2e9]
    repeated = write(api, experiment, 0, texts("note", [1, 2], [b"aaaa", b"bbbb"]))
    smaller = write(api, experiment, 1, texts("note", [1, 2], [b"a", b"b"], later))
    larger = write(api, experiment, 2, texts("note", [1, 2], [b"a" * 9, b"b" * 9], later))
    assert [answer.status_code for answer in (repeated, smaller, larger)] == [200, 200, 507]
    assert larger.json()["quota"] == "tensor_bytes"
    assert_counted(database, workspace_id)


def test_blobs_over_quota_are_refused_before_they_are_stored(
    client, api, experiment, database, workspace_id
):
    set_quota(database, workspace_id, blob_bytes=10)
    first = write(api, experiment, 0, images("image", [1], [[b"12345678"]]))
    again = write(api, experiment, 1, images("image", [2], [[b"12345678"]]))
    second = write(api, experiment, 2, images("image", [3], [[b"abcdefgh"]]))
    assert [answer.status_code for answer in (first, again, second)] == [200, 200, 507]
    put = f"/experiments/{experiment}/blobs/{'0' * 64}"
    part = api.request("PUT", put, params={"offset": 0, "size": 2**24}, content=bytes(2**23))
    assert part.status_code == 507, part.text
    keys = client.app.state.objects.list_objects(f"{workspace_id}/")
    assert len(list(keys)) == 1
    assert_counted(database, workspace_id)


def test_quota_below_use_lets_read_and_delete(api, experiment, database, workspace_id, katib):
    write(api, experiment, 0)
    katib.report("trial", log("loss", 0.5))
    set_quota(database, workspace_id, points=1, experiments=0, members=0)
    assert api.get(experiment, "scalars/data")["train"]["loss"]["total"] == POINTS
    assert write(api, experiment, 1).status_code == 507
    with pytest.raises(QuotaExceeded):
        katib.report("trial", log("loss", 0.4))
    hparams = f"/experiments/{experiment}/runs/hparams"
    answer = api.request("PUT", hparams, params={"run": "new"}, json={"hparams": {"lr": 1}})
    assert answer.status_code == 507
    assert api.request("POST", "/experiments", json={}).status_code == 507
    katib.delete("trial")
    deleted = api.request("DELETE", f"/experiments/{experiment}", params={"final": True})
    assert deleted.status_code == 204
    assert stored_usage(database, workspace_id).points == 1  # the session of the trial


def test_deletion_counts_until_nobody_can_restore(api, experiment, database, workspace_id):
    set_quota(database, workspace_id, points=POINTS, experiments=2)
    write(api, experiment, 0)
    other = api.new_experiment()
    api.request("DELETE", f"/experiments/{experiment}").raise_for_status()
    assert write(api, other, 0).status_code == 507
    assert api.request("POST", "/experiments", json={}).json()["quota"] == "experiments"
    api.request("POST", f"/experiments/{experiment}/restore").raise_for_status()
    api.request("DELETE", f"/experiments/{experiment}", params={"final": True}).raise_for_status()
    assert write(api, other, 0).status_code == 200
    assert api.request("POST", "/experiments", json={}).status_code == 201


def test_frozen_copies_count(api, experiment, database, workspace_id):
    write(api, experiment, 0)
    set_quota(database, workspace_id, points=2 * POINTS + 50)
    make_link(api, experiment, frozen=True)
    answer = api.request("POST", f"/experiments/{experiment}/links", json={"frozen": True})
    assert (answer.status_code, answer.json()["quota"]) == (507, "points")
    assert stored_usage(database, workspace_id).points == 2 * POINTS
    assert_counted(database, workspace_id)


def test_reservation_of_a_killed_copy_ends(api, experiment, database, workspace_id):
    write(api, experiment, 0)
    set_quota(database, workspace_id, points=2 * POINTS)
    ingest = api.client.app.state.ingest
    grant = AppendGrant(workspace_id, experiment)
    ingest.door._reserve_copy(grant)  # as of a process that is killed after it
    assert stored_usage(database, workspace_id).points == 2 * POINTS
    assert write(api, experiment, 1).status_code == 507
    with database.transaction(workspace_id) as db:
        db.execute(
            text(
                "UPDATE usage_counters SET reserved_until = now() - interval '1 s' "
                "WHERE reserved_until IS NOT NULL"
            )
        )
    assert write(api, experiment, 1).status_code == 200


def test_uploads_at_once_store_no_more_than_the_quota(client, api, database, workspace_id):
    limit = 40 * POINTS + 50
    set_quota(database, workspace_id, points=limit)
    experiments = [api.new_experiment() for _ in range(UPLOADERS)]
    ingest = client.app.state.ingest

    def upload(experiment):
        return upload_until_refused(ingest, workspace_id, experiment, POINTS)

    with ThreadPoolExecutor(UPLOADERS) as pool:
        written = list(pool.map(upload, experiments))
    stored = sum(written) * POINTS
    assert stored_usage(database, workspace_id).scalars == stored <= limit
    # What others had reserved at the moment of a refusal may be left; another attempt gets it.
    upload(experiments[0])
    assert stored_usage(database, workspace_id).scalars == 40 * POINTS
    assert_counted(database, workspace_id)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[a]\npoints = -1", "points"),
        ("[a]\npoints = true", "whole number"),
        (f"[a]\npoints = {QUOTA_MAX + 1}", "whole number"),
        ("[a]\npints = 1", "pints"),
        ("a = 1", "is no plan"),
        ("[a", "TBHUB_PLANS_FILE"),
    ],
)
def test_wrong_file_of_plans_is_named(tmp_path, content, said):
    path = tmp_path / "plans.toml"
    path.write_text(content)
    with pytest.raises(StartupError, match=said):
        plans.read_plans(path)


@pytest.mark.own_database
def test_plan_holds_for_workspaces_without_own_limits(
    settings, tmp_path, database, workspace_id, owner_token, run_application
):
    path = tmp_path / "plans.toml"
    path.write_text("[default]\npoints = 150\n[large]\npoints = 350\nexperiments = 9\n")
    with run_application(settings.model_copy(update={"plans_file": path})) as client:
        api = ApiClient(client, owner_token)
        experiment = api.new_experiment()
        assert [write(api, experiment, each).status_code for each in (0, 1)] == [200, 507]
        quota_changes.change_quota(database, workspace_id, "large", {})
        assert [write(api, experiment, each).status_code for each in (1, 2, 3)] == [200, 200, 507]
        path.write_text("[default]\npoints = 150\n[large]\npoints = 500\n")
        quota_administration.apply_plans(database, path)
        assert [write(api, experiment, each).status_code for each in (3, 4)] == [200, 200]
        quota_changes.change_quota(database, workspace_id, None, {"points": 550})
        assert write(api, experiment, 5).status_code == 507
        quota_changes.change_quota(database, workspace_id, None, {"points": QUOTA_MAX})
        assert write(api, experiment, 5).status_code == 200
        with pytest.raises(Invalid, match="large"):
            quota_changes.change_quota(database, workspace_id, "unknown", {})
    with database.transaction(workspace_id) as db:
        assert workspace_quotas.WORKSPACES.find(db, workspace_id) == Quota()


def test_usage_as_csv_has_a_line_for_each_group(api, experiment, database, workspace_id):
    write(api, experiment, 0)
    set_quota(database, workspace_id, points=1000)
    path = f"/workspaces/{workspace_id}/usage"
    answer = api.request("GET", path, params={"format": "csv"})
    lines = answer.text.splitlines()
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert lines[1] == f"limit,points,,,,,,,,{POINTS},1000,,,"
    assert f"experiment,{experiment},,1,{POINTS},0,0,0,0,,,,," in lines
    # Traffic is there once the worker has stored some.
    assert {line.split(",")[0] for line in lines[1:] if not line.startswith("traffic")} == {
        *("limit", "workspace", "month", "member", "experiment")
    }
    assert len({line.count(",") for line in lines}) == 1


def test_experiment_from_before_quotas_is_counted_when_written(
    api, experiment, database, workspace_id
):
    write(api, experiment, 0)
    with database.transaction(workspace_id) as db:
        db.execute(text("DELETE FROM usage_counters"))
    usage = api.request("GET", f"/workspaces/{workspace_id}/usage").json()
    assert (usage["uncounted_experiments"], usage["limits"]["points"]["used"]) == (1, POINTS)
    assert write(api, experiment, 1).status_code == 200
    usage = api.request("GET", f"/workspaces/{workspace_id}/usage").json()
    assert (usage["uncounted_experiments"], usage["limits"]["points"]["used"]) == (0, 2 * POINTS)
    assert_counted(database, workspace_id)


@pytest.mark.own_database
def test_service_works_before_the_migration(rename_table, settings, workspace, run_application):
    rename_table("quota_plans", "quota_plans_of_later")
    with run_application(settings) as client:
        api = ApiClient(client, workspace.owner_token)
        experiment = api.new_experiment()
        assert write(api, experiment, 0).status_code == 200
        assert write(api, experiment, 1, images("image", [1], [[b"x"]])).status_code == 200
        make_link(api, experiment, frozen=True)
        usage = api.request("GET", f"/workspaces/{workspace.workspace_id}/usage").json()
        assert usage["limits"]["points"] == {"used": 202, "limit": None, "remaining": None}
        deleted = api.request("DELETE", f"/experiments/{experiment}", params={"final": True})
        assert deleted.status_code == 204


def test_member_over_quota_is_refused(database, workspace_id):
    set_quota(database, workspace_id, members=1)
    admit_member(database, workspace_id)
    with pytest.raises(QuotaExceeded, match="1 members"):
        admit_member(database, workspace_id)
    set_quota(database, workspace_id, members=2)
    admit_member(database, workspace_id)


def test_recount_repairs_a_wrong_counter(api, experiment, database, workspace_id):
    write(api, experiment, 0, images("image", [1], [[b"12345"]]))
    with database.transaction(workspace_id) as db:
        db.execute(text("UPDATE usage_counters SET blob_sequences = 7, blob_bytes = 9"))
    with database.snapshot(workspace_id) as db:
        (damage,) = check_usage(db, workspace_id, experiment)
        (missing,) = check_blob_bytes(db, workspace_id)
    assert "blob_sequences 7 instead of 1" in damage.detail
    assert "bytes of blobs" in missing.detail
    assert quota_changes.recount(database, workspace_id) == 1
    assert_counted(database, workspace_id)
    assert stored_usage(database, workspace_id) == (0, 0, 1, 0, 5)
