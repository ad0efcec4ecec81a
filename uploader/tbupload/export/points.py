"""Reads points from the server as it sends them, at full resolution or sampled: memory is bounded by one part.

    for part in read_points(transport, experiment_id, "scalars", {"run": ["a", "b"], "sampling": "all"}):
        part.series.run, part.series.tag, part.series.metadata, part.columns.steps, part.columns.values, part.is_last

A series of many points comes in several parts, one after the other, in step order; `whole_series` joins them.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from tbupload.errors import Unreachable
from tbupload.events.points import (
    LegacyHistogram,
    ScalarColumns,
    Steps,
    Tensor,
    TensorColumns,
    WallTimes,
)
from tbupload.http.transport import Transport
from tbupload.limits import (
    ERROR_DETAIL_CHARS_MAX,
    LOST_POINTS_MAX,
    RESPONSE_BYTES_MAX,
    WIRE_LIMIT_MAX,
)
from tbwire import frames, packing, read_pb2, tensors, wire_pb2
from tbwire.tensorboard_pb2 import SummaryMetadata

DataClass = Literal["scalars", "tensors", "blob_sequences"]

DATA_CLASSES: Final[tuple[DataClass, ...]] = ("scalars", "tensors", "blob_sequences")


@dataclass(frozen=True, slots=True)
class RemoteSeries:
    """A series as the server has it.

    `data_class` is TensorBoard's number, `metadata` a serialized `tbwire.tensorboard_pb2.SummaryMetadata`, and `total`
    how many points the series had when it was listed.
    """

    run: str
    tag: str
    plugin: str
    data_class: int
    metadata: bytes
    total: int


@dataclass(frozen=True, slots=True)
class RemoteBlob:
    """A blob on the server: what to ask for it by, its SHA-256 (32 bytes), its size in bytes, what it is served as."""

    key: str
    sha256: bytes
    size: int
    content_type: str


@dataclass(slots=True)
class RemoteSequenceColumns:
    """Points of a blob sequence series: four columns of one length. Where no content type was logged, it is empty."""

    steps: Steps
    wall_times: WallTimes
    sequences: list[list[RemoteBlob]]
    logged_content_types: list[str]


@dataclass(frozen=True, slots=True)
class LostPoint:
    """A point that is left out: the server has lost the object with its bytes, or fails to read it for now."""

    run: str
    tag: str
    step: int
    reason: str
    is_unreadable: bool = False


_C = TypeVar("_C")

Columns = ScalarColumns | TensorColumns | RemoteSequenceColumns


@dataclass(frozen=True, slots=True)
class SeriesPart:
    """Points of one series in step order, one a step: columns of one length, int64, float64 and the values'.

    Values of scalars are float64. `sampling` is the rule by which the points were chosen; "all" leaves none out.
    """

    series: RemoteSeries
    columns: Columns
    is_last: bool
    sampling: str


def read_points(
    transport: Transport,
    experiment_id: str,
    kind: DataClass,
    query: Mapping[str, Any] | None = None,
    left_out: Callable[[LostPoint], None] | None = None,
) -> Iterator[SeriesPart]:
    """The points of the series that `query` chooses, in parts, as they arrive: series by series, by run.

    `query` has the fields of `POST /api/v1/experiments/{id}/{kind}/data` as JSON: run and tag (lists of names),
    plugin, sampling, step_min, step_max and so on; "sampling" is "all" unless it says otherwise. A series without
    points comes as one empty part.

    The request is repeated as `Transport.request` does until the answer begins. Raises Refused; Unreachable when the
    answer breaks off, whatever was read before: the series that were given up to then, with `is_last`, are whole.

    A tensor that the server has lost ends the answer. With `left_out`, which goes with all points of tensors, such
    points are left out instead, and it is told of each.
    """
    more = {} if left_out is None else {"lost": "name"}
    with _frames(transport, experiment_id, kind, {**(query or {}), **more}) as received:
        yield from _parts(received, left_out)


def read_table(
    transport: Transport,
    experiment_id: str,
    query: Mapping[str, Any],
    left_out: Callable[[LostPoint], None],
) -> Generator[bytes, None, None]:
    """The bytes of a table of tensors in the format that `query` names, without points that the server has lost.

    `left_out` is told of each of these. Raises as `read_points` does.
    """
    with _frames(transport, experiment_id, "tensors", {**query, "lost": "name"}) as received:
        yield from _table(received, left_out)


@contextmanager
def _frames(
    transport: Transport, experiment_id: str, kind: DataClass, query: Mapping[str, Any]
) -> Iterator[Iterator[read_pb2.Frame]]:
    """The frames of an answer; ValueError in the block becomes Unreachable."""
    path = f"/api/v1/experiments/{urllib.parse.quote(experiment_id, safe='')}/{kind}/data"
    body = json.dumps({"sampling": "all", **query}, ensure_ascii=False).encode()
    headers = {"Content-Type": "application/json", "Accept": frames.MEDIA_TYPE}
    with transport.stream("POST", path, body=body, headers=headers) as pieces:
        try:
            yield frames.decode_frames(pieces, RESPONSE_BYTES_MAX)
        except ValueError as error:
            explanation = f"{transport.server}: the answer is not whole ({error})"
            raise Unreachable(explanation, is_mid_response=True) from error


def whole_series(parts: Iterable[SeriesPart]) -> Iterator[SeriesPart]:
    """The same with all parts of a series in one: memory is bounded by the longest series."""
    waiting: list[SeriesPart] = []
    for part in parts:
        waiting.append(part)
        if part.is_last:
            columns = join([one.columns for one in waiting])
            yield SeriesPart(part.series, columns, True, part.sampling)
            waiting = []


def join(columns: list[Columns]) -> Columns:
    """Columns of one kind, one after the other; at least one."""
    first = columns[0]
    if len(columns) == 1:
        return first
    steps = np.concatenate([one.steps for one in columns])
    wall_times = np.concatenate([one.wall_times for one in columns])
    if isinstance(first, ScalarColumns):
        return ScalarColumns(
            steps,
            wall_times,
            np.concatenate([one.values for one in _columns_of_type(ScalarColumns, columns)]),
        )
    if isinstance(first, TensorColumns):
        return TensorColumns(
            steps,
            wall_times,
            [each for one in _columns_of_type(TensorColumns, columns) for each in one.tensors],
        )
    stored = list(_columns_of_type(RemoteSequenceColumns, columns))
    sequences = [each for one in stored for each in one.sequences]
    return RemoteSequenceColumns(
        steps, wall_times, sequences, [each for one in stored for each in one.logged_content_types]
    )


def _columns_of_type(kind: type[_C], columns: Iterable[object]) -> Iterator[_C]:
    return (one for one in columns if isinstance(one, kind))


def _parts(
    received: Iterator[read_pb2.Frame], left_out: Callable[[LostPoint], None] | None = None
) -> Iterator[SeriesPart]:
    """The parts in these frames. Raises ValueError unless they are an answer from its beginning to its end."""
    first = _begin(received)
    series: RemoteSeries | None = None
    count = points = 0
    for frame in _but_lost(received, left_out):
        if frame.WhichOneof("frame") != "part":
            is_end = frame.HasField("end") and (frame.end.series, frame.end.points) == (
                count,
                points,
            )
            if not is_end or next(received, None) is not None:
                raise ValueError("its end does not fit it")
            return
        if frame.part.HasField("series"):
            series = _series(frame.part.series)
            count += 1
        if series is None:
            raise ValueError("points come before their series")
        columns = _columns(frame.part)
        points += len(columns.steps)
        yield SeriesPart(series, columns, frame.part.is_last, first.sampling)
    raise ValueError("it has no end")


def _table(
    received: Iterator[read_pb2.Frame], left_out: Callable[[LostPoint], None]
) -> Iterator[bytes]:
    """The bytes of the table in these frames. Raises ValueError as `_phases` does."""
    _begin(received)
    for frame in _but_lost(received, left_out):
        kind = frame.WhichOneof("frame")
        if kind == "table":
            yield frame.table
        elif kind == "end" and next(received, None) is None:
            return
        else:
            raise ValueError("it has frames that no table has")
    raise ValueError("it has no end")


def _begin(received: Iterator[read_pb2.Frame]) -> read_pb2.Begin:
    first = next(received, None)
    if first is None or first.WhichOneof("frame") != "begin":
        raise ValueError("it has no beginning")
    return first.begin


def _but_lost(
    received: Iterator[read_pb2.Frame], left_out: Callable[[LostPoint], None] | None
) -> Iterator[read_pb2.Frame]:
    """The other frames; `left_out` is told of the points that are named as lost."""
    count = 0
    for frame in received:
        if frame.WhichOneof("frame") != "lost":
            yield frame
            continue
        count += 1
        if left_out is None or count > LOST_POINTS_MAX:
            raise ValueError(f"it names {count:,} lost points")
        lost = frame.lost
        left_out(
            LostPoint(
                lost.run,
                lost.tag,
                lost.step,
                lost.detail[:ERROR_DETAIL_CHARS_MAX],
                lost.is_unreadable,
            )
        )


def _check_lengths(*columns: Sequence[object] | npt.NDArray[Any]) -> None:
    if len({len(column) for column in columns}) > 1:
        raise ValueError("columns of different lengths")


def _series(sent: read_pb2.Series) -> RemoteSeries:
    try:
        SummaryMetadata.FromString(sent.summary_metadata)
    except DecodeError as error:
        raise ValueError("summary metadata that is none") from error
    return RemoteSeries(
        sent.run, sent.tag, sent.plugin, sent.data_class, sent.summary_metadata, sent.total
    )


def _columns(part: read_pb2.Part) -> Columns:
    kind = part.WhichOneof("points")
    if kind == "scalars":
        return _scalars(part.scalars)
    if kind == "tensors":
        steps, wall_times = _steps_and_times(part.tensors)
        _check_lengths(steps, wall_times, part.tensors.tensors)
        return TensorColumns(
            steps, wall_times, [_tensor(tensor) for tensor in part.tensors.tensors]
        )
    if kind == "blob_sequences":
        steps, wall_times = _steps_and_times(part.blob_sequences)
        sequences = [
            [_blob(blob) for blob in sequence.blobs] for sequence in part.blob_sequences.sequences
        ]
        _check_lengths(steps, wall_times, sequences)
        content_types = [sequence.logged_content_type for sequence in part.blob_sequences.sequences]
        return RemoteSequenceColumns(steps, wall_times, sequences, content_types)
    raise ValueError("a part has no points")


def _scalars(sent: wire_pb2.ScalarPoints) -> ScalarColumns:
    if not sent.blocks:
        steps, wall_times = _steps_and_times(sent)
        values = np.frombuffer(sent.values64, "<f8")
        _check_lengths(steps, wall_times, values)
        return ScalarColumns(steps, wall_times, values)
    blocks = [packing.unpack(block) for block in sent.blocks]
    if len(blocks) == 1:
        return ScalarColumns(*blocks[0])
    return ScalarColumns(*(np.concatenate(columns) for columns in zip(*blocks, strict=True)))


def _steps_and_times(
    sent: wire_pb2.ScalarPoints | wire_pb2.TensorPoints | read_pb2.StoredSequencePoints,
) -> tuple[Steps, WallTimes]:
    return np.frombuffer(sent.steps, "<i8"), np.frombuffer(sent.wall_times, "<f8")


def _tensor(sent: wire_pb2.Tensor) -> Tensor:
    tensors.check_tensor(sent.dtype, sent.shape, sent.data)
    histogram = None
    if sent.HasField("histogram"):
        written = sent.histogram
        histogram = LegacyHistogram(
            written.min,
            written.max,
            written.num,
            written.sum,
            written.sum_squares,
            list(written.bucket_limit),
            list(written.bucket),
        )
    return Tensor(sent.dtype, tuple(sent.shape), sent.data, histogram)


def _blob(sent: read_pb2.StoredBlob) -> RemoteBlob:
    if sent.size > WIRE_LIMIT_MAX:
        raise ValueError(f"a blob of {sent.size:,} bytes")
    return RemoteBlob(sent.key, sent.sha256, sent.size, sent.content_type)
