"""The Python client against a real server, with pandas and with polars; and the documented
examples.
"""

from __future__ import annotations

import pickle
import re
import sys

import numpy as np
import pytest

import tbupload.notebook
from support.batches import images, metadata, packed_scalars, scalars, segment, stream, texts
from support.lazy import LazyModule
from support.servers import live_api
from support.source_code import ROOT
from support.subprocesses import run_to_end
from tbupload import Experiment, ExperimentFromDev
from tbupload.errors import Refused, UsageError

pd = LazyModule("pandas")
pl = LazyModule("polars")

pytestmark = pytest.mark.usefixtures("configured")

STEPS = {"a": [0, 1, 2], "b": [0, 1, 5]}


@pytest.fixture
def api(uploader):
    with live_api(uploader.server, uploader.token) as api:
        yield api


@pytest.fixture
def experiment_id(api):
    """Runs b and a, in this order, with the same two scalars; a has a text and images too."""
    experiment_id = api.new_experiment()
    for run in ("b", "a"):
        series = [
            scalars(tag, STEPS[run], np.array(STEPS[run]) * factor)
            for tag, factor in (("loss", 2), ("acc", -1))
        ]
        if run == "a":
            series += [
                texts("note", [4], ["grüße".encode()]),
                images("cat", [1, 2], [[b"x"], [b"y", b"zz"]]),
            ]
        api.write(experiment_id, segment(stream(run), 0, 9, *series))
    return experiment_id


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_series_are_rows_with_summary_metadata(api, experiment_id, library):
    odd = scalars("ü\n,", [-3, 7], [1, 2])
    odd.summary_metadata = metadata(description="d\n", content=b"\0\xff")
    api.write(experiment_id, segment(stream("c"), 0, 9, odd))
    experiment = Experiment(experiment_id, library=library)
    frame = experiment.series()
    rows = frame.to_dict("records") if library == "pandas" else frame.to_dicts()
    by_name = {(row["run"], row["tag"]): row for row in rows}
    assert len(rows) == len(by_name) == 7
    row = by_name["c", "ü\n,"]
    assert (row["plugin"], row["data_class"], row["description"]) == ("scalars", "scalar", "d\n")
    assert row["plugin_content"] == b"\0\xff"
    assert (row["points"], row["max_step"], row["max_wall_time"]) == (2, 7, 1.7e9 + 7)
    assert by_name["a", "cat"]["data_class"] == "blob_sequence"
    assert list(experiment.series(run="a", plugin="text")["tag"]) == ["note"]
    assert len(experiment.series(tag=["loss", "acc"])) == 4
    with pytest.warns(UserWarning, match="no run 'nothing': it has 'b', 'a', 'c'"):
        assert len(experiment.series(run="nothing")) == 0


def test_unknown_names_are_warned_of_with_advice(api, experiment_id):
    experiment = Experiment(experiment_id)
    with pytest.warns(UserWarning, match="has no tag 'los': did you mean 'loss'?") as caught:
        assert len(experiment.scalars(tag="los")) == 0
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="has no tag 'Acc': did you mean 'acc'?") as caught:
        assert len(experiment.series(tag=["loss", "Acc"])) == 2
    assert caught[0].filename == __file__
    assert len(experiment.scalars(tag="cat")) == 0  # an image: it is there
    api.write(experiment_id, segment(stream("c"), 0, 9, scalars("train/f1", [1], [1])))
    with pytest.warns(UserWarning, match="has no tag 'f1': did you mean 'train/f1'?"):
        experiment.scalars(tag="f1")
    with pytest.warns(UserWarning, match="has no run 'x': it has no runs at all"):
        Experiment(api.new_experiment()).blobs(run="x")


def test_experiment_has_its_name_url_status_and_tags(api, uploader):
    experiment = Experiment(api.new_experiment(name="a name", tags=["b", "A"]))
    assert experiment.name == "a name"
    assert experiment.url == f"{uploader.server}/experiment/{experiment.experiment_id}/"
    assert experiment.status is None
    assert sorted(experiment.experiment_tags) == ["A", "b"]
    assert experiment.tags == {}
    public = {name for name in dir(tbupload) if name[0] != "_"}
    assert public == set(tbupload.__all__)
    assert "__version__" in dir(tbupload)


