"""Decode steps that repeat: each step is one row of a matrix, and each tag has its own columns.

The record sizes are known to be the same in all steps. One comparison with the first row shows in
which rows the layouts and names are the same, too: they are parsed once, and no row has to be
grouped, named or sorted.
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
"""Steps that are compared to find out after how many of them the names repeat."""

_STEP_RECORDS_MIN: Final = 2
"""A step of one record gains nothing from being a row."""


@dataclass
class StepScalars:
    """The scalars of repeating steps by tag, and the records that are decoded completely."""

    columns: list[ScalarColumn] = field(default_factory=list)
    records: list[Indices] = field(default_factory=list)


@dataclass(frozen=True)
class _Slot:
    """A record of a step that contains only scalars.

    Attributes:
        record: Its index in the step.
        payload: The byte range of its payload in the row.
        known: Its layout.
        names: The names of its values.
    """

    record: int
    payload: slice
    known: KnownLayout
    names: list[TagAndMetadata]


def decode_steps(buffer: Buffer, frames: RecordFrames, periodic: PeriodicRecords) -> StepScalars:
    """Decode the scalars of the steps that are like the first one and match their checksums.

    Records of other steps, and records with anything but scalars, are not in the result.
    """
    scalars, steps, first_records = StepScalars(), periodic, periodic.first_records()
    slots = list(_slots(buffer, frames, int(first_records[0]), steps.period))

    # When records of several tags have one size, the period is too short: compare names, too.
    sample = _gather_steps(buffer, frames, first_records[:_SAMPLE_STEPS], steps.period)
    name_period = _name_period(sample, slots)
    if name_period > 1:
        steps = periodic.merge_steps(name_period)
        first_records = steps.first_records()
    if steps.period < _STEP_RECORDS_MIN or len(first_records) < STEPS_MIN:
        return scalars
    if name_period > 1:
        slots = list(_slots(buffer, frames, int(first_records[0]), steps.period))

    rows = _gather_steps(buffer, frames, first_records, steps.period)
    # Before the checksums, which cost more: rows that are not alike are decoded by templates.
    rows = rows.select(_rows_like_first(rows, slots))
    is_intact = _match_checksums(rows, slots)
    if not is_intact.any():
        return scalars
    rows = rows.select(is_intact)

    for slot in slots:
        records = rows.records + slot.record
        scalars.records.append(records)
        scalars.columns.extend(_scalar_columns(replace(rows, records=records), slot))
    return scalars


def _name_period(sample: RecordMatrix, slots: list[_Slot]) -> int:
    """Return after how many steps their names repeat; 1 also when they never do."""
    alike = _rows_like_first(sample, slots).nonzero()[0]
    distance = int(alike[1]) if len(alike) > 1 else 1
    return distance if np.array_equal(alike, np.arange(0, len(sample.words), distance)) else 1


def _gather_steps(
    buffer: Buffer, frames: RecordFrames, firsts: Indices, period: int
) -> RecordMatrix:
    """Return the steps as rows, from the first record's header to the last one's checksum."""
    last = firsts[0] + period - 1
    size = int(frames.starts[last] + frames.lengths[last] + FRAME_BYTES - frames.starts[firsts[0]])
    return record_rows.gather_payloads(buffer, frames.starts[firsts], size - FOOTER_BYTES, firsts)


def _slots(buffer: Buffer, frames: RecordFrames, first: int, period: int) -> Iterator[_Slot]:
    """Yield the records with only scalars in the step that begins with record `first`."""
    step, row = slice(first, first + period), int(frames.starts[first])
    begins = (frames.starts[step] + HEADER_BYTES).tolist()

    for record, (begin, length) in enumerate(zip(begins, frames.lengths[step].tolist())):
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
    """Return in which rows all slots have the layouts and the names of the first row."""
    same = rows.difference & _constant_bits(rows, slots)
    is_alike = np.ones(len(rows.words), np.bool_)
    for word in same.nonzero()[0].tolist():
        column = rows.words[:, word]
        is_alike &= ((column ^ column[0]) & same[word]) == 0
    return is_alike


def _constant_bits(rows: RecordMatrix, slots: list[_Slot]) -> Words:
    """Return the mask of the bits of a row that decide its slots' layouts and names."""
    bits = np.zeros(rows.words.shape[1] * WORD_BYTES, np.uint8)
    for slot in slots:
        deciding = np.bitwise_or.reduce([slot.known.deciding, *slot.known.names])
        bits[slot.payload] = deciding.view(np.uint8)[: slot.payload.stop - slot.payload.start]
    return bits.view("<u8")


def _match_checksums(rows: RecordMatrix, slots: list[_Slot]) -> npt.NDArray[np.bool_]:
    """Return in which rows all slots match their checksums; in none when there are no slots."""
    is_intact = np.full(len(rows.words), bool(slots))
    differing = rows.difference.view(np.uint8) != 0
    for slot in slots:
        columns = differing[slot.payload].nonzero()[0]
        sums = linear_checksum.checksums(rows.as_bytes[:, slot.payload], columns)
        is_intact &= linear_checksum.mask(sums) == rows.column(slot.payload.stop, "<u4")
    return is_intact


def _scalar_columns(rows: RecordMatrix, slot: _Slot) -> Iterator[ScalarColumn]:
    """Return the columns of a slot; `rows.records` are the slot's records."""
    labels = np.zeros(len(rows.words), np.intp)
    names = [FactorizedNames([name], labels) for name in slot.names]
    return scalar_columns(rows, shift_layout(slot.known.layout, slot.payload.start), names)
