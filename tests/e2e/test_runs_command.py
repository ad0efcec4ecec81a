"""`tbupload runs` and `Workspace.runs`: the runs of all experiments, filtered, as text, JSON, CSV."""

from __future__ import annotations

import csv
import io
import json
import math
import re

import pytest

import tbupload
from support import event_files
from tbupload import Workspace
from tbupload.errors import Refused


@pytest.fixture
def experiment_id(uploader, logdir):
    """An experiment with three runs."""
    for run, values in {"a": [3.0, 1.0, 2.0], "b": [0.5], "c d": [math.nan]}.items():
        events = [event_files.scalar_event("loss", *each) for each in enumerate(values)]
        event_files.write_records(logdir / run / "tfevents.1", events)
    ended = uploader.run("--logdir", logdir, "--one-shot")
    assert ended.code == 0
    return ended.experiment_id


def test_runs_command_prints_runs_and_columns(uploader, experiment_id):
    where = f'experiment = "{experiment_id}"'
    columns = ("--columns", "run,loss.min,loss", "--sort", "loss.min")
    listed = uploader.run("runs", "--where", where, *columns, "--json")
    assert [json.loads(line) for line in listed.out.splitlines()] == [
        {"run": "b", "loss.min": 0.5, "loss": 0.5},
        {"run": "a", "loss.min": 1.0, "loss": 2.0},
        {"run": "c d", "loss.min": None, "loss": "NaN"},
    ]
    listed = uploader.run("runs", "--where", where, *columns, "--csv")
    rows = list(csv.reader(io.StringIO(listed.out)))
    assert rows[:2] == [["run", "loss.min", "loss"], ["b", "0.5", "0.5"]]
    listed = uploader.run("runs", "--where", where, "--limit", "1")
    assert len(listed.out.splitlines()) == 2
    assert re.search(r" 20\d\d-\d\d-\d\d \d\d:\d\d ", listed.out)  # when it started
    assert "1 of 3 shown" in listed.err
    assert "metric  loss  3" in uploader.run("runs", "--list-columns").out
    wrong = uploader.run("runs", "--where", f"{where} and loss <")
    assert (wrong.code, "expected a number" in wrong.err) == (1, True)


def test_runs_command_tags_and_deletes_what_it_selects(uploader, experiment_id):
    where = f'experiment = "{experiment_id}"'

    def list_tags():
        listed = uploader.run("runs", "--where", where, "--columns", "run,tags", "--json")
        return {run["run"]: run["tags"] for run in map(json.loads, listed.out.splitlines())}

    best = ("runs", "--where", f"{where} and loss.min < 2", "--sort", "loss.min")
    tagged = uploader.run(*best, "--limit", "1", "--tag", "best", "--tag", "x")
    assert tagged.out == f"tagged 1 run of experiment {experiment_id}\n"
    assert list_tags() == {"a": None, "b": "best\nx", "c d": None}
    tagged = uploader.run(*best, "--tag", "good", "--remove-tag", "X", "--json")
    assert json.loads(tagged.out)["runs"] == ["b", "a"]
    assert list_tags() == {"a": "good", "b": "best\ngood", "c d": None}

    for options, problem in (
        (["--tag", "x"], "of --where"),
        (["--where", where, "--tag", "x", "--csv"], "--csv is of lists"),
        (["--where", where, "--delete", "--tag", "x"], "--delete excludes"),
        (["--where", where, "--delete"], "requires --yes"),
        (["--where", "lr <", "--delete", "--yes"], "expected a number"),
    ):
        refused = uploader.run("runs", *options)
        assert refused.code != 0
        assert problem in refused.err
    deleted = uploader.run("runs", "--where", f'{where} and tags = "best"', "--delete", "--yes")
    assert deleted.out == f"deleted 1 run of experiment {experiment_id}\n"
    assert list_tags() == {"a": "good", "c d": None}
    nothing = uploader.run("runs", "--where", f'{where} and tags = "best"', "--delete", "--yes")
    assert "there are no runs like that" in nothing.err


@pytest.fixture
def seeds(uploader, logdir):
    """An experiment with two configurations of two seeds."""
    for run, values in {"a/s1": [3.0, 1.0], "a/s2": [4.0, 2.0], "b_|/s1": [5.0]}.items():
        events = [event_files.scalar_event("loss", *each) for each in enumerate(values)]
        event_files.write_records(logdir / run / "tfevents.1", events)
    ended = uploader.run("--logdir", logdir, "--one-shot")
    assert ended.code == 0
    return ended.experiment_id


