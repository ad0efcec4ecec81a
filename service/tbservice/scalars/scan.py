"""Scalar series in pieces, in step order: memory is bounded however long a series is.

Sealed blocks come one after the other in step order, and what is not sealed yet is merged in, a window of steps at a
time. Every function wants a snapshot (`Database.snapshot`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

from sqlalchemy import Connection

from tbservice.scalars.merge_iterator import RowRecords, UnsortedRows, merge_rows
from tbservice.store import scalar_scan
from tbservice.store.scalar_blocks import OPEN, SEALED
from tbservice.store.scalar_format import ScalarPoints
from tbservice.store.scalar_scan import INLINE_BUFFER, WRITE_BUFFER, ScalarRow
from tbservice.types import ExperimentId, StepRange
from tbwire.digests import Records, scalar_records

_WRITE_BUFFER_ORDER: Final = 2**62
"""Added to the ids of tail rows: what is sealed came first, then what is in open blocks, then the tail."""

_INLINE_BUFFER_ORDER: Final = 2**63 - 1
"""Where the end of the tail stands in that order."""


def read_scalar_chunks(
    db: Connection,
    experiment_id: ExperimentId,
    ids: Sequence[int],
    steps: StepRange,
    points_max: int,
    *,
    skip_damaged: bool = False,
) -> Iterator[tuple[int, Records]]:
    """Series id and records of the points in this range, by series as given and then by step; none, or more, a series.

    About `points_max` points are held at once. The rows of all series are read in one sequence, but what is unsealed
    in a series that has too much of it. A row whose bytes are damaged is a ValueError, or skipped.
    """
    listed = scalar_scan.list_scalar_rows(db, experiment_id, ids, steps)

    def read(rows: Iterable[ScalarRow]) -> Iterator[RowRecords]:
        return map(
            _make_row_records,
            scalar_scan.read_scalar_rows(db, experiment_id, rows, points_max, skip_damaged),
        )

    unsealed = {id_: [row for row in rows if row.level != SEALED] for id_, rows in listed.items()}
    in_windows = {
        id_ for id_, rows in unsealed.items() if sum(row.count for row in rows) > points_max
    }
    sequence = read(
        row
        for id_ in ids
        for row in (
            *(unsealed.get(id_, ()) if id_ not in in_windows else ()),
            *_select_sealed(listed.get(id_, ())),
        )
    )
    for id_ in ids:
        rows = unsealed.get(id_, [])
        if id_ in in_windows:
            unsorted = UnsortedRows(partial(read, rows), points_max, steps.last)
        else:
            unsorted = UnsortedRows(partial(islice, sequence, len(rows)), points_max, steps.last)
        sealed = islice(sequence, len(_select_sealed(listed.get(id_, ()))))
        yield from ((id_, records) for records in merge_rows(unsorted, sealed, steps))


def _select_sealed(rows: Iterable[ScalarRow]) -> list[ScalarRow]:
    return [row for row in rows if row.level == SEALED]


def _make_row_records(read: tuple[ScalarRow, ScalarPoints]) -> RowRecords:
    row, points = read
    order = {
        SEALED: 0,
        OPEN: row.block_id,
        WRITE_BUFFER: _WRITE_BUFFER_ORDER + row.block_id,
        INLINE_BUFFER: _INLINE_BUFFER_ORDER,
    }[row.level]
    return RowRecords(scalar_records(points.steps, points.wall_times, points.values), order)
