"""An upload that meets a suspension says why and keeps its place; released, the rest follows."""

from __future__ import annotations

from contextlib import closing

import pytest

from support import event_files
from support.suspending import release, suspend
from support.uploading import Uploader
from support.waiting import wait_until
from tbservice.auth import grants
from tbservice.db.database import Database

STEPS = 300


@pytest.fixture
def workspace(live_service, uploader):
    """The database, and the id of the uploader's workspace."""
    with closing(Database(live_service.database_url, 1)) as database:
        with database.transaction() as db:
            workspace_id = grants.identify(db, uploader.token).workspace_id
        yield database, "workspace", workspace_id


def write_run(logdir, steps):
    events = [event_files.scalar_event("loss", step, step / 7) for step in range(steps)]
    path = logdir / "run" / "events.out.tfevents.1.host"
    event_files.write_records(path, [event_files.version_event(), *events])


def test_follower_ends_says_why_and_resumes(uploader: Uploader, reader, logdir, workspace):
    write_run(logdir, STEPS)
    with uploader.follow(logdir) as following:
        experiment = following.wait_for_experiment()
        wait_until(lambda: len(reader.scalars(experiment).get("run", {}).get("loss", ())) == STEPS)
        suspend(*workspace, "Under investigation")
        write_run(logdir, 2 * STEPS)
        ended = following.wait()
    assert ended.code == 1
    assert "this workspace is suspended: Under investigation. Nothing was deleted" in ended.err
    refused = uploader.run("--logdir", logdir, "--one-shot")
    assert (refused.code, refused.err.count("Under investigation")) == (1, 1)
    release(*workspace)
    resumed = uploader.run("--logdir", logdir, "--one-shot")
    assert (resumed.code, resumed.experiment_id) == (0, experiment)
    assert list(reader.scalars(experiment)["run"]["loss"]) == list(range(2 * STEPS))
