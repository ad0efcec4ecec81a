"""Decode the records of one chunk: scalars in bulk, all other values one by one with protobuf.

Both ways return the same points; a property test compares them. Which series a tag is depends on
its first value in the file. So numbers are read in bulk, while names and single records are
processed in file order, through one queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError

from tbupload.events import skip_reasons
from tbupload.events.decode import record_rows
from tbupload.events.decode.budget import Budget
from tbupload.events.decode.columns import PointCollector, file_positions, narrow_indices
from tbupload.events.decode.file_parts import FilePart, FileParts
from tbupload.events.decode.record_periods import find_periodic_records
from tbupload.events.decode.record_walk import Buffer, Indices
from tbupload.events.decode.series_names import EXCLUDED, NamedColumn, NeedsProtobuf, SeriesNames
from tbupload.events.decode.step_rows import decode_steps
from tbupload.events.decode.summaries import read_value, summary_values
from tbupload.events.decode.templates import EVENT_BYTES_MAX, decode_events
from tbupload.events.framing import RecordFrames, RecordGroup, group_by_length, payload
from tbupload.events.points import Columns
from tbupload.events.skip_reasons import ValueRefused
from tbupload.events.tag_registry import series_points
from tbupload.events.tf_record import HEADER_BYTES
from tbupload.limits import ReadLimits
from tbwire import tensorboard_pb2 as pb
from tbwire.messages import parse

_GROUP_RECORDS_MIN: Final = 8
"""Fewer records of one length are read one by one."""

_BY_PROTOBUF: Final = -1
"""In place of a column's index in a work item: the record is read with protobuf."""

_ALL_SLOTS: Final = -1
"""In place of a slot: every value of the event."""


