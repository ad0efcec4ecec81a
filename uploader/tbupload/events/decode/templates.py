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

from tbupload.events.decode.event_layout import EventLayout, ValueLayout
from tbupload.events.decode.factorize import label_rows
from tbupload.events.decode.layout_cache import KnownLayout, find_layout
from tbupload.events.decode.record_rows import RecordMatrix, Words
from tbupload.events.decode.record_walk import Indices
from tbupload.events.points import Steps, WallTimes
from tbwire import tensorboard_pb2 as pb

EVENT_BYTES_MAX: Final = 4_096
"""Longer payloads are no scalars, and are read one by one."""

_TEMPLATES_MAX: Final = 64
_POOR_TEMPLATES_MAX: Final = 16
_POOR_TEMPLATE_EVENTS: Final = 8
"""After 64 templates, or 16 of fewer than 8 events, the rest of a group is left to protobuf: a template costs more."""

_SHORT_VARINT_BYTES: Final = 4
"""Varints of up to so many bytes are read as one number: behind a payload are as many bytes, those of its checksum."""


@dataclass(frozen=True, slots=True)
class TagAndMetadata:
    """What says in an event which series a value is of; `metadata` is None when nothing but the tag does."""

    tag: str
    metadata: pb.SummaryMetadata | None


@dataclass(frozen=True, slots=True)
class ScalarColumn:
    """The scalars in one place of a template's events, in file order: four columns of one length, and the names.

    `labels` index `names`. `slot` counts the values of an event from 0.
    """

    records: Indices
    slot: int
    is_legacy: bool
    names: list[TagAndMetadata]
    labels: Indices
    steps: Steps
    wall_times: WallTimes
    values: npt.NDArray[Any]


@dataclass(slots=True)
class TemplateScalars:
    """What a group of events came to: the scalars decoded, and the records that have to be read one by one."""

    columns: list[ScalarColumn] = field(default_factory=list)
    others: list[Indices] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FactorizedNames:
    """The names of a value in some events, None for one that protobuf refuses; and each row's name by number."""

    names: list[TagAndMetadata | None]
    labels: Indices


def decode_events(rows: RecordMatrix) -> TemplateScalars:
    """Decodes the scalar events of records of one length, whose payloads are sound."""
    found, poor_templates = TemplateScalars(), 0
    for _ in range(_TEMPLATES_MAX):
        if not len(rows.words) or poor_templates == _POOR_TEMPLATES_MAX:
            break
        known = find_layout(rows.payload(0))
        alike = _rows_like_first(rows, known)
        poor_templates += int(np.count_nonzero(alike) < _POOR_TEMPLATE_EVENTS)
        if known is None:
            found.others.append(rows.records[:1])
        else:
            _decode_template(rows.select(alike), known, found)
        if alike.all():
            return found
        rows = rows.select(~alike)
    found.others.append(rows.records)
    return found


def _rows_like_first(rows: RecordMatrix, known: KnownLayout | None) -> npt.NDArray[np.bool_]:
    """The rows whose fields lie where the first row's do: its template. Without a layout, the first row alone."""
    if known is None:
        return np.asarray(np.arange(len(rows.words)) == 0)
    alike = np.ones(len(rows.words), np.bool_)
    deciding = known.deciding & rows.difference[: len(known.deciding)]
    for word in deciding.nonzero()[0].tolist():
        column = rows.words[:, word]
        alike &= ((column ^ column[0]) & deciding[word]) == 0
    return alike


def _decode_template(rows: RecordMatrix, known: KnownLayout, found: TemplateScalars) -> None:
    named = [
        _factorize_names(rows, value, bits)
        for value, bits in zip(known.layout.values, known.names, strict=True)
    ]
    if not any(None in each.names for each in named):
        found.columns.extend(scalar_columns(rows, known.layout, named))
        return
    # One name that is no text makes the whole event invalid, whatever else is in it.
    is_valid = np.ones(len(rows.words), np.bool_)
    for each in named:
        is_valid &= np.array([name is not None for name in each.names])[each.labels]
    found.others.append(rows.records[~is_valid])
    if is_valid.any():
        _decode_template(rows.select(is_valid), known, found)


def scalar_columns(
    rows: RecordMatrix, layout: EventLayout, named: list[FactorizedNames]
) -> Iterator[ScalarColumn]:
    """The scalars of events with this layout: a run for each value, whose names are in `named`."""
    steps, wall_times = _steps(rows, layout.step), _wall_times(rows, layout.wall_time)
    for slot, (value, each) in enumerate(zip(layout.values, named, strict=True)):
        yield ScalarColumn(
            records=rows.records,
            slot=slot,
            is_legacy=value.is_legacy,
            names=[name for name in each.names if name is not None],
            labels=each.labels,
            steps=steps,
            wall_times=wall_times,
            values=rows.column(value.value.start, value.dtype),
        )


def _factorize_names(rows: RecordMatrix, value: ValueLayout, bits: Words) -> FactorizedNames:
    labels = label_rows(rows, bits)
    return FactorizedNames(
        [series_name(rows.payload(row), value) for row in labels.firsts.tolist()], labels.labels
    )


def series_name(event: bytes, value: ValueLayout) -> TagAndMetadata | None:
    """The name of a value; None for one that protobuf refuses."""
    try:
        metadata = (
            None if value.metadata is None else pb.SummaryMetadata.FromString(event[value.metadata])
        )
        return TagAndMetadata(event[value.tag].decode(), metadata)
    except (DecodeError, UnicodeDecodeError):
        return None


def _wall_times(rows: RecordMatrix, span: slice | None) -> WallTimes:
    return np.zeros(len(rows.words)) if span is None else rows.column(span.start, "<f8")


def _steps(rows: RecordMatrix, span: slice | None) -> Steps:
    """Decodes varints of one length; a negative step takes ten bytes, of which the last has one bit to give."""
    if span is None:
        return np.zeros(len(rows.words), np.int64)
    if span.stop - span.start <= _SHORT_VARINT_BYTES:
        return _short_varints(rows.column(span.start, "<u4"), span.stop - span.start).astype(
            np.int64
        )
    steps = np.zeros(len(rows.words), np.uint64)
    for place, column in enumerate(range(span.start, span.stop)):
        steps |= np.left_shift(
            rows.as_bytes[:, column] & np.uint8(0x7F), np.uint8(7 * place), dtype=np.uint64
        )
    return steps.view(np.int64)


def _short_varints(bits: npt.NDArray[np.uint32], size: int) -> npt.NDArray[np.uint32]:
    """What varints of `size` bytes say that stand at the beginning of these four."""
    numbers = bits & np.uint32(0x7F)
    for place in range(1, size):
        numbers |= (bits >> np.uint32(place)) & np.uint32(0x7F << 7 * place)
    return numbers