def test_properties_and_metadata_are_those_of_experiment(api):
    written = {"name": "ü", "notes": "# n", "tags": ["x"], "properties": {"lr": "0.1", "=1": ""}}
    experiment = Experiment(api.new_experiment(**written, origin={"host": "h"}))
    assert experiment.properties == written["properties"]
    assert {name: experiment.metadata[name] for name in written} == written
    assert experiment.metadata["origin"] == {"host": "h"}
    assert experiment.metadata["created_at"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_scalars_are_row_point(experiment_id, library):
    experiment = Experiment(experiment_id, library=library)
    frame = experiment.scalars()
    assert list(frame.columns) == ["run", "tag", "step", "wall_time", "value"]
    assert sorted(zip(*(frame[name].to_list() for name in frame.columns), strict=True)) == sorted(
        (run, tag, step, 1.7e9 + step, float(step * factor))
        for run, steps in STEPS.items()
        for tag, factor in (("loss", 2), ("acc", -1))
        for step in steps
    )
    sample = experiment.scalars(run="a", tag=["loss"], sampling="uniform", downsample=2)
    assert sample["step"].to_list() == [0, 2]
    with pytest.warns(UserWarning, match="no run 'nobody': it has 'b', 'a'"):
        assert len(experiment.scalars(run="nobody")) == 0
    kind = pd.DataFrame if library == "pandas" else pl.DataFrame
    assert isinstance(frame, kind)
    assert [str(frame[name].dtype).lower() for name in ("step", "wall_time", "value")] == [
        "int64",
        "float64",
        "float64",
    ]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_pivot_is_row_run_and_step_and_leaves_gaps(api, experiment_id, library):
    api.write(experiment_id, segment(stream("a", "more"), 0, 9, scalars("late", [2, 9], [7, 8])))
    frame = Experiment(experiment_id, library=library).scalars(run="a", pivot=True)
    rows = {
        row[1]: row[0:1] + row[2:]
        for row in frame[["run", "step", "loss", "acc", "late"]].to_numpy().tolist()
    }
    assert list(frame.columns)[:2] == ["run", "step"]
    assert list(rows) == [0, 1, 2, 9]
    assert rows[2] == ["a", 4.0, -2.0, 7.0]
    assert (rows[9][3], [pd.isna(value) for value in rows[9][1:3]]) == (8.0, [True, True])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tag_with_name_of_column_is_said(api, experiment_id, library):
    api.write(experiment_id, segment(stream("a", "more"), 0, 9, scalars("step", [2])))
    experiment = Experiment(experiment_id, library=library)
    with pytest.raises(UsageError, match="the name of the column 'step'"):
        experiment.scalars(pivot=True)
    assert len(experiment.scalars(tag="loss", pivot=True)) == 6


def test_long_series_comes_whole(api, experiment_id):
    steps = np.arange(0, 600_000, 2)
    api.write(experiment_id, segment(stream("long"), 0, 9, packed_scalars("x", steps)))
    frame = Experiment(experiment_id).scalars(run="long")
    np.testing.assert_array_equal(frame["step"], steps)
    np.testing.assert_array_equal(frame["value"], steps / 3)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tensors_and_blobs_are_given_with_their_values(experiment_id, library):
    experiment = Experiment(experiment_id, library=library)
    (text,) = experiment.tensors(tag="note")["value"]
    assert text.tolist() == ["grüße"]
    blobs = experiment.blobs()
    shown = [blobs[name].to_list() for name in ("tag", "step", "index", "size")]
    assert shown == [["cat"] * 3, [1, 2, 2], [0, 0, 1], [1, 1, 2]]
    assert [experiment.blob(key) for key in blobs["key"]] == [b"x", b"y", b"zz"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_clips_are_given_with_their_logged_content_types(api, experiment_id, library):
    clips = images("clip", [1, 2, 3], [[b"x"], [b"y", b"zz"], [b"x"]])
    clips.summary_metadata = metadata("audio", 3)
    clips.blob_sequences.sequences[0].logged_content_type = "audio/x-my"
    clips.blob_sequences.sequences[2].logged_content_type = "audio/flac"
    api.write(experiment_id, segment(stream("b", "more"), 0, 9, clips))
    blobs = Experiment(experiment_id, library=library).blobs(tag="clip")
    assert blobs["logged_content_type"].to_list() == ["audio/x-my", "", "", "audio/flac"]
    assert set(blobs["content_type"].to_list()) == {"application/octet-stream"}


def test_runs_and_tags_are_named(experiment_id):
    experiment = Experiment(experiment_id)
    assert experiment.runs == ["b", "a"]
    assert sorted(experiment.tags["a"]) == ["acc", "cat", "loss", "note"]
    first = experiment.runs()[0]
    assert (first.name, first.url) == ("b", f"{experiment.url}about?run=b")
    assert first.tags == experiment.tags["b"]
    assert set(first.scalars()["run"]) == {"b"}
    assert type(pickle.loads(pickle.dumps(first))) is str  # noqa: S301 - our own


def as_tensorboard_had_it(*, wall_time=False):
    """Return the long frame that TensorBoard's class made of the same points."""
    rows = [
        (run, tag, step, float(step * factor), 1.7e9 + step)
        for run in ("a", "b")  # whose events begin at the same time: by name
        for tag, factor in (("acc", -1), ("loss", 2))
        for step in STEPS[run]
    ]
    frame = pd.DataFrame(rows, columns=["run", "tag", "step", "value", "wall_time"])
    return frame if wall_time else frame.drop(columns="wall_time")


def in_order(frame):
    return frame.sort_values(["run", "tag", "step"], ignore_index=True)


def test_old_notebooks_get_frames_they_got(experiment_id, uploader):
    experiment = ExperimentFromDev(experiment_id, api_endpoint=uploader.server)
    for wall_time in (False, True):
        frame = experiment.get_scalars(include_wall_time=wall_time)
        pd.testing.assert_frame_equal(in_order(frame), as_tensorboard_had_it(wall_time=wall_time))
    wide = experiment.get_scalars(runs_filter="a", pivot=True)
    assert list(wide.columns) == ["run", "step", "acc", "loss"]
    assert wide.columns.name is None
    assert wide.to_numpy().tolist() == [
        ["a", step, -float(step), 2.0 * step] for step in STEPS["a"]
    ]
    timed = experiment.get_scalars(runs_filter="a", pivot=True, include_wall_time=True)
    assert timed["wall_time", "loss"].tolist() == [1.7e9 + step for step in STEPS["a"]]
    sample = experiment.get_scalars(runs_filter="[a]", tags_filter=".*oss")
    assert set(zip(sample["run"], sample["tag"], strict=True)) == {("a", "loss")}
    assert len(experiment.get_scalars(tags_filter="los")) == 0


def test_ragged_pivot_is_error_as_it_was(experiment_id):
    with pytest.raises(ValueError, match=r"missing value.*pivot=False"):
        ExperimentFromDev(experiment_id).get_scalars(pivot=True)


def test_experiment_is_named_by_its_id_its_url_or_link(api, uploader, experiment_id, monkeypatch):
    monkeypatch.delenv("TBHUB_TOKEN")
    url = f"{uploader.server}/experiment/{experiment_id}/"
    link = f"{url}?token={api.new_token(experiment_id, 'read')}#scalars"
    assert Experiment(link).runs == ["b", "a"]
    assert Experiment(url, token=uploader.token).runs == ["b", "a"]
    with pytest.raises(Refused, match="token"):
        _ = Experiment(url).runs
    monkeypatch.setenv("TBHUB_TOKEN", uploader.token)
    assert Experiment(url).runs == ["b", "a"]
    monkeypatch.setenv("TBHUB_SERVER", "https://tbhub.example.org")
    with pytest.raises(Refused, match="token"):  # which is not this server's
        _ = Experiment(url).runs
    for nothing in ("", "a b", "https://host/", "experiment/x"):
        with pytest.raises(UsageError):
            Experiment(nothing)


def test_what_is_missing_is_named():
    script = """
import sys
sys.modules["pandas"] = sys.modules["polars"] = None
from tbupload import Experiment, ExperimentFromDev
for ask in (Experiment("x").scalars, ExperimentFromDev("x").get_scalars):
    try:
        ask()
    except ImportError as error:
        print(error)
"""
    ended = run_to_end([sys.executable, "-c", script])
    assert ended.stdout.count("-m pip install pandas") == 2, ended.stderr


def examples():
    """Return the example of the package, and those of the README that use the client."""
    described = (
        tbupload.notebook.__doc__.split("\n\n", 1)[1].replace("\n    ", "\n").removeprefix("    ")
    )
    blocks = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    return [described, *(block for block in blocks if "Experiment" in block)]


@pytest.mark.parametrize("example", examples())
def test_example_that_people_are_shown_runs(example, uploader, experiment_id):
    shown = "https://tbhub.example.org/experiment/ID/"
    assert shown in example
    names = {}
    source = example.replace(shown, f"{uploader.server}/experiment/{experiment_id}/")
    exec(source.replace('"accuracy"', '"acc"'), names)  # noqa: S102 - that is the test
    assert names["best"].to_dict() == {"a": 0.0, "b": 0.0}
    assert (
        list(names["curves"].columns) == ["run", "step", "loss", "acc"]
        or "loss" in names["curves"].columns
    )
