"""`tbupload verify` proves what was uploaded, and names all that happened to it afterwards."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from support import event_files
from tbupload.cli import main

DATA = Path(__file__).parent.parent / "data"
NAME = "events.out.tfevents.1.host"
LAST_BYTE = "SET data = set_byte(data, length(data) - 1, get_byte(data, length(data) - 1) # 1)"


def write(logdir, run, *events, name=NAME):
    event_files.write_records(logdir / run / name, [event_files.version_event(), *events])
    return logdir / run / name


def scalars(tag, points, wall_time=event_files.WALL_TIME):
    return [event_files.scalar_event(tag, step, value, wall_time) for step, value in points]


def line(count, start=0):
    return [(step, step / 3) for step in range(start, start + count)]


@pytest.fixture
def upload(uploader, logdir):
    """Upload the log directory, to an experiment if one is named; return the experiment's id."""

    def upload(*arguments):
        ended = uploader.run("--logdir", logdir, "--one-shot", *arguments)
        assert ended.code == 0, ended.err
        return ended.experiment_id

    return upload


@pytest.fixture
def verify(configured, logdir, capsys):  # noqa: ARG001 - it sets the variables
    """Verify the log directory against an experiment; return exit code, findings by run and tag,
    and the verdict.

    In this process, which takes a tenth of the time.
    """

    def verify(experiment_id, *arguments, directory=logdir):
        capsys.readouterr()
        code = main(
            [
                "verify",
                "--logdir",
                str(directory),
                "--experiment",
                experiment_id,
                "--json",
                *arguments,
            ]
        )
        out, err = capsys.readouterr()
        *told, verdict = map(json.loads, out.splitlines())
        assert verdict.pop("event") == "verified", err
        findings = [each for each in told if each["event"] == "series"]
        return code, {(series["run"], series["tag"]): series for series in findings}, verdict

    return verify


OF_SERIES = """
    WHERE (experiment_id, series_id) = (
        SELECT s.experiment_id, s.series_id FROM time_series AS s
        JOIN runs USING (experiment_id, run_id) JOIN tags USING (experiment_id, tag_id)
        WHERE s.experiment_id = %s AND runs.name = %s AND tags.name = %s)
"""


def change(connection, statement, experiment_id, run, tag):
    """Run a statement on the rows of a series; at least one must match."""
    assert connection.execute(statement + OF_SERIES, (experiment_id, run, tag)).rowcount > 0


def differing(findings):
    return {name: series for name, series in findings.items() if series["status"] != "proven"}


def test_verify_proves_files_of_all_real_writers(uploader, verify):
    uploaded = uploader.run("--logdir", DATA, "--one-shot", "--json")
    code, findings, verdict = verify(uploaded.experiment_id, "--strict", directory=DATA)
    assert not differing(findings)
    assert {series["data_class"] for series in findings.values()} == {
        "scalar",
        "tensor",
        "blob_sequence",
    }
    assert len(findings) == verdict["series"]["proven"] > 100
    assert verdict["skipped"] == uploaded.done["skipped"]
    assert (code, verdict["proven"]) == (uploaded.code, not verdict["skipped"])


def make_logdir(logdir):
    """Write a run that stays undamaged, and one series or run for each kind of damage."""
    for run in ("whole", "gone"):
        write(logdir, run, *scalars("loss", line(20)))
    write(
        logdir,
        "train",
        *[
            event
            for tag in ("deleted", "rows", "altered", "later")
            for event in scalars(tag, line(30))
        ],
        *scalars("sealed", line(3_000)),
        *[
            event_files.text_event(tag, step, f"{tag} {step}")
            for tag in ("text", "words")
            for step in range(4)
        ],
        *[event_files.image_event("cat", step, [b"a", b"b"]) for step in range(3)],
        event_files.hparams_event("_hparams_/session_start_info", b"content"),
    )
    return write(logdir, "grows", *scalars("loss", line(10)))


def damage(experiment_id, uploader, reader, superuser, logdir, growing):
    """Damage stored data in every way, each in a series of its own."""
    http = f"/api/v1/experiments/{experiment_id}"
    reader.http.delete(
        f"{http}/series", params={"run": "train", "tag": "deleted"}
    ).raise_for_status()
    reader.http.delete(f"{http}/runs", params={"run": "gone"}).raise_for_status()
    change(superuser, "DELETE FROM scalar_tail", experiment_id, "train", "rows")
    change(superuser, f"UPDATE scalar_tail {LAST_BYTE}", experiment_id, "train", "altered")
    change(superuser, f"UPDATE scalar_blocks {LAST_BYTE}", experiment_id, "train", "sealed")
    change(
        superuser,
        "UPDATE tensor_points SET data = data || 'x', dtype = dtype",
        experiment_id,
        "train",
        "text",
    )
    later = (
        "UPDATE tensor_points SET wall_time = wall_time + CASE WHEN step = 2 THEN 1e-6 ELSE 0 END"
    )
    change(superuser, later, experiment_id, "train", "words")
    change(
        superuser,
        "UPDATE blob_points SET digests = digests[2:] || digests[1]",
        experiment_id,
        "train",
        "cat",
    )
    change(
        superuser,
        "UPDATE time_series SET summary_metadata = summary_metadata || '\\x1a00'",
        experiment_id,
        "train",
        "_hparams_/session_start_info",
    )
    other = logdir.parent / "other"
    write(
        other,
        "train",
        *scalars("later", [(7, 0.5), (100, 1.0)], event_files.WALL_TIME + 1),
        name="tfevents.2",
    )
    write(other, "train", *scalars("new", [(0, 0.0)]), name="tfevents.3")
    write(other, "elsewhere", *scalars("loss", [(0, 0.0)]))
    assert uploader.run("--logdir", other, "--one-shot", "--experiment", experiment_id).code == 0
    event_files.write_records(growing, scalars("loss", line(4, start=10)), append=True)


