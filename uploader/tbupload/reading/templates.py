"""Decodes many scalar events of one length at once.

Events of one length are split into templates: those that have their fields in the same places. Within a template, wall
time, step and value are read from their columns, and what is left to tell events apart is the tag (and metadata).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from tbupload.reading.event_layout import EventLayout, ValueLayout
from tbupload.reading.known_layouts import find_layout
from tbupload.reading.linear_checksum import Bytes
from tbupload.reading.points import Steps, WallTimes
from tbupload.reading.record_walk import Indices
from tbwire import tensorboard_pb2 as pb

_TEMPLATES_MAX: Final = 64
_POOR_TEMPLATES_MAX: Final = 16
_POOR_TEMPLATE_EVENTS: Final = 8
"""After 64 templates, or 16 of fewer than 8 events, the rest of a group is left to protobuf: a template costs more."""

_CONTINUES: Final = 0x80
"""The bit of a varint's byte that says that another byte follows."""

_SHORT_KEY_COLUMNS: Final = 2
"""Columns that fit into a 16-bit key, which sorts several times faster; more rarely differ."""

_LABEL_COLUMNS: Final = 5
"""Columns that fit into a 64-bit key beside a label of 24 bits; a group has fewer rows than that has values."""


@dataclass(frozen=True, slots=True)
class SeriesName:
    """What says in an event which series a value is of (`metadata` None when nothing), and the first such event."""

    tag: str
    metadata: pb.SummaryMetadata | None
    first_record: int


@dataclass(frozen=True, slots=True)
class ScalarRun:
    """The scalars in one place of a template's events, in file order: four columns of one length, and the names.

    `labels` index `names`. `slot` counts the values of an event from 0.
    """

    records: Indices
    slot: int
    is_legacy: bool
    names: list[SeriesName]
    labels: Indices
    steps: Steps
    wall_times: WallTimes
    values: npt.NDArray[Any]


@dataclass(slots=True)
class TemplateScalars:
    """What a group of events came to: the scalars decoded, and the records that have to be read one by one."""

    runs: list[ScalarRun] = field(default_factory=list)
    others: list[Indices] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Events:
    """Serialized events of one length, a row each, the record each one is, and the columns in which rows differ."""

    rows: Bytes
    records: Indices
    differing: Indices

    def select(self, chosen: npt.NDArray[np.bool_]) -> _Events:
        return self if chosen.all() else _Events(self.rows[chosen], self.records[chosen], self.differing)


def decode_events(rows: Bytes, records: Indices, differing: Indices) -> TemplateScalars:
    """Decodes the scalar events of an (n, length) matrix, one event a row; `records` says which record each row is.

    `differing` holds at least the columns in which any two rows differ.
    """
    found = TemplateScalars()
    events, poor_templates = _Events(rows, records, differing), 0
    for _ in range(_TEMPLATES_MAX):
        if not len(events.rows) or poor_templates == _POOR_TEMPLATES_MAX:
            break
        layout = find_layout(events.rows[0].tobytes())
        alike = _alike(events, layout)
        poor_templates += int(np.count_nonzero(alike) < _POOR_TEMPLATE_EVENTS)
        if layout is None:
            found.others.append(events.records[:1])
        else:
            _decode_template(events.select(alike), layout, found)
        if alike.all():
            return found
        events = _Events(events.rows[~alike], events.records[~alike], differing)
    found.others.append(events.records)
    return found


def _alike(events: _Events, layout: EventLayout | None) -> npt.NDArray[np.bool_]:
    """The rows whose fields lie where the first row's do: its template. Without a layout, the first row alone."""
    rows = events.rows
    if layout is None:
        return np.asarray(np.arange(len(rows)) == 0)
    alike = np.ones(len(rows), np.bool_)
    for column in _fixed_columns(events, layout):
        alike &= rows[:, column] == rows[0, column]
    if layout.step is not None:
        for column in range(layout.step.start, layout.step.stop - 1):
            alike &= rows[:, column] >= _CONTINUES
        alike &= rows[:, layout.step.stop - 1] < _CONTINUES
    return alike


