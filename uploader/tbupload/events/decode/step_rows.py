"""Decodes steps that repeat: whole steps as rows of a matrix, of which each tag has columns of its own.

What tells records apart (their sizes, layouts and names) is the same in all rows but where it is not: it is looked at
once for the whole step, and neither sorted nor numbered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from tbupload.events import linear_checksum
from tbupload.events.decode import record_rows
from tbupload.events.decode.event_layout import shift_layout
from tbupload.events.decode.layout_cache import KnownLayout, find_layout
from tbupload.events.decode.record_periods import STEPS_MIN, PeriodicRecords
from tbupload.events.decode.record_rows import WORD_BYTES, RecordMatrix, Words
from tbupload.events.decode.record_walk import Buffer, Indices
from tbupload.events.decode.templates import (
    EVENT_BYTES_MAX,
    FactorizedNames,
    ScalarColumn,
    TagAndMetadata,
    scalar_columns,
    series_name,
)
from tbupload.events.framing import RecordFrames
from tbupload.events.tf_record import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES

_SAMPLE_STEPS: Final = 256
"""Steps that are looked at to find out after how many of them the names come again."""

_STEP_RECORDS_MIN: Final = 2
"""One tag alone is read as fast record by record."""


@dataclass(slots=True)
class StepScalars:
    """What steps came to: the scalars of each tag, and the records that are done with."""

    columns: list[ScalarColumn] = field(default_factory=list)
    records: list[Indices] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Slot:
    """A record of a step that holds scalars: the index of the record, and where its payload lies in the row."""

    record: int
    payload: slice
    known: KnownLayout
    names: list[TagAndMetadata]


def decode_steps(buffer: Buffer, frames: RecordFrames, periodic: PeriodicRecords) -> StepScalars:
    """Decodes the scalars of steps that are alike and whose records are sound; with others it is not done."""
    found, steps, first_records = StepScalars(), periodic, periodic.first_records()
    slots = list(_slots(buffer, frames, int(first_records[0]), steps.period))
    name_period = _name_period(
        _gather_steps(buffer, frames, first_records[:_SAMPLE_STEPS], steps.period), slots
    )
    if name_period > 1:
        steps = periodic.merge_steps(name_period)
        first_records = steps.first_records()
    if steps.period < _STEP_RECORDS_MIN or len(first_records) < STEPS_MIN:
        return found
    if name_period > 1:
        slots = list(_slots(buffer, frames, int(first_records[0]), steps.period))
    rows = _gather_steps(buffer, frames, first_records, steps.period)
    rows = rows.select(_rows_like_first(rows, slots))
    is_sound = _match_checksums(rows, slots)
    if not is_sound.any():
        return found
    rows = rows.select(is_sound)
    for slot in slots:
        records = rows.records + slot.record
        found.records.append(records)
        found.columns.extend(_scalar_columns(replace(rows, records=records), slot))
    return found


def _name_period(sample: RecordMatrix, slots: list[_Slot]) -> int:
    """After how many steps their names come again; 1 as well when they never do."""
    alike = _rows_like_first(sample, slots).nonzero()[0]
    distance = int(alike[1]) if len(alike) > 1 else 1
    return distance if np.array_equal(alike, np.arange(0, len(sample.words), distance)) else 1


def _gather_steps(
    buffer: Buffer, frames: RecordFrames, firsts: Indices, period: int
) -> RecordMatrix:
    """The steps as rows, from the first record's header to the last one's checksum."""
    last = firsts[0] + period - 1
    size = int(frames.starts[last] + frames.lengths[last] + FRAME_BYTES - frames.starts[firsts[0]])
    return record_rows.gather_payloads(buffer, frames.starts[firsts], size - FOOTER_BYTES, firsts)


def _slots(buffer: Buffer, frames: RecordFrames, first: int, period: int) -> Iterator[_Slot]:
    """The records of a step that hold nothing but scalars, as the step of this first record has them."""
    step, row = slice(first, first + period), int(frames.starts[first])
    begins = (frames.starts[step] + HEADER_BYTES).tolist()
    for record, (begin, length) in enumerate(
        zip(begins, frames.lengths[step].tolist(), strict=True)
    ):
        if length > EVENT_BYTES_MAX:
            continue
        event = bytes(buffer[begin : begin + length])
        known = find_layout(event)
        names = (
            [] if known is None else [series_name(event, value) for value in known.layout.values]
        )
        if known is not None and None not in names:
            payload = slice(begin - row, begin - row + length)
            yield _Slot(record, payload, known, [name for name in names if name is not None])


def _rows_like_first(rows: RecordMatrix, slots: list[_Slot]) -> npt.NDArray[np.bool_]:
    """The rows in which all of these records have the layouts and the names that they have in the first."""
    same = rows.difference & _constant_bits(rows, slots)
    alike = np.ones(len(rows.words), np.bool_)
    for word in same.nonzero()[0].tolist():
        column = rows.words[:, word]
        alike &= ((column ^ column[0]) & same[word]) == 0
    return alike


def _constant_bits(rows: RecordMatrix, slots: list[_Slot]) -> Words:
    """The bits of a row that say how its records are laid out, and whose values they hold."""
    bits = np.zeros(rows.words.shape[1] * WORD_BYTES, np.uint8)
    for slot in slots:
        deciding = np.bitwise_or.reduce([slot.known.deciding, *slot.known.names])
        bits[slot.payload] = deciding.view(np.uint8)[: slot.payload.stop - slot.payload.start]
    return bits.view("<u8")


def _match_checksums(rows: RecordMatrix, slots: list[_Slot]) -> npt.NDArray[np.bool_]:
    """The rows in which all of these records match their checksums; none without records."""
    is_sound = np.full(len(rows.words), bool(slots))
    differing = rows.difference.view(np.uint8) != 0
    for slot in slots:
        columns = differing[slot.payload].nonzero()[0]
        sums = linear_checksum.checksums(rows.as_bytes[:, slot.payload], columns)
        is_sound &= linear_checksum.mask(sums) == rows.column(slot.payload.stop, "<u4")
    return is_sound


def _scalar_columns(rows: RecordMatrix, slot: _Slot) -> Iterator[ScalarColumn]:
    """The scalars of one of a step's records; `rows.records` are those."""
    labels = np.zeros(len(rows.words), np.intp)
    names = [FactorizedNames([name], labels) for name in slot.names]
    return scalar_columns(rows, shift_layout(slot.known.layout, slot.payload.start), names)
