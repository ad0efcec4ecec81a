"""Decodes whole records in memory: scalars in bulk by template, everything else one by one by protobuf.

The two ways give the same points (a property test holds them to it). What a tag is depends on the first value of it, so
names and single records are settled in file order; only the numbers are read in bulk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError

from tbupload.events import skip_reasons
from tbupload.events.decode import record_rows
from tbupload.events.decode.budget import Budget
from tbupload.events.decode.columns import PointCollector, file_positions, narrow_indices
from tbupload.events.decode.factorize import first_rows, renumber
from tbupload.events.decode.record_periods import find_periodic_records
from tbupload.events.decode.record_walk import Buffer, Indices
from tbupload.events.decode.step_rows import decode_steps
from tbupload.events.decode.summaries import read_value, summary_values, tag_and_metadata
from tbupload.events.decode.templates import (
    EVENT_BYTES_MAX,
    ScalarColumn,
    TagAndMetadata,
    decode_events,
)
from tbupload.events.framing import (
    RecordFrames,
    RecordGroup,
    group_by_length,
    payload,
)
from tbupload.events.points import Columns, SeriesPoints
from tbupload.events.skip_reasons import ValueRefused
from tbupload.events.tag_registry import KnownSeries, TagRegistry, series_points
from tbupload.events.tf_record import HEADER_BYTES
from tbupload.limits import ReadLimits
from tbwire import tensorboard_pb2 as pb
from tbwire.tag_owners import HPARAMS

_GROUP_RECORDS_MIN: Final = 8
"""Fewer records of one length are read one by one."""

_EXCLUDED: Final = -1
"""Instead of a series' index: the point goes no further."""

_BY_PROTOBUF: Final = -1
"""Instead of a plan's index: the record is to be read by protobuf."""

_ALL_SLOTS: Final = -1
"""Instead of a slot: every value of the event."""


class _NeedsProtobuf(Exception):
    """The points of a name cannot be told by the name alone; not an error."""


