"""Decodes the whole records of one chunk: scalars in bulk by template, everything else one by one by protobuf.

The two ways give the same points (a property test holds them to it). What a tag is depends on the first value of it, so
names and single records are settled in file order; only the numbers are read in bulk.
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError

from tbupload.limits import ReadLimits
from tbupload.reading import refusals
from tbupload.reading.budget import Budget
from tbupload.reading.columns import PointGatherer, place
from tbupload.reading.points import SeriesPoints
from tbupload.reading.record_walk import Indices
from tbupload.reading.refusals import ValueRefused
from tbupload.reading.series_memory import HPARAMS, KnownSeries, SeriesMemory
from tbupload.reading.summaries import identity, read_value, summary_values
from tbupload.reading.templates import ScalarRun, SeriesName, decode_events
from tbupload.reading.tf_record import (
    FOOTER_BYTES,
    HEADER_BYTES,
    Frames,
    RecordGroup,
    differing_columns,
    gather,
    group_by_length,
    payload,
    sound_rows,
)
from tbwire import tensorboard_pb2 as pb

_GROUP_RECORDS_MIN: Final = 8
"""Fewer records of one length are read one by one."""

_BULK_BYTES_MAX: Final = 4_096
"""Longer payloads are no scalars, and are read one by one."""

_LEFT_OUT: Final = -1
"""Instead of a series' index: the point goes no further."""

_BY_PROTOBUF: Final = -1
"""Instead of a run's index: the record is to be read by protobuf."""

_WHOLE: Final = -1
"""Instead of a slot: every value of the event."""


class _NeedsProtobuf(Exception):
    """The points of a name cannot be told by the name alone; not an error."""


