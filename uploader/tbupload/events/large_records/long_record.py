"""Reads a record that is too long to be loaded: the same points as of any other, but large blobs stay in the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO

import google_crc32c
import numpy as np
from google.protobuf.message import DecodeError

from tbupload.events import skip_reasons
from tbupload.events.decode.budget import Budget
from tbupload.events.decode.columns import PointCollector
from tbupload.events.decode.summaries import Point, read_value, summary_values
from tbupload.events.large_records.field_placeholders import FieldPlaceholders, iter_bytes
from tbupload.events.large_records.field_reader import MalformedMessage
from tbupload.events.large_records.record_skeleton import EventSkeleton, SkeletonBuilder
from tbupload.events.points import SeriesPoints, Tensor
from tbupload.events.skip_reasons import ValueRefused
from tbupload.events.tag_registry import TagRegistry, series_points
from tbupload.events.tf_record import FOOTER_BYTES, footer
from tbupload.limits import SKELETON_BYTES_MAX, ReadLimits
from tbwire import tensorboard_pb2 as pb
from tbwire import tensors
from tbwire.wire_format import VARINT_BYTES_MAX


def matches_checksum(file: BinaryIO, start: int, length: int) -> bool:
    """Whether the payload of `length` bytes at byte `start` matches the checksum after it; reads it piece by piece."""
    file.seek(start)
    checksum = 0
    for piece in iter_bytes(file, length):
        checksum = google_crc32c.extend(checksum, piece)
    return file.read(FOOTER_BYTES) == footer(checksum)


class LongRecordReader:
    """Reads one event in an open file, whose checksum was verified; used once."""

    def __init__(
        self,
        file: BinaryIO,
        registry: TagRegistry,
        limits: ReadLimits,
        placeholders: FieldPlaceholders,
    ) -> None:
        self.skipped: Counter[str] = Counter()
        self._registry = registry
        self._limits = limits
        self._placeholders = placeholders
        self._skeleton_builder = SkeletonBuilder(file, placeholders, limits)
        self._gatherer = PointCollector()
        self._budget = Budget()

    @np.errstate(invalid="ignore", over="ignore")  # as when records are decoded in bulk
    def read(self, start: int, end: int) -> list[SeriesPoints]:
        """The points of the event in bytes [start, end); `skipped` then counts what cannot be sent.

        Raises FileReplaced when the file ends before, and OSError.
        """
        try:
            skeleton = self._skeleton_builder.event(start, end)
            event = pb.Event.FromString(skeleton.message)
            # All of them before anything is taken from one: an event is sound as a whole or not at all.
            for found in self._skeleton_builder.values([*skeleton.superseded, *skeleton.summaries]):
                pb.Summary.Value.FromString(found.message)
        except (DecodeError, UnicodeDecodeError, MalformedMessage):
            self.skipped[skip_reasons.NOT_AN_EVENT] += 1
            return []
        for slot, (value, is_whole) in enumerate(self._values(event, skeleton)):
            self._read_value(value, is_whole, slot, event)
        return series_points(self._registry, self._gatherer.columns())

    def _values(
        self, event: pb.Event, skeleton: EventSkeleton
    ) -> Iterator[tuple[pb.Summary.Value, bool]]:
        """The event's values, and whether each is whole; one at a time, as all of them may be too large for memory."""
        for made in summary_values(
            event
        ):  # of a graph or of run metadata: the summary's own were left out
            yield made, True
        for value in self._skeleton_builder.values(skeleton.summaries):
            yield pb.Summary.Value.FromString(value.message), value.is_whole

    def _read_value(
        self, value: pb.Summary.Value, is_whole: bool, slot: int, event: pb.Event
    ) -> None:
        try:
            found = read_value(
                value, event.wall_time, self._registry, self._limits, self._placeholders
            )
            if found is not None:
                self._check(found[1], value, is_whole)
        except ValueRefused as refused:
            self.skipped[refused.reason] += 1
            return
        if found is not None:
            series, point = found
            self._gatherer.add_point(series.index, 0, slot, (event.step, event.wall_time), point)

    def _check(self, point: Point, value: pb.Summary.Value, is_whole: bool) -> None:
        """Refuses what was read of a value that is not whole, and what no request could take."""
        if not is_whole:
            # More numbers than such a shape has were left out; of other values the shape says too little.
            is_numeric = (
                isinstance(point, Tensor)
                and value.HasField("tensor")
                and point.dtype != tensors.STRING
            )
            count = tensors.element_count([dim.size for dim in value.tensor.tensor_shape.dim])
            has_few = is_numeric and VARINT_BYTES_MAX * count <= SKELETON_BYTES_MAX
            raise ValueRefused(
                skip_reasons.TENSOR_MALFORMED if has_few else skip_reasons.RECORD_TOO_LARGE
            )
        self._budget.charge(point)
