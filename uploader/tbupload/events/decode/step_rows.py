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
from tbupload.events.decode.event_layout import moved
from tbupload.events.decode.layout_cache import KnownLayout, find_layout
from tbupload.events.decode.record_periods import STEPS_MIN, Repetition
from tbupload.events.decode.record_rows import WORD_BYTES, Rows, Words
from tbupload.events.decode.record_walk import Buffer, Indices
from tbupload.events.decode.templates import EVENT_BYTES_MAX, Names, ScalarRun, SeriesName, name_of, scalar_runs
from tbupload.events.framing import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, Frames

_SAMPLE_STEPS: Final = 256
"""Steps that are looked at to find out after how many of them the names come again."""

_STEP_RECORDS_MIN: Final = 2
"""One tag alone is read as fast record by record."""


@dataclass(slots=True)
class StepScalars:
    """What steps came to: the scalars of each tag, and the records that are done with."""

    runs: list[ScalarRun] = field(default_factory=list)
    records: list[Indices] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Slot:
    """A record of a step that holds scalars: the index of the record, and where its payload lies in the row."""

    record: int
    payload: slice
    known: KnownLayout
    names: list[SeriesName]


def decode_steps(buffer: Buffer, frames: Frames, repetition: Repetition) -> StepScalars:
    """Decodes the scalars of steps that are alike and whose records are sound; with others it is not done."""
    found, steps, firsts = StepScalars(), repetition, repetition.firsts()
    slots = list(_slots(buffer, frames, int(firsts[0]), steps.period))
    turn = _turn(_gather(buffer, frames, firsts[:_SAMPLE_STEPS], steps.period), slots)
    if turn > 1:
        steps = repetition.times(turn)
        firsts = steps.firsts()
    if steps.period < _STEP_RECORDS_MIN or len(firsts) < STEPS_MIN:
        return found
    if turn > 1:
        slots = list(_slots(buffer, frames, int(firsts[0]), steps.period))
    rows = _gather(buffer, frames, firsts, steps.period)
    rows = rows.select(_alike(rows, slots))
    is_sound = _sound(rows, slots)
    if not is_sound.any():
        return found
    rows = rows.select(is_sound)
    for slot in slots:
        records = rows.records + slot.record
        found.records.append(records)
        found.runs.extend(_runs(replace(rows, records=records), slot))
    return found


def _turn(sample: Rows, slots: list[_Slot]) -> int:
    """After how many steps their names come again; 1 as well when they never do."""
    alike = _alike(sample, slots).nonzero()[0]
    distance = int(alike[1]) if len(alike) > 1 else 1
    return distance if np.array_equal(alike, np.arange(0, len(sample.words), distance)) else 1


def _gather(buffer: Buffer, frames: Frames, firsts: Indices, period: int) -> Rows:
    """The steps as rows, from the first record's header to the last one's checksum."""
    last = firsts[0] + period - 1
    size = int(frames.starts[last] + frames.lengths[last] + FRAME_BYTES - frames.starts[firsts[0]])
    return record_rows.gather(buffer, frames.starts[firsts], size - FOOTER_BYTES, firsts)


def _slots(buffer: Buffer, frames: Frames, first: int, period: int) -> Iterator[_Slot]:
    """The records of a step that hold nothing but scalars, as the step of this first record has them."""
    step, row = slice(first, first + period), int(frames.starts[first])
    begins = (frames.starts[step] + HEADER_BYTES).tolist()
    for record, (begin, length) in enumerate(zip(begins, frames.lengths[step].tolist(), strict=True)):
        if length > EVENT_BYTES_MAX:
            continue
        event = bytes(buffer[begin : begin + length])
        known = find_layout(event)
        names = [] if known is None else [name_of(event, value) for value in known.layout.values]
        if known is not None and None not in names:
            payload = slice(begin - row, begin - row + length)
            yield _Slot(record, payload, known, [name for name in names if name is not None])


def _alike(rows: Rows, slots: list[_Slot]) -> npt.NDArray[np.bool_]:
    """The rows in which all of these records have the layouts and the names that they have in the first."""
    same = rows.difference & _same_bits(rows, slots)
    alike = np.ones(len(rows.words), np.bool_)
    for word in same.nonzero()[0].tolist():
        column = rows.words[:, word]
        alike &= ((column ^ column[0]) & same[word]) == 0
    return alike


def _same_bits(rows: Rows, slots: list[_Slot]) -> Words:
    """The bits of a row that say how its records are laid out, and whose values they hold."""
    bits = np.zeros(rows.words.shape[1] * WORD_BYTES, np.uint8)
    for slot in slots:
        deciding = np.bitwise_or.reduce([slot.known.deciding, *slot.known.names])
        bits[slot.payload] = deciding.view(np.uint8)[: slot.payload.stop - slot.payload.start]
    return bits.view("<u8")


def _sound(rows: Rows, slots: list[_Slot]) -> npt.NDArray[np.bool_]:
    """The rows in which all of these records match their checksums; none without records."""
    is_sound = np.full(len(rows.words), bool(slots))
    differing = rows.difference.view(np.uint8) != 0
    for slot in slots:
        columns = differing[slot.payload].nonzero()[0]
        sums = linear_checksum.checksums(rows.as_bytes[:, slot.payload], columns)
        is_sound &= linear_checksum.mask(sums) == rows.column(slot.payload.stop, "<u4")
    return is_sound


def _runs(rows: Rows, slot: _Slot) -> Iterator[ScalarRun]:
    """The scalars of one of a step's records; `rows.records` are those."""
    labels = np.zeros(len(rows.words), np.intp)
    names = [Names([name], labels) for name in slot.names]
    return scalar_runs(rows, moved(slot.known.layout, slot.payload.start), names)