def test_verify_names_each_kind_of_damage_only(uploader, reader, superuser, logdir, upload, verify):
    growing = make_logdir(logdir)
    experiment_id = upload()
    assert verify(experiment_id, "--strict")[0] == 0
    damage(experiment_id, uploader, reader, superuser, logdir, growing)
    code, findings, verdict = verify(experiment_id)
    steps = ("missing", "different", "extra")
    told = {
        name: (series["status"], *(series.get(kind) for kind in steps))
        for name, series in findings.items()
    }
    assert told == {
        ("whole", "loss"): ("proven", None, None, None),
        ("gone", "loss"): ("missing", None, None, None),
        ("grows", "loss"): ("different", 4, 0, 0),
        ("train", "deleted"): ("missing", None, None, None),
        ("train", "rows"): ("different", 30, 0, 0),
        ("train", "altered"): ("different", 0, 1, 0),
        ("train", "later"): ("different", 0, 1, 1),
        # A damaged byte of a compressed block, whose checksum then differs, leaves nothing of it.
        ("train", "sealed"): ("different", 3_000, 0, 0),
        ("train", "text"): ("different", 0, 4, 0),
        ("train", "words"): ("different", 0, 1, 0),
        ("train", "cat"): ("different", 0, 3, 0),
        ("train", "_hparams_/session_start_info"): ("different", None, None, None),
        ("train", "new"): ("extra", None, None, None),
    }
    assert (
        findings["grows", "loss"]["first_missing_steps"],
        findings["grows", "loss"]["points"],
    ) == (
        [10, 11, 12, 13],
        14,
    )
    assert findings["train", "altered"]["first_different_steps"] == [29]
    assert (
        findings["train", "later"]["first_different_steps"],
        findings["train", "later"]["first_extra_steps"],
    ) == (
        [7],
        [100],
    )
    assert findings["train", "_hparams_/session_start_info"]["reasons"] == [
        "its summary metadata differs"
    ]
    assert (code, verdict["proven"], verdict["extra_runs"]) == (1, False, ["elsewhere"])
    assert verdict["series"] == {
        "proven": 1,
        "missing": 2,
        "different": 9,
        "extra": 1,
        "damaged": 0,
    }
    text = uploader.run("verify", "--logdir", logdir, "--experiment", experiment_id)
    assert text.code == 1
    assert (
        "different  train  later  (scalars): 1 point different (step 7); 1 point extra (step 100)\n"
        in text.out
    )
    assert "missing    gone  loss  (scalars): the whole series is missing\n" in text.out
    assert "DOES NOT MATCH" in text.out
    assert "whole" not in text.out.replace("whole series", "")


def test_verify_reports_cut_record_and_fails_for_damaged(logdir, upload, verify, uploader):
    path = write(logdir, "run", *scalars("loss", line(20)))
    event_files.cut(path, -5)
    experiment_id = upload()
    code, findings, verdict = verify(experiment_id)
    assert (code, findings["run", "loss"]["points"]) == (0, 19)
    assert verdict["notes"][0].startswith(f"{path}: ends with")
    event_files.spoil_payload(path, 5)
    event_files.spoil_length_checksum(write(logdir, "bad", *scalars("loss", line(9))), 4)
    uploaded = uploader.run("--logdir", logdir, "--one-shot", "--new", "--json")
    code, findings, verdict = verify(uploaded.experiment_id, "--strict")
    assert not differing(findings)
    assert (code, uploaded.code) == (1, 1)
    assert verdict["skipped"] == uploaded.done["skipped"]
    assert len(verdict["problems"]) == 1