class ChunkDecoder:
    """Decodes the records of one buffer; made for one chunk, used once."""

    def __init__(self, buffer: bytes, frames: Frames, memory: SeriesMemory, limits: ReadLimits) -> None:
        self.skipped: Counter[str] = Counter()
        self._buffer = buffer
        self._frames = frames
        self._memory = memory
        self._limits = limits
        self._gatherer = PointGatherer()
        self._budget = Budget()
        self._runs: list[ScalarRun] = []
        self._series: list[Indices] = []  # of each run, its names' series
        # What has to be settled in file order: (record, slot, run, label).
        self._agenda: list[tuple[int, int, int, int]] = []

    @np.errstate(invalid="ignore", over="ignore")  # a signalling NaN that is widened is data, not a mistake
    def decode(self) -> list[SeriesPoints]:
        """The points of all records; `skipped` then counts what cannot be sent.

        Raises ChunkIsFull when they are too many for memory. What was learnt of later records does no harm.
        """
        for group in group_by_length(self._frames):
            self._read_group(group)
        self._agenda.sort()
        while self._agenda:
            record, slot, run, label = heapq.heappop(self._agenda)
            if run == _BY_PROTOBUF:
                self._read_record(record, slot)
            else:
                self._settle(run, label)
        for decoded, series in zip(self._runs, self._series, strict=True):
            self._gather(decoded, series[decoded.labels])
        return self._gatherer.series_points(self._memory)

    def _read_group(self, group: RecordGroup) -> None:
        if len(group.records) < _GROUP_RECORDS_MIN or group.length > _BULK_BYTES_MAX:
            self._agenda.extend((record, _WHOLE, _BY_PROTOBUF, 0) for record in group.records.tolist())
            return
        rows, records = gather(self._buffer, self._frames, group), group.records
        differing = differing_columns(rows)
        sound = sound_rows(rows, differing)
        if not sound.all():
            self.skipped[refusals.RECORD_DAMAGED] += int(np.count_nonzero(~sound))
            rows, records = rows[sound], records[sound]
        columns = differing[(differing >= HEADER_BYTES) & (differing < rows.shape[1] - FOOTER_BYTES)] - HEADER_BYTES
        found = decode_events(rows[:, HEADER_BYTES:-FOOTER_BYTES], records, columns)
        for others in found.others:
            self._agenda.extend((record, _WHOLE, _BY_PROTOBUF, 0) for record in others.tolist())
        for run in found.runs:
            self._plan(run)

    def _plan(self, run: ScalarRun) -> None:
        """Puts a run's names on the agenda, each where it first occurs."""
        index = len(self._runs)
        self._agenda.extend((name.first_record, run.slot, index, label) for label, name in enumerate(run.names))
        self._runs.append(run)
        self._series.append(np.full(len(run.names), _LEFT_OUT, np.intp))

    def _settle(self, index: int, label: int) -> None:
        """Finds out which series a name of a run is; when that takes more than its name, leaves it to protobuf."""
        run = self._runs[index]
        try:
            series = self._resolve(run.names[label], is_legacy=run.is_legacy)
        except _NeedsProtobuf:
            for record in run.records[run.labels == label].tolist():
                heapq.heappush(self._agenda, (record, run.slot, _BY_PROTOBUF, 0))
        except ValueRefused as refused:
            self.skipped[refused.reason] += int(np.count_nonzero(run.labels == label))
        else:
            self._series[index][label] = _LEFT_OUT if series is None else series.index

    def _resolve(self, name: SeriesName, *, is_legacy: bool) -> KnownSeries | None:
        """The scalar series of this name, the same for every value that bears it; None when a filter leaves it out."""
        series = self._memory.resolve(*identity(_bare_value(name, is_legacy=is_legacy)))
        if series is not None and (series.data_class != pb.DATA_CLASS_SCALAR or series.plugin == HPARAMS):
            raise _NeedsProtobuf
        return series

    def _gather(self, run: ScalarRun, series: Indices) -> None:
        """Hands a run's points on, but for those of no series and those without a wall time."""
        is_wanted, is_timed = series != _LEFT_OUT, np.isfinite(run.wall_times)
        untimed = int(np.count_nonzero(is_wanted & ~is_timed))
        if untimed:
            self.skipped[refusals.WALL_TIME] += untimed
        chosen = is_wanted & is_timed
        columns = (series, place(run.records, run.slot), run.steps, run.wall_times, run.values)
        if not chosen.all():
            series, places, steps, wall_times, values = (column[chosen] for column in columns)
            columns = (series, places, steps, wall_times, values)
        self._gatherer.add_scalars(*columns)

    def _read_record(self, record: int, only_slot: int) -> None:
        """Reads the values of a record by protobuf: all of them, or that of one slot."""
        self._budget.begin(record)
        event = self._parse(record)
        if event is None:
            return
        for slot, value in enumerate(summary_values(event)):
            if only_slot in (_WHOLE, slot):
                self._read_value(value, record, slot, event)

    def _parse(self, record: int) -> pb.Event | None:
        """The event of a record; None, and counted, when it is none. Its payload, as large again, is not kept."""
        content = payload(self._buffer, int(self._frames.starts[record]), int(self._frames.lengths[record]))
        if content is None:
            self.skipped[refusals.RECORD_DAMAGED] += 1
            return None
        try:
            return pb.Event.FromString(content)
        except (DecodeError, UnicodeDecodeError):
            self.skipped[refusals.NO_EVENT] += 1
            return None

    def _read_value(self, value: pb.Summary.Value, record: int, slot: int, event: pb.Event) -> None:
        try:
            found = read_value(value, event.wall_time, self._memory, self._limits)
            if found is not None:
                self._budget.take(found[1])
        except ValueRefused as refused:
            self.skipped[refused.reason] += 1
            return
        if found is not None:
            series, point = found
            self._gatherer.add_point(series, record, slot, (event.step, event.wall_time), point)


def _bare_value(name: SeriesName, *, is_legacy: bool) -> pb.Summary.Value:
    """A value of this name, without its number."""
    if is_legacy:
        return pb.Summary.Value(tag=name.tag, metadata=name.metadata, simple_value=0)
    return pb.Summary.Value(tag=name.tag, metadata=name.metadata, tensor=pb.TensorProto())
