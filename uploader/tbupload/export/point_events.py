"""Tensors and blob sequences as the records that preserve most of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import IO, Final, NamedTuple

import google_crc32c

from tbupload.events.points import Tensor
from tbupload.events.tf_record import footer, header
from tbupload.export.event_records import (
    audio_record_head,
    blob_record_head,
    is_as_written,
    is_legacy_audio,
    tensor_record,
)
from tbupload.export.remote_series import RemoteBlob, RemoteSeries
from tbwire.points import BlobSequencePoints, TensorPoints

HISTOGRAM_LOST: Final = (
    "legacy histograms are written as tensors, without the fields only they have"
)
CONTENT_TYPE_LOST: Final = (
    "blobs are written as tensors, without the content types that were logged with them"
)


class BlobPoint(NamedTuple):
    """The blobs of one step, and the content type that was logged with them."""

    step: int
    wall_time: float
    blobs: Sequence[RemoteBlob]
    content_type: str


def blob_points(
    series: RemoteSeries, columns: BlobSequencePoints[RemoteBlob], metadata: bytes | None
) -> list[BlobPoint]:
    """Return the points of a part; the first one has a form that preserves the series' metadata.

    Points in legacy audio form are moved back unless the metadata is that of legacy audio.
    """
    steps, wall_times = columns.steps.tolist(), columns.wall_times.tolist()
    rows = zip(steps, wall_times, columns.sequences, columns.logged_content_types)
    points = [BlobPoint(*row) for row in rows]
    if metadata is not None and not is_legacy_audio(series.tag, metadata):
        points.sort(key=lambda point: point.content_type != "")
    return points


def _may_be_audio(series: RemoteSeries, point: BlobPoint, metadata: bytes | None) -> bool:
    """Return whether a point in legacy audio form is read as a point of this series."""
    is_clip = series.plugin == "audio" and len(point.blobs) == 1
    return is_clip and (metadata is None or is_legacy_audio(series.tag, metadata))


def blob_head(
    series: RemoteSeries, point: BlobPoint, metadata: bytes | None, notes: Counter[str]
) -> tuple[bytes, list[bytes], int]:
    """Return what `write_blob_record` needs of a point; count a lost content type in `notes`."""
    sizes = [blob.size for blob in point.blobs]
    if point.content_type and _may_be_audio(series, point, metadata):
        return audio_record_head(
            series.tag, point.step, point.wall_time, sizes[0], point.content_type, metadata
        )
    notes[CONTENT_TYPE_LOST] += point.content_type != ""
    return blob_record_head(series.tag, point.step, point.wall_time, sizes, metadata)


def write_blob_record(
    file: IO[bytes], head: tuple[bytes, list[bytes], int], contents: Iterator[Iterator[bytes]]
) -> None:
    """Write a record; `head` is a result of `blob_head`."""
    payload, prefixes, size = head
    file.write(header(size) + payload)
    checksum = google_crc32c.value(payload)
    for prefix in prefixes:
        for chunk in chain([prefix], next(contents)):
            checksum = google_crc32c.extend(checksum, chunk)
            file.write(chunk)
    file.write(footer(checksum))


def write_tensors(
    file: IO[bytes],
    tag: str,
    columns: TensorPoints[Tensor],
    metadata: bytes | None,
    notes: Counter[str],
) -> None:
    """Write the tensors of a part; the first one has a form that preserves the series' metadata."""
    points = list(zip(columns.steps.tolist(), columns.wall_times.tolist(), columns.tensors))
    if metadata is not None:
        points.sort(
            key=lambda point: (
                point[2].histogram is not None and not is_as_written(tag, point[2], metadata)
            )
        )
    for step, wall_time, tensor in points:
        written = tensor
        if tensor.histogram is not None and not is_as_written(tag, tensor, metadata):
            notes[HISTOGRAM_LOST] += 1
            written = replace(tensor, histogram=None)
        file.write(tensor_record(tag, step, wall_time, written, metadata))
        metadata = None