def test_filters_are_those_of_upload_and_read_token_is_enough(
    uploader, reader, logdir, upload, verify
):
    for run in ("train", "eval"):
        write(
            logdir,
            run,
            *scalars("loss", line(5)),
            *scalars("accuracy", line(5)),
            event_files.text_event("n", 0, "t"),
        )
    filters = ("--plugins", "scalars", "--include-tags", "lo.*|n", "--exclude-runs", "ev.*")
    experiment_id = upload(*filters)
    assert verify(experiment_id, "--strict", *filters)[0] == 0
    code, findings, _ = verify(experiment_id)
    missing = {
        ("train", "accuracy"),
        ("train", "n"),
        *(("eval", tag) for tag in ("loss", "accuracy", "n")),
    }
    assert (code, differing(findings).keys()) == (1, missing)
    everything = upload()
    assert verify(everything, "--strict", *filters)[0] == 0  # what they leave out is not looked at
    made = reader.http.post(
        f"/api/v1/experiments/{everything}/tokens", json={"scopes": ["read"]}
    ).json()
    guest = type(uploader)(uploader.server, made["token"], uploader.directory)
    proven = guest.run(
        "verify", "--logdir", logdir, "--experiment", f"{uploader.server}/experiment/{everything}/"
    )
    assert proven.code == 0, proven.err
    assert proven.out.startswith(f"matches: experiment {everything} has all points of the files")
    refused = guest.run("verify", "--logdir", logdir, "--experiment", experiment_id)
    assert (refused.code, "there is no experiment " in refused.err) == (1, True)


INLINE, WHOLE, PIECES = (os.urandom(1_000) * count for count in (1, 300, 9_300))
"""Images that travel inside their batch, alone, and in two pieces."""

SIDE = b"1"
PHOTOS = [[SIDE, SIDE, image] for image in (INLINE, WHOLE, PIECES)]
"""The server's image of each step: width, height, image."""


def write_photos(logdir):
    """Write three images of one run, of different sizes; and a run without any."""
    photos = [
        event_files.image_event("photo", step, [image])
        for step, image in enumerate((INLINE, WHOLE, PIECES))
    ]
    write(logdir, "run", *photos, *scalars("loss", line(3)))
    write(logdir, "scalars", *scalars("loss", line(3)))


def lost_steps(findings):
    """Return the steps of the lost objects of the images by problem."""
    lost = findings["run", "photo"].get("lost_objects", {})
    return {problem: fault["first_steps"] for problem, fault in lost.items()}


def test_verify_names_lost_objects_and_repairs_them(reader, logdir, upload, verify, bucket):
    write_photos(logdir)
    experiment_id = upload()
    for arguments in ((), ("--deep",)):
        code, findings, verdict = verify(experiment_id, *arguments)
        size = len(INLINE + WHOLE + PIECES + SIDE)
        assert (code, verdict["objects"]) == (0, {"checked": 4, "bytes": size, "lost": 0})
    bucket.delete(INLINE, WHOLE, PIECES)
    code, findings, verdict = verify(experiment_id)
    assert (code, verdict["proven"], verdict["objects"]["lost"]) == (1, False, 3)
    assert differing(findings).keys() == {("run", "photo")}
    assert (findings["run", "photo"]["status"], lost_steps(findings)) == (
        "damaged",
        {"missing": [0, 1, 2]},
    )
    code, findings, verdict = verify(experiment_id, "--repair")
    assert (code, verdict["proven"], lost_steps(findings)) == (0, True, {})
    assert reader.blobs(experiment_id, "run", "photo") == PHOTOS
    assert verify(experiment_id, "--deep", "--strict")[0] == 0


def test_verify_deep_finds_changed_bytes_and_repairs(uploader, reader, logdir, upload, bucket):
    write_photos(logdir)
    experiment_id = upload()
    bucket.replace(INLINE, INLINE[::-1])
    bucket.replace(WHOLE, b"short")
    bucket.replace(PIECES, PIECES[::-1])
    arguments = ("verify", "--logdir", logdir, "--experiment", experiment_id)
    shallow = uploader.run(*arguments)
    assert shallow.code == 1
    of_photos = (
        "damaged    run  photo  (images): 1 blob of a wrong size in the object store (step 1)"
    )
    assert of_photos in shallow.out
    deep = uploader.run(*arguments, "--deep")
    assert "2 blobs with damaged bytes in the object store (steps 0, 2)" in deep.out
    (advice,) = [told for told in deep.out.splitlines() if told.endswith("--repair")]
    program, *command = shlex.split(advice.partition("these files: ")[2])
    repaired = uploader.run(*command)
    assert (program, repaired.code) == ("tbupload", 0), repaired.err
    assert "sent again: 3 objects" in repaired.out
    assert reader.blobs(experiment_id, "run", "photo") == PHOTOS
    assert [len(bucket.keys(content)) for content in (INLINE, WHOLE, PIECES)] == [1, 1, 1]


def test_verify_repair_names_what_no_file_has(uploader, logdir, upload, bucket, verify):
    write_photos(logdir)
    experiment_id = upload()
    bucket.delete(INLINE)
    write(logdir, "run", event_files.image_event("photo", 1, [WHOLE]))
    ended = uploader.run("verify", "--logdir", logdir, "--experiment", experiment_id, "--repair")
    assert (ended.code, "1 lost object not found in the files" in ended.err) == (1, True)
    assert lost_steps(verify(experiment_id)[1]) == {"missing": [0]}
