"""`tbupload --one-shot`, a live service, and the read API: what is in the files is stored, bit by
bit.
"""

import json
from pathlib import Path

import numpy as np

from support import event_files
from support.uploading import tensorboard_scalars

DATA = Path(__file__).parent.parent / "data"


def write_run(logdir, run, points):
    events = [
        event_files.version_event(),
        *(event_files.scalar_event("loss", step, value) for step, value in points),
    ]
    path = logdir / run / "events.out.tfevents.1.host"
    event_files.write_records(path, events)
    return path


def values(scalars, run="run"):
    return {step: value for step, (_, value) in scalars[run]["loss"].items()}


def test_upload_of_real_writers_equals_tensorboard(uploader, reader):
    ended = uploader.run("--logdir", DATA, "--one-shot", "--json", "--plugins", "scalars")
    expected = tensorboard_scalars(DATA)
    assert len(expected) > 15
    np.testing.assert_equal(reader.scalars(ended.experiment_id), expected)
    assert ended.code == (1 if ended.done["skipped"] else 0)


def test_url_comes_on_stdout_and_summary_on_stderr(uploader, logdir):
    write_run(logdir, "run", [(0, 1.0)])
    ended = uploader.run_process("--logdir", logdir, "--one-shot", "--name", "a name")
    assert ended.code == 0
    assert ended.out == f"{uploader.server}/experiment/{ended.experiment_id}/\n"
    assert f"tbupload share {ended.experiment_id}" in ended.err
    assert "sent 1 scalar of 1 series in 1 run (" in ended.err
    assert f"{ended.experiment_id}  " in uploader.run_process("list").out
    assert "name: a name" in uploader.run_process("show", ended.experiment_id).out


def test_json_begins_with_created_and_ends_with_done(uploader, logdir):
    write_run(logdir, "run", [(0, 1.0)])
    ended = uploader.run_process("--logdir", logdir, "--one-shot", "--json", "--quiet")
    first, last = map(json.loads, ended.out.splitlines())
    assert first == {"event": "created", "experiment_id": ended.experiment_id, "url": first["url"]}
    assert (last["event"], last["scalars"], last["skipped"]) == ("done", 1, {})
    assert ended.err == ""


def constant(tag, step):
    """A tensor of 4 MiB that takes a few bytes in the file: one value is repeated."""
    shape = event_files.pb.TensorShapeProto(dim=[event_files.pb.TensorShapeProto.Dim(size=1 << 20)])
    tensor = event_files.pb.TensorProto(dtype=1, tensor_shape=shape, float_val=[1.5])
    return event_files.plugin_event("a_plugin", tag, step, tensor, data_class=2)


def test_upload_splits_records_too_large_for_one_request(uploader, reader, logdir):
    events = [event_files.version_event(), *(constant("t", step) for step in range(6))]
    events += [event_files.scalar_event("loss", step, 1.0) for step in range(5)]
    event_files.write_records(logdir / "run" / "tfevents.1", events)
    ended = uploader.run("--logdir", logdir, "--one-shot", "--json")
    assert ended.code == 0, ended.err
    assert reader.get(ended.experiment_id, "tensors")["run"]["t"]["count"] == 6
    assert reader.count(ended.experiment_id) == 5


def test_append_only_token_is_enough_to_go_on_with_experiment(uploader, reader, logdir):
    write_run(logdir, "run", [(1, 1.0)])
    experiment_id = uploader.run("--logdir", logdir, "--one-shot").experiment_id
    answer = reader.http.post(
        f"/api/v1/experiments/{experiment_id}/tokens", json={"scopes": ["append"]}
    )
    write_run(logdir, "other", [(1, 1.0)])
    limited = type(uploader)(uploader.server, answer.json()["token"], uploader.directory)
    assert limited.run("--logdir", logdir, "--one-shot", "--experiment", experiment_id).code == 0
    assert reader.scalars(experiment_id).keys() == {"run", "other"}
    refused = limited.run("--logdir", logdir, "--one-shot", "--new")
    assert refused.code == 1
    assert "may not do this" in refused.err


def test_experiment_that_is_not_there_ends_with_1(uploader, logdir):
    write_run(logdir, "run", [(1, 1.0)])
    ended = uploader.run("--logdir", logdir, "--one-shot", "--experiment", "0" * 22)
    assert ended.code == 1
    assert "there is no experiment " in ended.err
