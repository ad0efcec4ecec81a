"""`tbupload share`, and what who has the link can do with `tbupload`."""

from __future__ import annotations

import json

import pytest

from support import event_files
from support.complete_logdir import write_complete_logdir


@pytest.fixture
def experiment(uploader, logdir):
    """An experiment with every kind of data, the same as the log directory."""
    sent = uploader.run("--logdir", write_complete_logdir(logdir), "--one-shot")
    assert sent.code == 0, sent.err
    return sent.experiment_id


def share(uploader, experiment, *options):
    """Make a link; return `tbupload` with its token, and the experiment that it opens."""
    ended = uploader.run("share", experiment, "--json", *options)
    assert ended.code == 0, ended.err
    link = json.loads(ended.out)
    reader = type(uploader)(uploader.server, link["token"], uploader.directory)
    return link, reader, link["url"].split("/experiment/")[1].split("/")[0]


def write_more(logdir, run="later"):
    events = [event_files.version_event(), event_files.scalar_event("loss", 1, 1.0)]
    event_files.write_records(logdir / run / "events.out.tfevents.1.host", events)


def test_frozen_link_is_proven_equal_to_what_was_uploaded(uploader, logdir, experiment, tmp_path):
    _, reader, copy = share(uploader, experiment, "--frozen")
    before = tmp_path / "before"
    logdir.rename(before)
    write_more(logdir)
    assert uploader.run("--logdir", logdir, "--one-shot", "--experiment", experiment).code == 0
    for path in (before, logdir):
        of = ("--logdir", path, "--experiment")
        assert uploader.run("verify", *of, experiment).code == 0
        assert reader.run("verify", *of, copy).code == (0 if path == before else 1)
    assert reader.run("verify", "--logdir", before, "--experiment", experiment).code == 1
    exported = tmp_path / "exported"
    ended = reader.run("export", "--experiment", copy, "--format", "csv", "--output", exported)
    assert ended.code == 0, ended.err


def test_link_of_no_run_says_so(uploader, experiment):
    warned = uploader.run("share", experiment, "--runs", "a/")
    assert warned.code == 0
    reason = "a/ matches none of 11 runs completely; did you mean a/b, a?"
    assert warned.err.startswith(f"the link shows nothing yet: {reason}")


def test_empty_pattern_makes_no_link(uploader, experiment):
    ended = uploader.run("share", experiment, "--runs", "")
    assert (ended.code, "--runs is empty" in ended.err) == (2, True)
