"""Reading of the points that the reader of a change cursor does not have yet.

Every function wants a snapshot (`Database.snapshot`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple, TypeVar

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.reading.catalog import ALL_BLOBS
from tbservice.reading.change_cursor import PendingChanges
from tbservice.reading.point_samples import make_blob_sequence_sample, make_tensor_sample
from tbservice.scalars.dedup import deduplicate_steps
from tbservice.scalars.scan import read_scalar_chunks
from tbservice.store import scalar_blocks, scalar_tail, value_scan
from tbservice.store.scalar_blocks import SEALED
from tbservice.store.scalar_format import concatenate
from tbservice.store.series_progress import SeriesProgress
from tbservice.store.value_scan import BlobRow, TensorRow
from tbservice.types import (
    BlobSequenceSample,
    DataClass,
    ExperimentId,
    ReadGrant,
    ScalarSample,
    StepRange,
    TensorSample,
)
from tbwire.digests import Records

Row = TypeVar("Row", TensorRow, BlobRow)
Sample = ScalarSample | TensorSample | BlobSequenceSample


class PendingSeries(NamedTuple):
    """A series of which all points from step `first_step` on are to be read; at most `points`, among `held_points_max` others."""

    series_id: int
    first_step: int
    is_replacing: bool
    points: int
    held_points_max: int


def choose_series(
    progress: SeriesProgress, pending: PendingChanges, points_max: int
) -> list[PendingSeries]:
    """The first of the unread series, as many as surely fit into a portion and into memory; at least one of them."""
    places, firsts = pending.indices, pending.first_steps.astype(np.float64)
    counts = progress.counts[places].astype(np.float64)
    points = np.minimum(
        counts, progress.last_steps[places] - firsts + 1
    )  # steps are whole numbers, one point each
    held_points = np.minimum(counts, points + progress.tail_points[places])
    fitting = min(
        np.searchsorted(np.cumsum(points), points_max, "right"),
        np.searchsorted(np.cumsum(held_points), limits.SCAN_CHUNK_POINTS, "right"),
    )
    chosen = slice(max(1, int(fitting)))
    columns = (
        progress.series_ids[places],
        pending.first_steps,
        pending.is_replacing,
        points.astype(int),
        held_points.astype(int),
    )
    return [
        PendingSeries(*row)
        for row in zip(*(column[chosen].tolist() for column in columns), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Points by series id: of the first `complete_count` wanted series all, of the next one those up to the step `cut_step`."""

    samples: Mapping[int, Sample]
    complete_count: int
    cut_step: int | None = None


def read_points(
    db: Connection,
    grant: ReadGrant,
    data_class: DataClass | None,
    wanted: Sequence[PendingSeries],
    points_max: int,
) -> ReadResult:
    """Return the first points of these series: at most `points_max`, but at least one."""
    if not wanted:
        return ReadResult({}, 0)
    match data_class:
        case DataClass.TENSOR:
            tensors = partial(_tensor_sample, db)
            return _read_values(db, grant, wanted, points_max, value_scan.stream_tensors, tensors)
        case DataClass.BLOB_SEQUENCE:
            return _read_values(
                db,
                grant,
                wanted,
                points_max,
                value_scan.stream_blob_sequences,
                _blob_sequence_sample,
            )
    if wanted[0].points > points_max or wanted[0].held_points_max > limits.SCAN_CHUNK_POINTS:
        return _read_long_series(db, grant, wanted[0], points_max)
    return _read_scalars(db, grant, wanted)


def _read_long_series(
    db: Connection, grant: ReadGrant, wanted: PendingSeries, points_max: int
) -> ReadResult:
    """The first `points_max` of a scalar series that may be of any length."""
    pieces: list[Records] = []
    steps = StepRange(wanted.first_step)
    for _, piece in read_scalar_chunks(
        db, grant.experiment_id, [wanted.series_id], steps, limits.SCAN_CHUNK_POINTS
    ):
        pieces.append(piece)
        if sum(map(len, pieces)) > points_max:
            break
    records = np.concatenate(pieces)
    taken = records[:points_max]
    points = ScalarSample(taken["step"], taken["wall_time"], taken["value"], len(taken))
    if len(taken) == len(records):
        return ReadResult({wanted.series_id: points}, 1)
    return ReadResult({wanted.series_id: points}, 0, int(taken["step"][-1]))


def _read_scalars(db: Connection, grant: ReadGrant, wanted: Sequence[PendingSeries]) -> ReadResult:
    """All that is wanted of scalar series, at once."""
    firsts = {one.series_id: one.first_step for one in wanted}
    ranges = {series_id: StepRange(first) for series_id, first in firsts.items()}
    blocks = scalar_blocks.read(db, grant.experiment_id, dict.fromkeys(firsts, SEALED), ranges)
    tails = scalar_tail.read(db, grant.experiment_id, list(firsts))
    samples: dict[int, Sample] = {}
    for id_, first in firsts.items():
        parts = [*blocks.get(id_, []), *([tails[id_]] if id_ in tails else [])]
        points = deduplicate_steps(
            concatenate([part.select(part.steps >= first) for part in parts])
        )
        samples[id_] = ScalarSample(points.steps, points.wall_times, points.values, len(points))
    return ReadResult(samples, len(wanted))


def _read_values(
    db: Connection,
    grant: ReadGrant,
    wanted: Sequence[PendingSeries],
    points_max: int,
    stream: Callable[[Connection, ExperimentId, Sequence[int], StepRange], Iterator[Row]],
    convert: Callable[[ReadGrant, Sequence[Row]], Sample],
) -> ReadResult:
    """Rows of the wanted series until they are many or large."""
    rows: list[Row] = []
    size = 0
    complete_count, cut_step = len(wanted), None
    for row in _stream_rows(db, grant, wanted, stream):
        size += row.size
        if rows and (len(rows) == points_max or size > limits.CHANGES_BYTES_MAX):
            last = rows[-1]
            complete_count = next(
                place for place, one in enumerate(wanted) if one.series_id == last.series_id
            )
            cut_step = last.step
            break
        rows.append(row)
    by_series = groupby(rows, lambda row: row.series_id)
    return ReadResult(
        {id_: convert(grant, list(group)) for id_, group in by_series}, complete_count, cut_step
    )


def _stream_rows(
    db: Connection,
    grant: ReadGrant,
    wanted: Sequence[PendingSeries],
    stream: Callable[[Connection, ExperimentId, Sequence[int], StepRange], Iterator[Row]],
) -> Iterator[Row]:
    """The rows of each series from its first wanted step on: series next to each other mostly stand at the same one."""
    for first, group in groupby(wanted, lambda one: one.first_step):
        ids = [one.series_id for one in group]
        yield from stream(db, grant.experiment_id, ids, StepRange(first))


def _tensor_sample(db: Connection, grant: ReadGrant, rows: Sequence[TensorRow]) -> TensorSample:
    values = [value_scan.make_tensor_value(row) for row in rows]
    return make_tensor_sample(db, grant, rows, values, len(rows))


def _blob_sequence_sample(grant: ReadGrant, rows: Sequence[BlobRow]) -> BlobSequenceSample:
    return make_blob_sequence_sample(grant.experiment_id, rows, ALL_BLOBS, len(rows))
