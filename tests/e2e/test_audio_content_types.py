"""Content types of legacy audio, from the event file through upload, read, verify and export, and
back.
"""

from __future__ import annotations

import re

import pytest
from tensorboard.backend.event_processing.event_accumulator import (
    STORE_EVERYTHING_SIZE_GUIDANCE,
    EventAccumulator,
)

from support import event_files
from tbservice.series.tables.upload_streams import stream_digest
from tbservice.types.series import Stream
from tbupload.events import filters
from tbupload.events.filters import SeriesFilter

NAME = "events.out.tfevents.1.host"
WAV = b"RIFF\x04\0\0\0WAVE"
LOGGED = [
    "audio/x-my",
    "audio/flac",
    "audio/mpeg",
    "text/html",
    "ж/ü",
    "a\r\nb\x1b\u202e",
    "",
    "audio/wav",
]
"""By step what is logged with the same clip: steps count from 0."""


def legacy(tag, step, content_type, clip=WAV, wall_time=event_files.WALL_TIME):
    return event_files.audio_event(
        tag, step, [clip], wall_time, style="legacy", content_type=content_type
    )


def write(logdir, *events, run="run"):
    event_files.write_records(logdir / run / NAME, [event_files.version_event(), *events])


def listed(reader, experiment_id, tag, run="run"):
    """Return {step: content type} of the classic API."""
    query = {"run": run, "tag": tag}
    answer = reader.http.get(f"/api/v0/experiments/{experiment_id}/audio", params=query)
    return {clip["step"]: clip["content_type"] for clip in answer.json()}


def upload(uploader, logdir, *arguments):
    ended = uploader.run("--logdir", logdir, "--one-shot", *arguments)
    assert ended.code == 0, ended.err
    return ended.experiment_id


def verify(uploader, logdir, experiment_id):
    return uploader.run("verify", "--logdir", logdir, "--experiment", experiment_id, "--strict")


def digests(reader, experiment_id):
    listed = reader.get(experiment_id, "digests")["series"]
    return {
        (series["run"], series["tag"]): (series["sha256"], series["metadata_sha256"])
        for series in listed
    }


def test_content_types_are_those_of_event_file(uploader, reader, logdir):
    write(logdir, *[legacy("clip", step, logged) for step, logged in enumerate(LOGGED)])
    experiment_id = upload(uploader, logdir)
    accumulator = EventAccumulator(
        str(logdir / "run"), size_guidance=STORE_EVERYTHING_SIZE_GUIDANCE
    ).Reload()
    stock = {event.step: event.content_type for event in accumulator.Audio("clip")}
    assert listed(reader, experiment_id, "clip") == stock | {LOGGED.index(""): "audio/wav"}
    assert verify(uploader, logdir, experiment_id).code == 0


def test_content_types_of_long_records_are_kept(uploader, reader, logdir):
    clips = [WAV + bytes([step]) * size for step, size in enumerate((10, 300_000, 9_000_000))]
    write(
        logdir, *[legacy("clip", step, f"audio/x-{step}", clip) for step, clip in enumerate(clips)]
    )
    experiment_id = upload(uploader, logdir)
    assert listed(reader, experiment_id, "clip") == {0: "audio/x-0", 1: "audio/x-1", 2: "audio/x-2"}
    assert verify(uploader, logdir, experiment_id).code == 0


def test_audio_of_tensorflow_2_is_told_by_its_bytes(uploader, reader, logdir):
    write(
        logdir,
        event_files.audio_event("clip", 1, [WAV, b"fLaC"]),
        event_files.audio_event("clip", 2, [b"noise"]),
    )
    experiment_id = upload(uploader, logdir)
    answer = reader.http.get(
        f"/api/v0/experiments/{experiment_id}/audio", params={"run": "run", "tag": "clip"}
    ).json()
    assert [clip["content_type"] for clip in answer] == [
        "audio/wav",
        "audio/flac",
        "application/octet-stream",
    ]
    metadata = reader.get(experiment_id, "blob_sequences")["run"]["clip"]["summary_metadata"]
    assert metadata["content"] == "EAs="  # AudioPluginData {encoding: WAV}, as it was logged


def test_content_type_that_cannot_be_kept_is_told(uploader, reader, logdir):
    write(
        logdir,
        legacy("clip", 1, "audio/wav"),
        legacy("clip", 2, "z" * 256),
        legacy("clip", 3, "audio/\0"),
    )
    reasons = {
        "content type of audio over the limit of 255 characters": 1,
        "audio whose content type has a NUL character": 1,
    }
    told = uploader.run("--logdir", logdir, "--dry-run", "--json")
    ended = uploader.run("--logdir", logdir, "--one-shot", "--json")
    assert (told.code, told.done["skipped"]) == (ended.code, ended.done["skipped"]) == (1, reasons)
    assert listed(reader, ended.experiment_id, "clip") == {1: "audio/wav"}


