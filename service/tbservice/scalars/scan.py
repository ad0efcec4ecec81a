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

from tbservice.scalars.merge_iterator import Arrived, Unsealed, merge
from tbservice.store import scalar_scan
from tbservice.store.scalar_blocks import OPEN, SEALED
from tbservice.store.scalar_format import Points
from tbservice.store.scalar_scan import TAIL, TAIL_END, ScalarRow
from tbservice.types import ExperimentId, StepRange
from tbwire.digests import Records, scalar_records

_AFTER_BLOCKS: Final = 2**62
"""Added to the ids of tail rows: what is sealed came first, then what is in open blocks, then the tail."""

_LAST: Final = 2**63 - 1
"""Where the end of the tail stands in that order."""


def read_scalar_pieces(
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

    def read(rows: Iterable[ScalarRow]) -> Iterator[Arrived]:
        return map(_arrived, scalar_scan.read_scalar_rows(db, experiment_id, rows, points_max, skip_damaged))

    unsealed = {id_: [row for row in rows if row.level != SEALED] for id_, rows in listed.items()}
    in_windows = {id_ for id_, rows in unsealed.items() if sum(row.count for row in rows) > points_max}
    sequence = read(
        row
        for id_ in ids
        for row in (*(unsealed.get(id_, ()) if id_ not in in_windows else ()), *_sealed(listed.get(id_, ())))
    )
    for id_ in ids:
        rows = unsealed.get(id_, [])
        if id_ in in_windows:
            looked_through = Unsealed(partial(read, rows), points_max, steps.last)
        else:
            looked_through = Unsealed(partial(islice, sequence, len(rows)), points_max, steps.last)
        sealed = islice(sequence, len(_sealed(listed.get(id_, ()))))
        yield from ((id_, records) for records in merge(looked_through, sealed, steps))


def _sealed(rows: Iterable[ScalarRow]) -> list[ScalarRow]:
    return [row for row in rows if row.level == SEALED]


def _arrived(read: tuple[ScalarRow, Points]) -> Arrived:
    row, points = read
    order = {SEALED: 0, OPEN: row.block_id, TAIL: _AFTER_BLOCKS + row.block_id, TAIL_END: _LAST}[row.level]
    return Arrived(scalar_records(points.steps, points.wall_times, points.values), order)
