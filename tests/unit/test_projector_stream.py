"""The stream of a projector config: the selected embeddings, as one segment, and a reason for
each other.
"""

from __future__ import annotations

import re

import pytest

from support.projector import IN_CHECKPOINT, write_projector_run
from tbupload.commands.uploading.dry_run import DEFAULT_LIMITS
from tbupload.events.filters import SeriesFilter
from tbupload.logdir.scan import scan_logdir
from tbupload.upload.plugins.projector_stream import ProjectorStream, state_checksum
from tbwire import wire_pb2


@pytest.fixture
def logdir(tmp_path):
    write_projector_run(tmp_path / "run", more=IN_CHECKPOINT)
    return tmp_path


def stream(logdir, series_filter):
    (folder,) = scan_logdir(logdir, series_filter, DEFAULT_LIMITS.name_chars_max).projector_folders
    return ProjectorStream(folder, logdir, series_filter, DEFAULT_LIMITS)


@pytest.mark.parametrize(
    ("series_filter", "tags"),
    [
        (SeriesFilter(), ["_projector_/words", "_projector_/points"]),
        (SeriesFilter(exclude_tags=re.compile(".*words")), ["_projector_/points"]),
        (
            SeriesFilter(plugins=frozenset({"projector"})),
            ["_projector_/words", "_projector_/points"],
        ),
        (SeriesFilter(plugins=frozenset({"scalars"})), []),
    ],
)
def test_filter_chooses_embeddings_by_plugin_and_tag(logdir, series_filter, tags):
    segment, problems = stream(logdir, series_filter).segment()
    assert list(segment.metadata if segment else ()) == tags
    assert ["only TensorFlow can read" in problem for problem in problems] == [True]


def test_projector_segment_is_one_byte_per_state_of_files(logdir):
    series_filter = SeriesFilter()
    before = stream(logdir, series_filter)
    checksum = state_checksum(before.state())
    (sent,) = wire_pb2.WriteBatch.FromString(before.segment()[0].body).segments
    assert (sent.start, sent.end, sent.end_checksum) == (0, 1, checksum)
    assert (sent.stream.run, sent.stream.filters_digest) == ("run", series_filter.digest())
    (logdir / "run" / "bookmarks.json").write_text("[1]")
    assert state_checksum(stream(logdir, series_filter).state()) != checksum
