"""An upload that meets a quota keeps its place, says so once, and is finished later exactly once."""

from __future__ import annotations

from http import HTTPStatus

import pytest
import urllib3

from support import event_files
from support.uploading import Uploader, wait_until
from tbservice.db.database import Database
from tbservice.quotas import plans
from tbservice.types.quotas import QUOTA_NAMES
from tbupload.commands.exit_codes import EXIT_TEMPORARY_FAILURE

STEPS = 400
RUNS = ("a", "b", "c", "d")


@pytest.fixture
def allow(live_service, superuser, uploader):
    """Set the quota of the uploader's workspace, which is the latest."""
    assert uploader.token
    (workspace_id,) = superuser.execute("SELECT max(workspace_id) FROM workspaces").fetchone()

    def allow(points, **more):
        database = Database(live_service.database_url, 1)
        with database.transaction(workspace_id) as db:
            limits = dict.fromkeys(QUOTA_NAMES) | {"points": points} | more
            plans.set_quota(db, workspace_id, None, limits)
        database.close()

    return allow


def write_runs(logdir, runs=RUNS, steps=STEPS):
    for run in runs:
        path = logdir / run / "events.out.tfevents.1.host"
        event_files.write_records(
            path,
            [
                event_files.version_event(),
                *[event_files.scalar_event("loss", step, step / 7) for step in range(steps)],
            ],
        )


def test_upload_over_quota_exits_with_75_and_resumes(uploader: Uploader, reader, logdir, allow):
    write_runs(logdir)
    first = uploader.run("--logdir", logdir, "--one-shot")
    assert first.code == 0
    write_runs(logdir / "later")
    allow(6 * STEPS)
    ended = uploader.run("--logdir", logdir, "--one-shot")
    assert ended.code == EXIT_TEMPORARY_FAILURE
    said = [line for line in ended.err.splitlines() if "the workspace may store" in line]
    assert len(said) == 1
    assert f"may store {6 * STEPS:,} points" in said[0]
    assert "administrator" in said[0]
    assert "nothing is lost; to send the rest later" in ended.err
    allow(None)
    resumed = uploader.run("--logdir", logdir, "--one-shot")
    assert resumed.code == 0
    stored = reader.scalars(first.experiment_id)
    assert len(stored) == 2 * len(RUNS)
    assert all(list(tags["loss"]) == list(range(STEPS)) for tags in stored.values())
    verified = uploader.run("verify", "--logdir", logdir, "--experiment", first.experiment_id)
    assert verified.code == 0


def test_upload_without_requests_left_exits_with_75(uploader, live_service, logdir, allow):
    write_runs(logdir, runs=("a",), steps=3)
    allow(None, requests=0)
    headers = {"Authorization": f"Bearer {uploader.token}"}
    # The server looks at the limits of a workspace beside its first requests.
    wait_until(
        lambda: (
            urllib3.request("GET", f"{live_service.url}/api/v1/experiments", headers=headers).status
            == HTTPStatus.INSUFFICIENT_STORAGE
        )
    )
    ended = uploader.run("--logdir", logdir, "--one-shot")
    assert ended.code == EXIT_TEMPORARY_FAILURE
    assert "may have 0 requests in a month" in ended.err


def test_training_survives_an_upload_over_quota(run_script, allow):
    allow(10)
    ended = run_script(
        """
        upload = tbupload.follow("runs")
        train(steps=range(50))
        result = upload.stop()
        print("trained", result.exit_code)
        print(result.explanation)
        """
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(f"trained {EXIT_TEMPORARY_FAILURE}\n"), ended
    assert "may store 10 points" in ended.stdout
    assert "to send the rest, run: tbupload" in ended.stdout
