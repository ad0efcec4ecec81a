"""`tbupload --one-shot`, a live service, and the read API: what is in the files is stored, bit by
bit.
"""

import json
from pathlib import Path

import numpy as np

from support import event_files
from support.uploading import tensorboard_scalars

DATA = Path(__file__).parent.parent / "data"


def write_run(logdir, run, points, tag="loss", name="events.out.tfevents.1.host"):
    events = [
        event_files.version_event(),
        *(event_files.scalar_event(tag, step, value) for step, value in points),
    ]
    event_files.write_records(logdir / run / name, events)
    return logdir / run / name


def values(scalars, run="run", tag="loss"):
    return {step: value for step, (_, value) in scalars[run][tag].items()}


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


def test_second_upload_of_same_files_sends_nothing(uploader, reader, logdir):
    write_run(logdir, "run", [(step, float(step)) for step in range(100)])
    first = uploader.run("--logdir", logdir, "--one-shot", "--json")
    before = reader.scalars(first.experiment_id)
    again = uploader.run(
        "--logdir", logdir, "--one-shot", "--json", "--experiment", first.experiment_id
    )
    assert (again.code, again.done["scalars"], again.done["bytes"]) == (0, 0, 0)
    assert again.experiment_id == first.experiment_id
    assert reader.scalars(first.experiment_id) == before


def test_corrupt_file_is_named_and_others_go_on(uploader, reader, logdir):
    bad = write_run(logdir, "bad", [(step, float(step)) for step in range(10)])
    event_files.spoil_length_checksum(bad, 5)
    write_run(logdir, "good", [(1, 1.0)])
    (logdir / "none").mkdir()
    (logdir / "none" / "tfevents.txt").write_text("this is a text, and no event file at all")
    ended = uploader.run("--logdir", logdir, "--one-shot", "--json")
    assert ended.code == 1
    assert ended.done["skipped"] == {"corrupt file": 1, "file that is no event file": 1}
    assert str(bad) in ended.err
    assert "tfevents.txt" in ended.err
    stored = reader.scalars(ended.experiment_id)
    assert values(stored, "good") == {1: 1.0}
    assert values(stored, "bad") == {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0}


def test_damaged_record_is_counted_at_upload_and_at_resume(uploader, reader, logdir):
    path = write_run(logdir, "run", [(step, float(step)) for step in range(10)])
    event_files.spoil_payload(path, 5)
    first = uploader.run("--logdir", logdir, "--one-shot", "--json")
    again = uploader.run(
        "--logdir", logdir, "--one-shot", "--json", "--experiment", first.experiment_id
    )
    assert (first.code, again.code) == (1, 1)
    assert sum(first.done["skipped"].values()) == 1
    assert again.done["skipped"] == first.done["skipped"]
    assert again.done["scalars"] == 0
    assert len(values(reader.scalars(first.experiment_id))) == 9


def test_record_cut_short_is_left_for_later(uploader, reader, logdir):
    path = write_run(logdir, "run", [(step, float(step)) for step in range(10)])
    whole = path.read_bytes()
    event_files.cut(path, -7)
    first = uploader.run("--logdir", logdir, "--one-shot")
    assert first.code == 0
    assert "of an incomplete record" in first.err
    assert len(values(reader.scalars(first.experiment_id))) == 9
    path.write_bytes(whole)
    assert (
        uploader.run("--logdir", logdir, "--one-shot", "--experiment", first.experiment_id).code
        == 0
    )
    assert len(values(reader.scalars(first.experiment_id))) == 10


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
    assert reader.get(ended.experiment_id, "scalars")["run"]["loss"]["count"] == 5


def test_record_too_large_for_one_request_is_sent_as_objects(uploader, reader, logdir):
    parts = [value for number in range(5) for value in constant(f"t{number}", 1).summary.value]
    event_files.write_records(
        logdir / "run" / "tfevents.1",
        [event_files.version_event(), event_files.summary_event(1, 1.0, *parts)],
    )
    ended = uploader.run("--logdir", logdir, "--one-shot", "--json")
    assert ended.code == 0, ended.err
    assert len(reader.get(ended.experiment_id, "tensors")["run"]) == len(parts)


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


def test_wrong_token_ends_with_1_and_says_what_to_do(uploader, logdir):
    write_run(logdir, "run", [(1, 1.0)])
    stranger = type(uploader)(uploader.server, "tbh_" + "x" * 40, uploader.directory)
    ended = stranger.run_process("--logdir", logdir, "--one-shot")
    assert (ended.code, ended.out) == (1, "")
    assert "tbupload login" in ended.err


def test_experiment_that_is_not_there_ends_with_1(uploader, logdir):
    write_run(logdir, "run", [(1, 1.0)])
    ended = uploader.run("--logdir", logdir, "--one-shot", "--experiment", "0" * 22)
    assert ended.code == 1
    assert "there is no experiment " in ended.err
