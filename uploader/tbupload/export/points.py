"""Read points from the server in parts, at full resolution or sampled.

    for part in read_points(transport, experiment_id, "scalars", {"run": ["a", "b"]}):
        part.series.run, part.series.tag, part.columns.steps, part.columns.values, part.is_last

A long series arrives in several consecutive parts, in step order, so memory is bounded by one part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from google.protobuf.message import DecodeError

from tbupload.errors import Unreachable
from tbupload.export.point_decoding import decode_points
from tbupload.export.remote_series import LostPoint, RemoteSeries, SeriesPart
from tbupload.http.json_calls import experiment_path
from tbupload.http.transport import Transport
from tbupload.limits import ERROR_DETAIL_CHARS_MAX, RESPONSE_BYTES_MAX
from tbwire import frames, read_pb2
from tbwire.messages import parse
from tbwire.points import DataClassName
from tbwire.tensorboard_pb2 import SummaryMetadata

LOST_POINTS_MAX: Final = 100_000
"""Points that one response may report as left out because their objects are lost."""


def read_points(
    transport: Transport,
    experiment_id: str,
    kind: DataClassName,
    query: Mapping[str, Any] | None = None,
    on_lost: Callable[[LostPoint], None] | None = None,
) -> Iterator[SeriesPart]:
    """Yield the points of the selected series in parts as they arrive, by run and series.

    A series without points is one empty part. The request is retried as by `Transport.request`
    until the response begins.

    Args:
        transport: the connection to the server.
        experiment_id: the experiment.
        kind: the data class.
        query: fields of `POST /api/v1/experiments/{id}/{kind}/data`: run and tag (lists of names),
            plugin, sampling ("all" by default), step_min, step_max and so on.
        on_lost: only for all points of tensors: called with each point of which the server
            has lost the object. Without it, such a point ends the response.

    Raises:
        Refused: the server rejected the request.
        Unreachable: no response, or it broke off; series that were yielded up to `is_last` are
            complete nevertheless.
    """
    options = {} if on_lost is None else {"lost": "name"}
    with _frames(transport, experiment_id, kind, {**(query or {}), **options}) as received:
        yield from _decode_parts(received, on_lost)


def read_table_frames(
    transport: Transport,
    experiment_id: str,
    query: Mapping[str, Any],
    on_lost: Callable[[LostPoint], None],
) -> Generator[bytes, None, None]:
    """Yield the bytes of a table of tensors in the format of `query`, without lost points.

    `on_lost` is called with each of these. Raises as `read_points` does.
    """
    with _frames(transport, experiment_id, "tensors", {**query, "lost": "name"}) as received:
        yield from _decode_table(received, on_lost)


@contextmanager
def _frames(
    transport: Transport, experiment_id: str, kind: DataClassName, query: Mapping[str, Any]
) -> Iterator[Iterator[read_pb2.Frame]]:
    """Return the frames of a response; a ValueError in the block is raised as Unreachable."""
    path = experiment_path(experiment_id, kind, "data")
    body = json.dumps({"sampling": "all", **query}, ensure_ascii=False).encode()
    headers = {"Content-Type": "application/json", "Accept": frames.MEDIA_TYPE}
    with transport.stream("POST", path, body=body, headers=headers) as chunks:
        try:
            yield frames.decode_frames(chunks, RESPONSE_BYTES_MAX)
        except ValueError as error:
            explanation = f"{transport.server}: the response is incomplete or malformed ({error})"
            raise Unreachable(explanation, is_mid_response=True) from error


def _decode_parts(
    received: Iterator[read_pb2.Frame], on_lost: Callable[[LostPoint], None] | None = None
) -> Iterator[SeriesPart]:
    """Yield the parts in these frames. Raise ValueError unless they are one complete response."""
    begin = _read_begin(received)
    series: RemoteSeries | None = None
    count = points = 0

    for frame in _filter_lost(received, on_lost):
        if frame.WhichOneof("frame") != "part":
            is_end = frame.HasField("end") and (frame.end.series, frame.end.points) == (
                count,
                points,
            )
            if not is_end or next(received, None) is not None:
                raise ValueError("the counts of its end frame do not match")
            return

        if frame.part.HasField("series"):
            series = _series(frame.part.series)
            count += 1
        if series is None:
            raise ValueError("points before their series")

        columns = decode_points(frame.part)
        points += len(columns.steps)
        yield SeriesPart(series, columns, frame.part.is_last, begin.sampling)
    raise ValueError("no end frame")


def _decode_table(
    received: Iterator[read_pb2.Frame], on_lost: Callable[[LostPoint], None]
) -> Iterator[bytes]:
    """Yield the bytes of the table in these frames. Raise ValueError as `_decode_parts` does."""
    _read_begin(received)
    for frame in _filter_lost(received, on_lost):
        kind = frame.WhichOneof("frame")
        if kind == "table":
            yield frame.table
        elif kind == "end" and next(received, None) is None:
            return
        else:
            raise ValueError(f"unexpected frame {kind} in a table")
    raise ValueError("no end frame")


def _read_begin(received: Iterator[read_pb2.Frame]) -> read_pb2.Begin:
    first = next(received, None)
    if first is None or first.WhichOneof("frame") != "begin":
        raise ValueError("no begin frame")
    return first.begin


def _filter_lost(
    received: Iterator[read_pb2.Frame], on_lost: Callable[[LostPoint], None] | None
) -> Iterator[read_pb2.Frame]:
    """Yield all frames except those of lost points, with which `on_lost` is called."""
    count = 0
    for frame in received:
        if frame.WhichOneof("frame") != "lost":
            yield frame
            continue
        count += 1
        if on_lost is None or count > LOST_POINTS_MAX:
            raise ValueError(f"it reports {count:,} lost points")

        lost = frame.lost
        on_lost(
            LostPoint(
                lost.run,
                lost.tag,
                lost.step,
                lost.detail[:ERROR_DETAIL_CHARS_MAX],
                lost.is_unreadable,
            )
        )


def _series(sent: read_pb2.Series) -> RemoteSeries:
    try:
        parse(SummaryMetadata, sent.summary_metadata)
    except DecodeError as error:
        raise ValueError("malformed summary metadata") from error
    return RemoteSeries(
        sent.run, sent.tag, sent.plugin, sent.data_class, sent.summary_metadata, sent.total
    )
