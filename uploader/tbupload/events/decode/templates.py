"""Decode many scalar events of one length at once.

Events of one length are divided into templates: the events with their fields at the same offsets.
Within a template, wall time, step and value are columns, and the bytes of the tag (and of the
metadata) identify the series of a row. The package's docstring describes the method.
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
from tbwire import tensorboard_pb2 as pb
from tbwire.messages import parse
from tbwire.points import Steps, WallTimes
from tbwire.wire_format import PAYLOAD_BITS, PAYLOAD_MASK

EVENT_BYTES_MAX: Final = 4_096
"""Longer payloads are not scalars; they are read one by one."""

_TEMPLATES_MAX: Final = 64
_POOR_TEMPLATES_MAX: Final = 16
_POOR_TEMPLATE_EVENTS: Final = 8
"""After 64 templates, or 16 of fewer than 8 events, protobuf reads the rest of a group.

A template has a fixed cost, and bytes chosen by an attacker could have a layout per event.
"""

_SHORT_VARINT_BYTES: Final = 4
"""Varints of up to 4 bytes are read as one uint32.

That never reads past the row: at least the checksum's 4 bytes follow a payload.
"""


@dataclass(frozen=True)
class TagAndMetadata:
    """Identity of a value's series in an event; `metadata` is None when there is only a tag."""

    tag: str
    metadata: pb.SummaryMetadata | None


@dataclass(frozen=True)
class ScalarColumn:
    """The scalars at one place of a template's events, in file order.

    Attributes:
        records: The record of each scalar.
        slot: The position of the value in its event, from 0.
        is_legacy: They are `simple_value`s and not tensors.
        names: The names that occur.
        labels: The name of each scalar, as an index into `names`.
        steps: The step of each scalar.
        wall_times: The wall time of each scalar.
        values: The scalars, in their type in the file.
    """

    records: Indices
    slot: int
    is_legacy: bool
    names: list[TagAndMetadata]
    labels: Indices
    steps: Steps
    wall_times: WallTimes
    values: npt.NDArray[Any]


@dataclass
class TemplateScalars:
    """The scalars of a group of events, and the records that have to be read one by one."""

    columns: list[ScalarColumn] = field(default_factory=list)
    others: list[Indices] = field(default_factory=list)


@dataclass(frozen=True)
class FactorizedNames:
    """The distinct names at one place of some events, and which of them each row has.

    A name is None when protobuf would not parse it.
    """

    names: list[TagAndMetadata | None]
    labels: Indices


def decode_events(rows: RecordMatrix) -> TemplateScalars:
    """Decode the scalar events in records of one length; their checksums were verified."""
    scalars, poor_templates = TemplateScalars(), 0
    for _ in range(_TEMPLATES_MAX):
        if not len(rows.words) or poor_templates == _POOR_TEMPLATES_MAX:
            break

        known = find_layout(rows.payload(0))
        is_alike = _rows_like_first(rows, known)
        # The bound against files made to be slow: each template compares all remaining rows.
        poor_templates += int(np.count_nonzero(is_alike) < _POOR_TEMPLATE_EVENTS)
        if known is None:
            scalars.others.append(rows.records[:1])
        else:
            _decode_template(rows.select(is_alike), known, scalars)

        if is_alike.all():
            return scalars
        rows = rows.select(~is_alike)
    scalars.others.append(rows.records)
    return scalars


def _rows_like_first(rows: RecordMatrix, known: KnownLayout | None) -> npt.NDArray[np.bool_]:
    """Return which rows have the first row's layout; without a layout, only the first row."""
    if known is None:
        return np.asarray(np.arange(len(rows.words)) == 0)
    is_alike = np.ones(len(rows.words), np.bool_)
    deciding = known.deciding & rows.difference[: len(known.deciding)]
    for word in deciding.nonzero()[0].tolist():
        column = rows.words[:, word]
        is_alike &= ((column ^ column[0]) & deciding[word]) == 0
    return is_alike


def _decode_template(rows: RecordMatrix, known: KnownLayout, scalars: TemplateScalars) -> None:
    """Add the scalars of rows that have this layout."""
    named = [
        _factorize_names(rows, value, bits) for value, bits in zip(known.layout.values, known.names)
    ]
    if not any(None in each.names for each in named):
        scalars.columns.extend(scalar_columns(rows, known.layout, named))
        return

    # One tag that is not UTF-8 makes protobuf refuse the complete event.
    is_valid = np.ones(len(rows.words), np.bool_)
    for each in named:
        is_valid &= np.array([name is not None for name in each.names])[each.labels]
    scalars.others.append(rows.records[~is_valid])
    if is_valid.any():
        _decode_template(rows.select(is_valid), known, scalars)


def scalar_columns(
    rows: RecordMatrix, layout: EventLayout, named: list[FactorizedNames]
) -> Iterator[ScalarColumn]:
    """Yield a column for each value of this layout; `named` has the names of each."""
    steps, wall_times = _steps(rows, layout.step), _wall_times(rows, layout.wall_time)
    for slot, (value, each) in enumerate(zip(layout.values, named)):
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
    """Return the name of a value; None when protobuf would not parse it."""
    try:
        metadata = (
            None if value.metadata is None else parse(pb.SummaryMetadata, event[value.metadata])
        )
        return TagAndMetadata(event[value.tag].decode(), metadata)
    except (DecodeError, UnicodeDecodeError):
        return None


def _wall_times(rows: RecordMatrix, span: slice | None) -> WallTimes:
    return np.zeros(len(rows.words)) if span is None else rows.column(span.start, "<f8")


def _steps(rows: RecordMatrix, span: slice | None) -> Steps:
    """Decode the steps, varints of equal size; `tbwire.wire_format` describes the encoding.

    A negative step has ten bytes: seven bits from each of nine, and one bit from the last.
    """
    if span is None:
        return np.zeros(len(rows.words), np.int64)
    if span.stop - span.start <= _SHORT_VARINT_BYTES:
        return _short_varints(rows.column(span.start, "<u4"), span.stop - span.start).astype(
            np.int64
        )
    # Unsigned, and viewed as signed at the end: a negative step is its two's complement in ten
    # bytes (https://protobuf.dev/programming-guides/encoding/#signed-ints).
    steps = np.zeros(len(rows.words), np.uint64)
    for number, column in enumerate(range(span.start, span.stop)):
        steps |= np.left_shift(
            rows.as_bytes[:, column] & np.uint8(PAYLOAD_MASK),
            np.uint8(PAYLOAD_BITS * number),
            dtype=np.uint64,
        )
    return steps.view(np.int64)


def _short_varints(bits: npt.NDArray[np.uint32], size: int) -> npt.NDArray[np.uint32]:
    """Decode varints of `size` bytes, each the low bytes of four."""
    numbers = bits & np.uint32(PAYLOAD_MASK)
    for number in range(1, size):
        # The byte's payload moves down by one bit for each continuation bit below it.
        mask = np.uint32(PAYLOAD_MASK << PAYLOAD_BITS * number)
        numbers |= (bits >> np.uint32(number)) & mask
    return numbers
