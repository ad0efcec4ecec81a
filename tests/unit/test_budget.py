"""A few bytes of a record can expand to megabytes: then a chunk ends early, and a record gives a
bounded number of points.
"""

from __future__ import annotations

import pytest

from support.event_files import (
    hparams_event,
    plugin_event,
    scalar_event,
    summary_event,
    version_event,
    write_records,
)
from support.read_events import join, open_file, read_all, read_chunks
from tbupload.events import skip_reasons
from tbupload.events.decode import budget
from tbwire import tensorboard_pb2 as pb

TENSOR_BYTES = 4000


def filled(step, bytes_each=TENSOR_BYTES):
    """Return a tensor given by one number and a shape."""
    shape = pb.TensorShapeProto(dim=[{"size": bytes_each // 4}])
    return plugin_event(
        "mine", "filled", step, pb.TensorProto(dtype=1, tensor_shape=shape, float_val=[step])
    )


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "events.out.tfevents.1"
    events = [version_event()]
    for step in range(40):
        events += [
            filled(step),
            scalar_event("loss", step, step),
            hparams_event("_hparams_/x", str(step).encode()),
        ]
    write_records(path, events)
    return path


@pytest.mark.parametrize("tensors", [0, 1, 3, 39, 40])
def test_chunk_ends_when_its_tensors_are_enough(path, monkeypatch, tensors):
    whole = read_all(path)
    monkeypatch.setattr(budget, "CHUNK_TENSORS_BYTES_MAX", tensors * TENSOR_BYTES)
    chunks = read_chunks(open_file(path))
    assert len(chunks) == 40 // (tensors + 1) + 1
    assert [chunk.start for chunk in chunks] == [0, *(chunk.end for chunk in chunks[:-1])]
    assert chunks[-1].end == path.stat().st_size
    series, skipped = join(chunks)
    assert {tag: read.points for tag, read in series.items()} == {
        tag: read.points for tag, read in whole[0].items()
    }
    assert skipped == whole[1]
    written = 0
    for read in [
        series for chunk in chunks for series in chunk.series if series.plugin == "hparams"
    ]:
        written += len(read.columns.steps)
        latest = pb.SummaryMetadata.FromString(read.metadata).plugin_data.content
        assert latest == str(written - 1).encode()  # nothing of the records left for the next chunk


def test_record_gives_no_more_tensors_than_request_could_take(tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "RECORD_TENSORS_BYTES_MAX", 3 * TENSOR_BYTES)
    values = [filled(step).summary.value[0] for step in range(5)]
    write_records(
        tmp_path / "file", [summary_event(0, 1.0, *values), summary_event(1, 1.0, *values[:3])]
    )
    series, skipped = read_all(tmp_path / "file")
    assert [step for step, *_ in series["filled"].points] == [0, 0, 0, 1, 1, 1]
    assert skipped == {skip_reasons.RECORD_TOO_LARGE: 2}


def test_gzip_bomb_is_read_in_small_parts(tmp_path):
    write_records(tmp_path / "file", [filled(step, 4 << 20) for step in range(100)])
    file = open_file(tmp_path / "file")
    steps = []
    while (chunk := file.read()) is not None:
        (series,) = chunk.series
        assert sum(len(tensor.data) for tensor in series.columns.tensors) <= 36 << 20
        steps += series.columns.steps.tolist()
    assert steps == list(range(100))
