"""Scan scalar series in chunks, in step order and in bounded memory.

Sealed blocks are read one after the other, and unsealed points are merged into them, a window of
steps at a time. Every function requires a snapshot (`Database.snapshot`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Final

from sqlalchemy import Connection

from tbservice.series.merge_iterator import RowPoints, UnsortedRows, merge_rows, slice_steps
from tbservice.series.tables import scalar_scan
from tbservice.series.tables.scalar_blocks import OPEN, SEALED
from tbservice.series.tables.scalar_scan import INLINE_BUFFER, SUPERSEDED, WRITE_BUFFER, ScalarRow
from tbservice.types.identifiers import ExperimentId, Float64s
from tbservice.types.sampling import StepRange
from tbservice.waits import pause
from tbwire.points import ScalarPoints

_WRITE_BUFFER_ORDER: Final = 2**62
"""Added to the ids of write buffer rows: these arrived after sealed and open blocks."""

_INLINE_BUFFER_ORDER: Final = 2**63 - 1
"""The inline buffer arrived last."""

PAUSE_POINTS: Final = 25_000
"""Points after which a scan lets another request begin: some 2 ms."""

_SUPERSEDED_ORDER: Final = -1
"""Superseded points have lost to all others of their period."""


@dataclass(frozen=True, slots=True)
class AttemptScan:
    """Scan of a series with its superseded points: the points with wall times less than `before`.

    With `restarts`, the newest point of each period of a step is yielded, by wall time.
    """

    before: float = math.inf
    restarts: Float64s | None = None


_NO_ATTEMPTS: Final[Mapping[int, AttemptScan]] = MappingProxyType({})


def read_scalar_chunks(
    db: Connection,
    experiment_id: ExperimentId,
    ids: Sequence[int],
    steps: StepRange,
    points_max: int,
    *,
    skip_damaged: bool = False,
    attempts: Mapping[int, AttemptScan] = _NO_ATTEMPTS,
) -> Iterator[tuple[int, ScalarPoints]]:
    """Yield series id and points of each chunk of the points in a step range.

    Series in `attempts` are read as of an earlier attempt of the run, or with the points of all.

    The series are in the order of `ids`, their points in step order. The rows of all series are
    read in one sequence, except for series with more unsealed points than fit a chunk.

    About `points_max` points are held at once. Rows with damaged bytes raise ValueError, or are
    skipped with `skip_damaged`.
    """
    listed = scalar_scan.list_scalar_rows(db, experiment_id, ids, steps)
    _add_superseded(listed, db, experiment_id, list(attempts), steps)

    def read(rows: Iterable[ScalarRow]) -> Iterator[RowPoints]:
        found = scalar_scan.read_scalar_rows(db, experiment_id, rows, points_max, skip_damaged)
        for row, points in _pause_between(found):
            attempt = attempts.get(row.series_id)
            if attempt is not None and attempt.before < math.inf:
                points = points.select(points.wall_times < attempt.before)  # noqa: PLW2901 - fewer
            yield RowPoints(points, _find_order(row))

    unsealed = {id_: [row for row in rows if row.level != SEALED] for id_, rows in listed.items()}
    # Their unsealed rows would not fit memory, and are read again for each window.
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
        if len(listed.get(id_, ())) == 1 and id_ not in attempts and id_ not in in_windows:
            # Nothing to merge, as in most of many short series.
            yield id_, slice_steps(next(sequence).points, steps)
            continue
        rows = unsealed.get(id_, [])
        restarts = attempts[id_].restarts if id_ in attempts else None
        read_unsorted = (
            partial(read, rows) if id_ in in_windows else partial(islice, sequence, len(rows))
        )
        unsorted = UnsortedRows(read_unsorted, points_max, steps.last, restarts)
        # Lazy, and from the generator of the unsealed rows before: both are in this order.
        sealed = islice(sequence, len(_select_sealed(listed.get(id_, ()))))
        yield from ((id_, points) for points in merge_rows(unsorted, sealed, steps))


def _pause_between(
    rows: Iterable[tuple[ScalarRow, ScalarPoints]],
) -> Iterator[tuple[ScalarRow, ScalarPoints]]:
    """Yield the rows; after each `PAUSE_POINTS`, another request may begin."""
    since = 0
    for row, points in rows:
        yield row, points
        since += len(points)
        if since >= PAUSE_POINTS:
            pause()
            since = 0


def _add_superseded(
    listed: dict[int, list[ScalarRow]],
    db: Connection,
    experiment_id: ExperimentId,
    ids: Sequence[int],
    steps: StepRange,
) -> None:
    """Add the rows of superseded points of these series to the others."""
    if ids:
        for row in scalar_scan.list_superseded_rows(db, experiment_id, ids, steps):
            listed.setdefault(row.series_id, []).append(row)


def _select_sealed(rows: Iterable[ScalarRow]) -> list[ScalarRow]:
    return [row for row in rows if row.level == SEALED]


def _find_order(row: ScalarRow) -> int:
    """Return the position of a row in the order of arrival."""
    return {
        SEALED: 0,
        OPEN: row.block_id,
        WRITE_BUFFER: _WRITE_BUFFER_ORDER + row.block_id,
        INLINE_BUFFER: _INLINE_BUFFER_ORDER,
        SUPERSEDED: _SUPERSEDED_ORDER,
    }[row.level]
