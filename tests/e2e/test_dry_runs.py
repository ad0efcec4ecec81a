"""A dry run counts what the upload then uploads, and `tbupload verify` reports the same: with
every kind of data and of problem in one log directory.
"""

from __future__ import annotations

import json

import pytest

from support import event_files
from support.projector import IN_CHECKPOINT, write_projector_run
from tbwire import tensorboard_pb2 as pb

NAME = "events.out.tfevents.{}.host"
ASSETS = "plugins/org_tensorflow_tensorboard_projector"
SERIES, EMBEDDINGS, RUNS = 12, 5, 7
MIB = 1 << 20


def write(logdir, run, number, *events):
    path = logdir / run / NAME.format(number)
    event_files.write_records(path, [event_files.version_event(), *events])
    return path


def scalars(tag, count):
    return [event_files.scalar_event(tag, step, step / 3) for step in range(count)]


def texts(tag, count):
    return [event_files.text_event(tag, step, f"{tag} {step}") for step in range(count)]


def belongs(tag, plugin):
    return f"tag {tag!r} belongs to plugin {plugin!r} in this run already"


@pytest.fixture
def everything(logdir):
    """A log directory with every kind of data and of problem; two files of one run have the same
    tags of different plugins.

    The first file is longer than one read; the tag `late` is at its end, so that the second file's
    comes first.
    """
    pictures = [
        event_files.image_event("cat", step, [bytes([step]) * (2 * MIB), b"small"])
        for step in range(3)
    ]
    write(
        logdir,
        "train",
        1,
        *scalars("shared", 7),
        *pictures,
        *scalars("late", 5),
        *texts("words", 2),
    )
    write(logdir, "train", 2, *texts("late", 4), *texts("shared", 3))
    write(
        logdir, "train", 3, event_files.image_event("words", 0, [b"a", b"b"]), *scalars("late", 6)
    )
    write_projector_run(logdir / "train", more=IN_CHECKPOINT)
    write_projector_run(
        logdir / "train" / ASSETS, seed=1
    )  # of the same names: it comes second, and is the newer
    write(logdir, "assets", 1, *scalars("_projector_/points", 3))
    write_projector_run(logdir / "assets" / ASSETS)
    long = 'embeddings { tensor_name: "%s" tensor_path: "00000/words/tensors.tsv" }' % (
        "x" * 10_000
    )
    write_projector_run(logdir / "only" / "embeddings", more=long)
    (logdir / "no config").mkdir()
    (logdir / "no config" / "projector_config.pbtxt").write_text("embeddings {")
    event_files.spoil_payload(write(logdir, "damaged", 1, *scalars("loss", 9)), 4)
    event_files.spoil_length_checksum(write(logdir, "bad", 1, *scalars("loss", 9)), 5)
    (logdir / "text.tfevents").write_text("this is no event file, whatever its name")
    (logdir / "nowhere.tfevents").symlink_to("/nonexistent")
    return logdir


def counts(told, *keys):
    """Return the counts of the last JSON object that must be equal; problems are sorted."""
    keys = keys or (
        "scalars",
        "tensors",
        "blobs",
        "bytes",
        "runs",
        "series",
        "skipped",
        "problems",
        "empty_values",
        "superseded",
    )
    return {key: sorted(told[key]) if key == "problems" else told[key] for key in keys}


def verified(uploader, logdir, experiment_id, *arguments):
    """Return the exit code, the status of each series, and the verdict."""
    ended = uploader.run(
        "verify", "--logdir", logdir, "--experiment", experiment_id, "--json", *arguments
    )
    *findings, verdict = map(json.loads, ended.out.splitlines())
    return (
        ended.code,
        {(series["run"], series["tag"]): series["status"] for series in findings},
        verdict,
    )


def test_dry_run_counts_what_upload_and_verify_count(uploader, reader, everything):
    dry = uploader.run("--logdir", everything, "--dry-run", "--json")
    assert reader.experiments() == []
    real = uploader.run("--logdir", everything, "--one-shot", "--json")
    assert counts(dry.done) == counts(real.done)
    assert (dry.code, real.code) == (1, 1)
    for line in (
        "would be sent",
        "skipped 3: tag 'shared' belongs to plugin 'scalars' in this run already",
    ):
        assert line in dry.err
    misfits = {
        reason: count for reason, count in real.done["skipped"].items() if "belongs" in reason
    }
    assert misfits == {
        belongs("shared", "scalars"): 3,
        belongs("late", "text"): 5 + 6,
        belongs("words", "images"): 2,
        belongs("_projector_/points", "scalars"): 1,
    }
    told = " ".join(real.done["problems"])
    for problem in (
        "'layer/kernel' is in a checkpoint",
        "has 10,000 characters; the server takes 9,988",
    ):
        assert problem in told
    assert "no config/projector_config.pbtxt: is not a projector config" in told
    of_images, of_words, of_points = 3 * 4 + 4, 1 + 3, 1 + 2
    assert real.done["blobs"] == of_images + 4 * of_words + 3 * of_points
    assert real.done["series"] == SERIES
    assert 6 * MIB < dry.done["wire_bytes"] < 7 * MIB

    code, findings, verdict = verified(uploader, everything, real.experiment_id, "--strict")
    assert set(findings.values()) == {"proven"}
    assert (code, len(findings), verdict["embeddings"], verdict["runs"]) == (
        1,
        SERIES,
        EMBEDDINGS,
        RUNS,
    )
    again = uploader.run(
        "--logdir", everything, "--one-shot", "--experiment", real.experiment_id, "--json"
    )
    assert (again.done["blobs"], again.done["skipped"]) == (0, real.done["skipped"])
    assert counts(verdict, "skipped", "problems") == counts(real.done, "skipped", "problems")


def test_empty_values_and_repeated_steps_are_told_and_no_fault(uploader, logdir):
    empty = pb.Summary.Value(tag="video")  # what torch's add_video writes without moviepy
    steps = [event_files.scalar_event("no step", 0, value, 100.0 + value) for value in range(10)]
    mixed = event_files.summary_event(
        1, 1.0, empty, event_files.scalar_event("loss", 1, 1.0).summary.value[0], empty
    )
    long = event_files.summary_event(
        2, 1.0, empty, event_files.image_event("image", 2, [bytes(9 * MIB)]).summary.value[0]
    )
    write(
        logdir,
        "a",
        1,
        *steps,
        mixed,
        *[event_files.summary_event(0, 1.0, empty)] * 20,
        *scalars("loss", 1),
    )
    write(logdir, "a/long", 1, long)
    write(logdir, "b", 1, event_files.summary_event(0, 1.0, empty))
    dry = uploader.run("--logdir", logdir, "--dry-run", "--json")
    real = uploader.run("--logdir", logdir, "--one-shot", "--json")
    assert (dry.code, real.code) == (0, 0), real.err
    assert counts(dry.done) == counts(real.done)
    assert (real.done["empty_values"], real.done["superseded"], real.done["skipped"]) == (24, 9, {})
    for line in (
        "9 superseded",
        "1 series with all points at one step: log with a step",
        "ignored 24 empty values",
    ):
        assert line in real.err
        assert line in dry.err
    code, findings, verdict = verified(uploader, logdir, real.experiment_id, "--strict")
    assert (code, set(findings.values()), verdict["proven"]) == (0, {"proven"}, True)
    assert (verdict["empty_values"], verdict["superseded"]) == (24, 9)
    ended = uploader.run("verify", "--logdir", logdir, "--experiment", real.experiment_id)
    assert (ended.code, "and 9 superseded points: " in ended.out) == (0, True)