def _fixed_columns(events: _Events, layout: EventLayout) -> list[int]:
    """The differing columns that hold neither a number nor a name: keys, lengths, types and shapes."""
    is_fixed = np.ones(events.rows.shape[1], np.bool_)
    spans = [layout.wall_time, layout.step]
    spans += [span for value in layout.values for span in (value.tag, value.metadata, value.value)]
    for span in spans:
        if span is not None:
            is_fixed[span] = False
    columns: list[int] = events.differing[is_fixed[events.differing]].tolist()
    return columns


def _decode_template(events: _Events, layout: EventLayout, found: TemplateScalars) -> None:
    named = [_names(events, value) for value in layout.values]
    is_valid = np.ones(len(events.rows), np.bool_)
    for names, labels in named:
        is_valid &= np.array([name is not None for name in names])[labels]
    if is_valid.all():
        found.runs.extend(_runs(events, layout, named))
        return
    # One name that is no text makes the whole event invalid, whatever else is in it.
    found.others.append(events.records[~is_valid])
    if is_valid.any():
        _decode_template(events.select(is_valid), layout, found)


def _runs(
    events: _Events, layout: EventLayout, named: list[tuple[list[SeriesName | None], Indices]]
) -> Iterator[ScalarRun]:
    steps, wall_times = _steps(events.rows, layout.step), _wall_times(events.rows, layout.wall_time)
    for slot, (value, (names, labels)) in enumerate(zip(layout.values, named, strict=True)):
        yield ScalarRun(
            records=events.records,
            slot=slot,
            is_legacy=value.is_legacy,
            names=[name for name in names if name is not None],
            labels=labels,
            steps=steps,
            wall_times=wall_times,
            values=_numbers(events.rows, value.value, value.dtype),
        )


def _names(events: _Events, value: ValueLayout) -> tuple[list[SeriesName | None], Indices]:
    """The names of a value in these events, None for one that protobuf refuses; and each row's name by number."""
    firsts, labels = _label(events, value)
    return [_parse_name(events.rows[row].tobytes(), value, int(events.records[row])) for row in firsts.tolist()], labels


def _parse_name(event: bytes, value: ValueLayout, record: int) -> SeriesName | None:
    try:
        metadata = None if value.metadata is None else pb.SummaryMetadata.FromString(event[value.metadata])
        return SeriesName(event[value.tag].decode(), metadata, record)
    except (DecodeError, UnicodeDecodeError):
        return None


def _label(events: _Events, value: ValueLayout) -> tuple[Indices, Indices]:
    """Tells the value's names apart, byte by byte: the row each name first stands in, and each row's name by number."""
    is_name = np.zeros(events.rows.shape[1], np.bool_)
    for span in (value.tag, value.metadata):
        if span is not None:
            is_name[span] = True
    columns = events.differing[is_name[events.differing]].tolist()
    firsts, labels = np.zeros(1, np.intp), np.zeros(len(events.rows), np.intp)
    for batch in range(0, len(columns), _LABEL_COLUMNS):
        firsts, labels = _refine(events.rows, labels, columns[batch : batch + _LABEL_COLUMNS])
    return firsts, labels


def _refine(rows: Bytes, labels: Indices, columns: list[int]) -> tuple[Indices, Indices]:
    """Splits labels by what the rows hold in a few columns."""
    is_short = len(columns) <= _SHORT_KEY_COLUMNS and not labels.any()
    keys: npt.NDArray[Any] = labels.astype(np.uint16 if is_short else np.uint64)
    for column in columns:
        keys = (keys << 8) | rows[:, column]
    _, firsts, refined = np.unique(keys, return_index=True, return_inverse=True)
    return firsts, refined


def _wall_times(rows: Bytes, span: slice | None) -> WallTimes:
    return np.zeros(len(rows)) if span is None else _numbers(rows, span, "<f8")


def _numbers(rows: Bytes, span: slice, dtype: str) -> npt.NDArray[Any]:
    return np.ascontiguousarray(rows[:, span]).view(dtype)[:, 0]


def _steps(rows: Bytes, span: slice | None) -> Steps:
    """Decodes varints of one length; a negative step takes ten bytes, of which the last has one bit to give."""
    steps = np.zeros(len(rows), np.uint64)
    if span is not None:
        for place, column in enumerate(range(span.start, span.stop)):
            steps |= (rows[:, column] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * place)
    return steps.view(np.int64)