def test_runs_command_prints_groups(uploader, seeds):
    options = ("--where", f'experiment = "{seeds}"', "--run-pattern", "^(.*)/", "--columns", "loss")
    listed = uploader.run("runs", *options, "--json")
    assert [json.loads(line) for line in listed.out.splitlines()] == [
        {
            "run_pattern": "a",
            "runs": 2,
            "loss.mean": 1.5,
            "loss.std": pytest.approx(0.5**0.5),
            "loss.count": 2,
        },
        {"run_pattern": "b_|", "runs": 1, "loss.mean": 5.0, "loss.std": None, "loss.count": 1},
    ]
    listed = uploader.run("runs", *options)
    assert [line.split() for line in listed.out.splitlines()] == [
        ["run_pattern", "runs", "loss"],
        ["a", "2", "1.5", "±", "0.7", "(2)"],
        ["b_|", "1", "5", "(1)"],
    ]
    listed = uploader.run("runs", *options, "--sort=-loss", "--format", "markdown")
    assert listed.out.splitlines()[2:] == [r"| b\_\| | 1 | 5 (1) |", "| a | 2 | 1.5 ± 0.7 (2) |"]
    listed = uploader.run("runs", *options, "--group-by", "experiment", "--format", "latex")
    assert listed.out.splitlines()[2] == r"experiment & run\_pattern & runs & loss \\"
    wrong = uploader.run("runs", *options, "--group-by", "lost")
    assert "did you mean loss" in wrong.err


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_workspace_curves_are_data_frames(reader, seeds, library):
    token = reader.http.headers["Authorization"].removeprefix("Bearer ")
    workspace = Workspace(server=str(reader.http.base_url), token=token)
    where = f'experiment = "{seeds}"'
    query = {"run_pattern": "^(.*)/", "quantiles": [0.9], "library": library}
    frame = workspace.curves("loss", ["experiment"], where, **query)
    assert list(frame.columns)[:5] == ["experiment", "run_pattern", "step", "count", "not_finite"]
    assert list(frame["run_pattern"]) == ["a", "a", "b_|"]
    assert list(frame["step"]) == [0, 1, 0]
    assert list(frame["mean"]) == [3.5, 1.5, 5.0]
    assert list(frame["q0.9"])[:2] == pytest.approx([3.9, 1.9])
    assert math.isnan(list(frame["std"])[2])
    assert len(workspace.curves("loss", where='run = "none"', library=library)) == 0
    groups = workspace.runs(where, columns=["loss"], run_pattern="^(.*)/", library=library)
    assert list(groups["run_pattern"]) == ["a", "b_|"]
    assert (list(groups["runs"]), list(groups["loss.mean"])) == ([2, 1], [1.5, 5.0])
    with pytest.raises(Refused, match="did you mean loss"):
        workspace.curves("los", where=where, library=library)


def test_workspace_lists_its_experiments(reader, experiment_id, monkeypatch):
    token = reader.http.headers["Authorization"].removeprefix("Bearer ")
    workspace = Workspace(server=str(reader.http.base_url), token=token)
    assert experiment_id in [each.experiment_id for each in workspace.experiments()]
    (newest,) = workspace.experiments(limit=1)
    reader.http.patch(f"/api/v1/experiments/{newest.experiment_id}", json={"tags": ["kept"]})
    assert [each.experiment_tags for each in workspace.experiments(tag="kept")] == [["kept"]]
    assert workspace.experiments("nothing-begins-so") == []
    monkeypatch.setenv("TBHUB_SERVER", str(reader.http.base_url))
    monkeypatch.setenv("TBHUB_TOKEN", token)
    assert [each.url for each in tbupload.experiments(tag="kept")] == [newest.url]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_workspace_runs_are_data_frame(reader, experiment_id, library):
    token = reader.http.headers["Authorization"].removeprefix("Bearer ")
    workspace = Workspace(server=str(reader.http.base_url), token=token)
    where = f'experiment = "{experiment_id}"'
    columns = ["run", "loss", "loss.min", "host"]
    runs = workspace.runs(where, sort="-loss.max", columns=columns, limit=2, library=library)
    assert list(runs.columns) == columns
    assert (list(runs["run"]), list(runs["loss"])) == (["a", "b"], [2.0, 0.5])
    last = workspace.runs(f'{where} and run = "c d"', columns=columns, library=library)
    assert math.isnan(last["loss"][0])
    assert last["loss.min"][0] is None or math.isnan(last["loss.min"][0])
    assert len(workspace.runs('run = "none"', columns=columns, library=library)) == 0
    with pytest.raises(Refused, match="character 1"):
        workspace.runs("= 1")
    assert "loss" in workspace.columns()["metrics"]
