"""`tbupload move`: all of an experiment is in the other workspace, and until then in the old one."""

from __future__ import annotations

import json

import pytest

from support import event_files
from support.complete_logdir import write_complete_logdir
from support.uploading import Reader, Uploader
from tbservice.db.database import Database
from tbservice.quotas import plans
from tbservice.types.quotas import QUOTA_NAMES
from tbupload.commands.exit_codes import EXIT_TEMPORARY_FAILURE

FIELDS = ("name", "description", "tags", "notes", "properties", "origin", "archived")


@pytest.fixture
def other(uploader, live_service, tmp_path):
    """`tbupload` for another workspace, whose token is in the profile `other` of `uploader`."""
    token = live_service.new_owner()
    config = tmp_path / "config.toml"
    with config.open("a") as file:
        file.write(f'[profiles.other]\nserver = "{uploader.server}"\ntoken = "{token}"\n')
    assert uploader.environment()["TBHUB_CONFIG"] == str(config)
    return Uploader(uploader.server, token, tmp_path / "unused")


@pytest.fixture
def moves(uploader, tmp_path):
    """Run `tbupload move` to the profile `other`, with a directory of this test."""

    def move(*arguments):
        return uploader.run("move", *arguments, "--to", "other", "--work-dir", tmp_path / "work")

    return move


@pytest.fixture
def allow_points(live_service, superuser, other):
    """Set the quota of points of the other workspace, which is the latest; None for no limit."""
    assert other.token
    (workspace_id,) = superuser.execute("SELECT max(workspace_id) FROM workspaces").fetchone()

    def allow_points(points):
        database = Database(live_service.database_url, 1)
        with database.transaction(workspace_id) as db:
            plans.set_quota(db, workspace_id, None, dict.fromkeys(QUOTA_NAMES) | {"points": points})
        database.close()

    return allow_points


@pytest.fixture
def target(other):
    """The read API for the owner of the other workspace."""
    reader = Reader(other.server, other.token)
    yield reader
    reader.http.close()


def read_fields(reader, experiment_id):
    fields = reader.http.get(f"/api/v1/experiments/{experiment_id}").json()
    return {name: fields[name] for name in FIELDS}


def test_move_carries_all_but_attempts(uploader, reader, other, target, logdir, moves, tmp_path):
    """The log directory has a restarted run: nothing is deleted of what is nowhere else."""
    write_complete_logdir(logdir)
    for run in (
        "tab\there",
        "ü" * 120,
        "plain%09",
    ):  # an export gives their directories other names
        events = [event_files.scalar_event("x", 1, 0.5)]
        event_files.write_records(logdir / run / "tfevents.1", events)
    texts = ("--name", "mövéd", "--description", "*d*", "--tag", "one", "--note", "seen")
    old_id = uploader.run("--logdir", logdir, "--one-shot", *texts).experiment_id
    uploader.run("update-metadata", old_id, "--property", "seed=7", "--archive")
    body = {"runs": ["a", "a/b"], "add": ["best"]}
    assert reader.http.patch(f"/api/v1/experiments/{old_id}/runs", json=body).is_success
    before = read_fields(reader, old_id)
    assert before["archived"]
    upload = reader.http.get(f"/api/v1/experiments/{old_id}/uploads").json()["uploads"][0]

    assert reader.http.get(f"/api/v1/experiments/{old_id}/attempts").json()["runs"]
    refused = moves(old_id)
    assert (refused.code, "has earlier attempts of" in refused.err) == (1, True)
    planned = moves(old_id, "--keep", "--dry-run")
    assert (planned.code, "mövéd" in planned.out) == (0, True)
    assert other.run("list", "--json", "--archived").out == ""
    moved = moves(old_id, "--keep")
    assert moved.code == 0
    assert not any((tmp_path / "work").iterdir())

    new_id = moved.experiment_id
    assert other.run("verify", "--logdir", logdir, "--experiment", new_id, "--strict").code == 0
    assert read_fields(target, new_id) == before
    path = f"/api/v1/experiments/{new_id}/uploads"
    copied = target.http.get(path).json()["uploads"][0]
    names = ("upload_id", "status", "origin", "started_at", "ended_at")
    assert [copied[name] for name in names] == [upload[name] for name in names]
    where = f'experiment = "{new_id}" and tags = "best"'
    table = other.run("runs", "--where", where, "--columns", "run", "--json").out
    assert {json.loads(line)["run"] for line in table.splitlines()} == {"a", "a/b"}
    assert uploader.run("show", old_id).code == 0


def test_move_without_room_loses_nothing_and_resumes(uploader, other, logdir, moves, allow_points):
    path = logdir / "run" / "tfevents.1"
    event_files.write_records(path, [event_files.scalar_event("x", n, n / 7) for n in range(500)])
    old_id = uploader.run("--logdir", logdir, "--one-shot").experiment_id
    allow_points(400)
    assert "no room: 400 points are left" in moves(old_id, "--dry-run").err
    refused = moves(old_id)
    assert refused.code == EXIT_TEMPORARY_FAILURE
    assert f"nothing was deleted: {old_id} stays as it is" in refused.err
    assert uploader.run("show", old_id).code == 0

    # What came meanwhile is moved as well, although the files of the first attempt lack it.
    later = logdir / "later" / "tfevents.1"
    event_files.write_records(later, [event_files.scalar_event("y", n, n / 7) for n in range(9)])
    assert uploader.run("--logdir", logdir, "--one-shot").experiment_id == old_id
    allow_points(None)
    moved = moves(old_id)
    assert (moved.code, "509 points, 2 series, equal" in moved.err) == (0, True)
    assert other.run("list", "--json").out.count("\n") == 1
    compared = ("--logdir", logdir, "--experiment", moved.experiment_id, "--strict")
    assert other.run("verify", *compared).code == 0
    assert "the old one is in the trash" in moved.err
    assert uploader.run("show", old_id).code == 1
    assert uploader.run("restore", old_id).code == 0


def test_move_to_nowhere_and_of_running_is_refused(uploader, reader, other, logdir, moves):
    event_files.write_records(logdir / "run" / "tfevents.1", [event_files.scalar_event("x", 1, 1)])
    id_ = uploader.run("--logdir", logdir, "--one-shot").experiment_id
    unknown = uploader.run("move", id_, "--to", "nowhere")
    login = f"tbupload login --server {uploader.server} --profile nowhere"
    assert (unknown.code, login in unknown.err) == (2, True)
    here = json.loads(uploader.run("whoami", "--json").out)["workspace"]["workspace_id"]
    assert "are in the workspace" in uploader.run("move", id_, "--to", here).err

    upload = {"status_of": "training", "started_at": "2026-01-01T00:00:00Z"}
    path = f"/api/v1/experiments/{id_}/uploads/{0:016x}"
    assert reader.http.put(path, json=upload).is_success
    running = moves(id_)
    assert (running.code, "is being uploaded to" in running.err) == (1, True)
    assert other.run("list", "--json").out == ""