@dataclass(slots=True)
class FilePart:
    """The records of one file: those before the index `stop`, and after the part before. `memory` is the file's.

    `series` is what was found in them, and `skipped` counts what cannot be sent.
    """

    registry: TagRegistry
    stop: int
    series: list[SeriesPoints] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A run whose names are to be settled, in each part anew: `labels` says which pair of the two each scalar has.

    `names` and `parts` are those of each pair, and `keys` the series it turns out to be.
    """

    column: ScalarColumn
    labels: Indices
    names: list[int]
    parts: list[int]
    keys: Indices


@dataclass(slots=True)
class _SeriesCandidate:
    """What a name says of its series, and what the first part that met it has learnt from that."""

    tag: str
    metadata: pb.SummaryMetadata | None
    example: KnownSeries | None = None


class ChunkDecoder:
    """Decodes the records of one buffer, of one file or of several; used once.

    The buffer has `PADDING_BYTES` after the last record.
    """

    def __init__(
        self, buffer: Buffer, frames: RecordFrames, parts: Sequence[FilePart], limits: ReadLimits
    ) -> None:
        self._buffer = buffer
        self._frames = frames
        self._parts = parts
        self._stops = np.array([part.stop for part in parts])
        self._limits = limits
        self._gatherer = PointCollector()
        self._budget = Budget()
        self._plans: list[_Plan] = []
        self._candidates: dict[tuple[int, int], _SeriesCandidate] = {}  # by plan and name
        # Series of all parts, by a number that each gets when it is first met: its key.
        self._keys: dict[tuple[int, int], int] = {}
        # What has to be settled in file order, last first: (record, slot, plan, pair).
        self._work_queue: list[tuple[int, int, int, int]] = []

    @np.errstate(
        invalid="ignore", over="ignore"
    )  # a signalling NaN that is widened is data, not a mistake
    def decode(self) -> None:
        """Reads the points of all records into their parts.

        Raises ChunkIsFull when they are too many for memory. What was learnt of later records does no harm.
        """
        for group in group_by_length(self._frames, self._read_steps()):
            self._read_group(group)
        self._work_queue.sort(reverse=True)
        while self._work_queue:
            record, slot, plan, pair = self._work_queue.pop()
            if plan == _BY_PROTOBUF:
                self._read_record(record, slot)
            else:
                self._resolve_name(plan, pair)
        for decoded in self._plans:
            self._gather_points(decoded)
        self._emit()

    def _read_steps(self) -> Indices:
        """Reads the scalars of steps that repeat; answers which records are left."""
        is_left = np.ones(len(self._frames.starts), np.bool_)
        for repetition in find_periodic_records(
            self._frames.lengths.astype(np.uint32), self._stops
        ):
            found = decode_steps(self._buffer, self._frames, repetition)
            for records in found.records:
                is_left[records] = False
            for column in found.columns:
                self._plan(column)
        return is_left.nonzero()[0]

    def _read_group(self, group: RecordGroup) -> None:
        if len(group.records) < _GROUP_RECORDS_MIN or group.length > EVENT_BYTES_MAX:
            self._defer_to_protobuf(group.records)
            return
        starts = self._frames.starts[group.records] + HEADER_BYTES
        rows = record_rows.gather_payloads(self._buffer, starts, group.length, group.records)
        sound = record_rows.match_checksums(rows)
        if not sound.all():
            self._skip(skip_reasons.RECORD_DAMAGED, rows.records[~sound])
            if not sound.any():
                return
            rows = rows.select(sound)
        found = decode_events(rows)
        for others in found.others:
            self._defer_to_protobuf(others)
        for column in found.columns:
            self._plan(column)

    def _defer_to_protobuf(self, records: Indices) -> None:
        """Leaves records to protobuf."""
        self._work_queue.extend(
            (record, _ALL_SLOTS, _BY_PROTOBUF, 0) for record in records.tolist()
        )

    def _skip(self, reason: str, records: Indices) -> None:
        """Counts a value of each of these records as one that cannot be sent."""
        for part, count in zip(
            *np.unique(self._parts_of(records), return_counts=True), strict=True
        ):
            self._parts[part].skipped[reason] += int(count)

    def _parts_of(self, records: Indices) -> Indices:
        """The part of each of these records, which are in file order."""
        counts = np.diff(np.searchsorted(records, self._stops), prepend=0)
        return np.repeat(np.arange(len(self._parts)), counts)

    def _part_of(self, record: int) -> int:
        return bisect_right(self._parts, record, key=lambda part: part.stop)

    def _plan(self, column: ScalarColumn) -> None:
        """Puts a run's names on the agenda, each where it first occurs in a part."""
        pairs = column.labels
        if len(self._parts) > 1:
            pairs = self._parts_of(column.records) * len(column.names) + column.labels
        labels, count = renumber(pairs, len(self._parts) * len(column.names))
        firsts = first_rows(labels, count)
        parts, names = np.divmod(pairs.take(firsts), len(column.names))
        plan = len(self._plans)
        records = column.records[firsts].tolist()
        self._work_queue.extend(
            (record, column.slot, plan, pair) for pair, record in enumerate(records)
        )
        self._plans.append(
            _Plan(
                column, labels, names.tolist(), parts.tolist(), np.full(count, _EXCLUDED, np.intp)
            )
        )

    def _resolve_name(self, index: int, pair: int) -> None:
        """Finds out which series a name is in its part; when that takes more than the name, leaves it to protobuf."""
        plan = self._plans[index]
        part = plan.parts[pair]
        try:
            series = self._resolve_series(index, plan.names[pair], self._parts[part].registry)
        except _NeedsProtobuf:
            records = plan.column.records[plan.labels == pair].tolist()
            self._work_queue.extend(
                (record, plan.column.slot, _BY_PROTOBUF, 0) for record in records
            )
            self._work_queue.sort(reverse=True)
        except ValueRefused as refused:
            self._parts[part].skipped[refused.reason] += int(np.count_nonzero(plan.labels == pair))
        else:
            plan.keys[pair] = _EXCLUDED if series is None else self._series_key(part, series)

    def _resolve_series(self, plan: int, name: int, registry: TagRegistry) -> KnownSeries | None:
        """The scalar series of this name, the same for every value that bears it; None when a filter leaves it out."""
        candidate = self._candidate(plan, name)
        is_new = registry.find(candidate.tag) is None
        if is_new and candidate.example is not None:
            return registry.add_like(candidate.example)
        series = registry.resolve(candidate.tag, candidate.metadata)
        if series is not None and (
            series.data_class != pb.DATA_CLASS_SCALAR or series.plugin == HPARAMS
        ):
            raise _NeedsProtobuf
        if is_new:
            candidate.example = series
        return series

    def _candidate(self, plan: int, name: int) -> _SeriesCandidate:
        candidate = self._candidates.get((plan, name))
        if candidate is None:
            column = self._plans[plan].column
            candidate = _SeriesCandidate(
                *tag_and_metadata(
                    _value_without_number(column.names[name], is_legacy=column.is_legacy)
                )
            )
            self._candidates[plan, name] = candidate
        return candidate

    def _series_key(self, part: int, series: KnownSeries) -> int:
        return self._keys.setdefault((part, series.index), len(self._keys))

    def _gather_points(self, plan: _Plan) -> None:
        """Hands a run's points on, but for those of no series and those without a wall time."""
        column, is_timed = plan.column, np.isfinite(plan.column.wall_times)
        columns = (
            file_positions(column.records, column.slot),
            column.steps,
            column.wall_times,
            column.values,
        )
        if len(plan.keys) == 1 and bool(is_timed.all()):
            if plan.keys[0] != _EXCLUDED:
                self._gatherer.add_series(int(plan.keys[0]), *columns)
            return
        series = narrow_indices(plan.keys, len(self._keys)).take(plan.labels)
        is_wanted = series != _EXCLUDED
        if (is_wanted & ~is_timed).any():
            self._skip(skip_reasons.WALL_TIME_NOT_FINITE, column.records[is_wanted & ~is_timed])
        chosen = is_wanted & is_timed
        if not chosen.all():
            series, columns = series[chosen], tuple(column[chosen] for column in columns)
        self._gatherer.add_scalars(series, *columns)

    def _emit(self) -> None:
        columns = self._gatherer.columns()
        found: list[dict[int, Columns]] = [{} for _ in self._parts]
        for (part, index), key in self._keys.items():
            if key in columns:
                found[part][index] = columns[key]
        for each, series in zip(self._parts, found, strict=True):
            each.series = series_points(each.registry, series)

    def _read_record(self, record: int, only_slot: int) -> None:
        """Reads the values of a record by protobuf: all of them, or that of one slot."""
        self._budget.begin(record)
        part = self._part_of(record)
        event = self._parse(record, self._parts[part])
        if event is None:
            return
        for slot, value in enumerate(summary_values(event)):
            if only_slot in (_ALL_SLOTS, slot):
                self._read_value(value, record, slot, event, part)

    def _parse(self, record: int, part: FilePart) -> pb.Event | None:
        """The event of a record; None, and counted, when it is none. Its payload, as large again, is not kept."""
        content = payload(
            self._buffer, int(self._frames.starts[record]), int(self._frames.lengths[record])
        )
        if content is None:
            part.skipped[skip_reasons.RECORD_DAMAGED] += 1
            return None
        try:
            return pb.Event.FromString(content)
        except (DecodeError, UnicodeDecodeError):
            part.skipped[skip_reasons.NOT_AN_EVENT] += 1
            return None

    def _read_value(
        self, value: pb.Summary.Value, record: int, slot: int, event: pb.Event, part: int
    ) -> None:
        try:
            found = read_value(value, event.wall_time, self._parts[part].registry, self._limits)
            if found is not None:
                self._budget.take(found[1])
        except ValueRefused as refused:
            self._parts[part].skipped[refused.reason] += 1
            return
        if found is not None:
            series, point = found
            key = self._series_key(part, series)
            self._gatherer.add_point(key, record, slot, (event.step, event.wall_time), point)


def _value_without_number(name: TagAndMetadata, *, is_legacy: bool) -> pb.Summary.Value:
    """A value of this name, without its number."""
    if is_legacy:
        return pb.Summary.Value(tag=name.tag, metadata=name.metadata, simple_value=0)
    return pb.Summary.Value(tag=name.tag, metadata=name.metadata, tensor=pb.TensorProto())