@pytest.mark.parametrize("changed", ["", "audio/wav"])
def test_verify_finds_changed_content_type(uploader, logdir, superuser, changed):
    write(logdir, *[legacy("clip", step, "audio/x-my") for step in range(3)])
    experiment_id = upload(uploader, logdir)
    assert verify(uploader, logdir, experiment_id).code == 0
    superuser.execute(
        "UPDATE blob_points SET logged_content_type = %s WHERE experiment_id = %s AND step = 1",
        (changed, experiment_id),
    )
    ended = verify(uploader, logdir, experiment_id)
    assert (ended.code, "run  clip  (audio): 1 point different (step 1)" in ended.out) == (
        1,
        True,
    ), ended.out


def test_export_and_upload_keep_content_types(uploader, reader, logdir, tmp_path):
    write(logdir, *[legacy("clip", step, logged) for step, logged in enumerate(LOGGED)])
    write(logdir, *[legacy("clip", step, "audio/x-my") for step in (-1, 300)], run="typed")
    named = legacy("named", 2, "audio/x-my")
    named.summary.value[0].metadata.display_name = "a name"
    named.summary.value[0].metadata.summary_description = "a description"
    large = legacy("large", 1, "audio/x-large", WAV + bytes(9_000_000))
    tensor_first = [
        event_files.audio_event("mixed", 5, [WAV]),
        *[legacy("mixed", s, f"audio/x-{s}") for s in (3, 4)],
    ]
    write(logdir, named, large, *tensor_first, event_files.image_event("cat", 1), run="other")
    first = upload(uploader, logdir)
    what = ("--experiment", first, "--format", "events", "--output", tmp_path / "exported")
    ended = uploader.run("export", *what, "--json")
    assert (ended.code, ended.done["losses"]) == (0, {}), ended.err
    again = upload(uploader, tmp_path / "exported")
    known = digests(reader, first)
    assert (digests(reader, again), len(known)) == (known, 6)
    assert listed(reader, again, "clip") == listed(reader, first, "clip")
    accumulator = EventAccumulator(
        str(tmp_path / "exported" / "run"), size_guidance=STORE_EVERYTHING_SIZE_GUIDANCE
    )
    logged = {event.step: event.content_type for event in accumulator.Reload().Audio("clip")}
    assert logged == {
        step: content_type for step, content_type in enumerate(LOGGED) if content_type
    }


def test_export_tells_content_types_it_cannot_write(uploader, reader, logdir, tmp_path):
    write(logdir, event_files.audio_event("mixed", 5, [WAV]), legacy("mixed", 5, "audio/x-my"))
    experiment_id = upload(uploader, logdir)
    assert listed(reader, experiment_id, "mixed") == {5: "audio/x-my"}
    what = ("--experiment", experiment_id, "--format", "events", "--output", tmp_path / "exported")
    ended = uploader.run("export", *what, "--json")
    assert ended.code == 1
    ((reason, count),) = ended.done["losses"].items()
    assert (re.search("without the content types", reason) is not None, count) == (True, 1)
    assert digests(reader, upload(uploader, tmp_path / "exported")).keys() == {("run", "mixed")}


def test_upload_of_older_version_gets_its_content_types(
    uploader, reader, logdir, superuser, monkeypatch
):
    write(logdir, *[legacy("clip", step, "audio/x-my") for step in range(3)])
    experiment_id = upload(uploader, logdir)
    # As that version left them: points without the type, and the stream of a decoder that did not
    # read it.
    superuser.execute(
        "UPDATE blob_points SET logged_content_type = '' WHERE experiment_id = %s", (experiment_id,)
    )
    (known,) = reader.get(experiment_id, "streams")["streams"]
    with monkeypatch.context() as patch:
        patch.setattr(filters, "DECODER_VERSION", 2)
        digest = SeriesFilter().digest()
    of = Stream(
        "run", NAME, bytes.fromhex(known["first_record_digest"]), known["generation"], digest
    )
    superuser.execute(
        "UPDATE upload_streams SET filters_digest = %s, stream_digest = %s WHERE experiment_id = %s",
        (digest, stream_digest(of), experiment_id),
    )
    assert verify(uploader, logdir, experiment_id).code == 1
    upload(uploader, logdir, "--experiment", experiment_id)
    assert verify(uploader, logdir, experiment_id).code == 0
