"""Read a record without loading it: large blobs stay in the file, the points are the same."""

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
from tbwire.messages import parse
from tbwire.wire_format import VARINT_BYTES_MAX


def matches_checksum(file: BinaryIO, start: int, length: int) -> bool:
    """Return whether the payload of `length` bytes at byte `start` matches its checksum.

    Reads it in chunks of 1 MiB.
    """
    file.seek(start)
    checksum = 0
    for content in iter_bytes(file, length):
        # Before the fields are read: a damaged length within the payload could point anywhere.
        checksum = google_crc32c.extend(checksum, content)
    return file.read(FOOTER_BYTES) == footer(checksum)


class LongRecordReader:
    """Reads one event in an open file, after its checksum was verified. Use it once."""

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
        self._collector = PointCollector()
        self._budget = Budget()

    @np.errstate(invalid="ignore", over="ignore")  # as when records are decoded in bulk
    def read(self, start: int, end: int) -> list[SeriesPoints]:
        """Return the points of the event in bytes [start, end).

        `skipped` then counts the values that cannot be sent, by reason. Raises FileReplaced when
        the file ends early, RestartDecode, and OSError.
        """
        try:
            skeleton = self._skeleton_builder.event(start, end)
            event = parse(pb.Event, skeleton.message)
            # Protobuf refuses an event as a whole, so all values are parsed before any is used.
            for value in self._skeleton_builder.values([*skeleton.superseded, *skeleton.summaries]):
                parse(pb.Summary.Value, value.message)
        except (DecodeError, UnicodeDecodeError, MalformedMessage):
            self.skipped[skip_reasons.NOT_AN_EVENT] += 1
            return []

        for slot, (parsed, is_complete) in enumerate(self._values(event, skeleton)):
            self._read_value(parsed, is_complete, slot, event)
        return series_points(self._registry, self._collector.columns())

    def _values(
        self, event: pb.Event, skeleton: EventSkeleton
    ) -> Iterator[tuple[pb.Summary.Value, bool]]:
        """Yield the event's values, and whether each is complete.

        One at a time, as all of them may be too large for memory.
        """
        # Those made of a graph or of run metadata: the skeleton has no values of the summary.
        for made in summary_values(event):
            yield made, True
        for value in self._skeleton_builder.values(skeleton.summaries):
            yield parse(pb.Summary.Value, value.message), value.is_complete

    def _read_value(
        self, value: pb.Summary.Value, is_complete: bool, slot: int, event: pb.Event
    ) -> None:
        try:
            result = read_value(
                value, event.wall_time, self._registry, self._limits, self._placeholders
            )
            if result is not None:
                self._check(result[1], value, is_complete)
        except ValueRefused as refused:
            self.skipped[refused.reason] += 1
            return
        if result is not None:
            series, point = result
            self._collector.add_point(series.index, 0, slot, (event.step, event.wall_time), point)

    def _check(self, point: Point, value: pb.Summary.Value, is_complete: bool) -> None:
        """Raise ValueRefused for an incomplete value, and when the record exceeds its budget."""
        if not is_complete:
            # If the shape allows only few numbers, more than that were dropped: it is malformed.
            # Of other values the shape does not bound the bytes.
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
