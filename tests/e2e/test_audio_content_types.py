"""Content types of legacy audio, from the event file through upload, read, verify and export, and
back.
"""

from __future__ import annotations

from tensorboard.backend.event_processing.event_accumulator import (
    STORE_EVERYTHING_SIZE_GUIDANCE,
    EventAccumulator,
)

from support import event_files

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


def legacy(tag, step, content_type, clip=WAV):
    return event_files.audio_event(tag, step, [clip], style="legacy", content_type=content_type)


def write(logdir, *events, run="run"):
    event_files.write_records(logdir / run / NAME, [event_files.version_event(), *events])


def listed(reader, experiment_id, tag):
    """Return {step: content type} of the classic API."""
    query = {"run": "run", "tag": tag}
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