class ChunkDecoder:
    """Decodes the records of one buffer, which are of one file or of several. Use it once.

    The buffer must have `PADDING_BYTES` after the last record.
    """

    def __init__(
        self, buffer: Buffer, frames: RecordFrames, parts: Sequence[FilePart], limits: ReadLimits
    ) -> None:
        self._buffer = buffer
        self._frames = frames
        self._parts = FileParts(parts)
        self._limits = limits
        self._names = SeriesNames(self._parts)
        self._collector = PointCollector()
        self._budget = Budget()
        # Work items in reverse file order: (record, slot, column index or _BY_PROTOBUF, pair).
        self._work_queue: list[tuple[int, int, int, int]] = []

    # A signalling NaN that is widened, and an overflow to infinity, are data and no mistake.
    @np.errstate(invalid="ignore", over="ignore")
    def decode(self) -> None:
        """Decode all records into the parts.

        Raises ChunkIsFull when their points are too many for memory, and RestartDecode. The tags
        that were registered by then may stay registered.
        """
        for group in group_by_length(self._frames, self._read_steps()):
            self._read_group(group)

        self._work_queue.sort(reverse=True)
        while self._work_queue:
            record, slot, column, pair = self._work_queue.pop()
            if column == _BY_PROTOBUF:
                self._read_record(record, slot)
            else:
                self._resolve_name(column, pair)

        for named in self._names.columns:
            self._collect_points(named)
        self._emit()

    def _read_steps(self) -> Indices:
        """Decode the scalars of repeating steps; return the records that remain."""
        is_left = np.ones(len(self._frames.starts), np.bool_)
        lengths = self._frames.lengths.astype(np.uint32)
        for periodic in find_periodic_records(lengths, self._parts.stops):
            steps = decode_steps(self._buffer, self._frames, periodic)
            for records in steps.records:
                is_left[records] = False
            for column in steps.columns:
                self._work_queue.extend(self._names.add(column))
        return is_left.nonzero()[0]

    def _read_group(self, group: RecordGroup) -> None:
        """Decode records of one length by templates; leave the others to protobuf."""
        if len(group.records) < _GROUP_RECORDS_MIN or group.length > EVENT_BYTES_MAX:
            self._defer_to_protobuf(group.records)
            return

        starts = self._frames.starts[group.records] + HEADER_BYTES
        rows = record_rows.gather_payloads(self._buffer, starts, group.length, group.records)
        is_intact = record_rows.match_checksums(rows)
        if not is_intact.all():
            self._parts.skip(skip_reasons.RECORD_DAMAGED, rows.records[~is_intact])
            if not is_intact.any():
                return
            rows = rows.select(is_intact)

        scalars = decode_events(rows)
        for others in scalars.others:
            self._defer_to_protobuf(others)
        for column in scalars.columns:
            self._work_queue.extend(self._names.add(column))

    def _defer_to_protobuf(self, records: Indices) -> None:
        self._work_queue.extend(
            (record, _ALL_SLOTS, _BY_PROTOBUF, 0) for record in records.tolist()
        )

    def _resolve_name(self, index: int, pair: int) -> None:
        """Resolve a name of a column, or leave its values to protobuf, or count them as skipped."""
        named = self._names.columns[index]
        try:
            self._names.resolve(index, pair)
        except NeedsProtobuf:
            records = named.records_of(pair).tolist()
            self._work_queue.extend(
                (record, named.column.slot, _BY_PROTOBUF, 0) for record in records
            )
            self._work_queue.sort(reverse=True)
        except ValueRefused as refused:
            count = int(np.count_nonzero(named.labels == pair))
            self._parts[named.parts[pair]].skipped[refused.reason] += count

    def _collect_points(self, named: NamedColumn) -> None:
        """Collect a column's points, without those that are excluded or have no wall time."""
        column, is_timed = named.column, np.isfinite(named.column.wall_times)
        columns = (
            file_positions(column.records, column.slot),
            column.steps,
            column.wall_times,
            column.values,
        )
        if len(named.keys) == 1 and bool(is_timed.all()):
            if named.keys[0] != EXCLUDED:
                self._collector.add_series(int(named.keys[0]), *columns)
            return

        series = narrow_indices(named.keys, len(self._names.keys)).take(named.labels)
        is_wanted = series != EXCLUDED
        if (is_wanted & ~is_timed).any():
            records = column.records[is_wanted & ~is_timed]
            self._parts.skip(skip_reasons.WALL_TIME_NOT_FINITE, records)
        is_sent = is_wanted & is_timed
        if not is_sent.all():
            series, columns = series[is_sent], tuple(column[is_sent] for column in columns)
        self._collector.add_scalars(series, *columns)

    def _emit(self) -> None:
        """Set each part's series from the collected points."""
        columns = self._collector.columns()
        by_part: list[dict[int, Columns]] = [{} for _ in range(len(self._parts))]
        for (part, index), key in self._names.keys.items():
            if key in columns:
                by_part[part][index] = columns[key]
        for index, series in enumerate(by_part):
            self._parts[index].series = series_points(self._parts[index].registry, series)

    def _read_record(self, record: int, only_slot: int) -> None:
        """Read the values of a record with protobuf: all of them, or the one in a slot."""
        self._budget.begin(record)
        part = self._parts.index_of(record)
        event = self._parse(record, self._parts[part])
        if event is None:
            return
        for slot, value in enumerate(summary_values(event)):
            if only_slot in (_ALL_SLOTS, slot):
                self._read_value(value, record, slot, event, part)

    def _parse(self, record: int, part: FilePart) -> pb.Event | None:
        """Return the event of a record; None, and counted as skipped, when it is damaged.

        A separate function, so that the payload is freed before the values are read.
        """
        content = payload(
            self._buffer, int(self._frames.starts[record]), int(self._frames.lengths[record])
        )
        if content is None:
            part.skipped[skip_reasons.RECORD_DAMAGED] += 1
            return None
        try:
            return parse(pb.Event, content)
        except (DecodeError, UnicodeDecodeError):
            part.skipped[skip_reasons.NOT_AN_EVENT] += 1
            return None

    def _read_value(
        self, value: pb.Summary.Value, record: int, slot: int, event: pb.Event, part: int
    ) -> None:
        try:
            result = read_value(value, event.wall_time, self._parts[part].registry, self._limits)
            if result is not None:
                self._budget.charge(result[1])
        except ValueRefused as refused:
            self._parts[part].skipped[refused.reason] += 1
            return
        if result is not None:
            series, point = result
            key = self._names.key(part, series)
            self._collector.add_point(key, record, slot, (event.step, event.wall_time), point)
