"""Digests of whole series, to prove that they hold what somebody else has, and their records, to find what differs.

What a series holds is what `reading` would give of it in full. Memory is bounded however long a series is: sealed
blocks come one after the other in step order, and what is not sealed yet is merged in, a window of steps at a time.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.domain.unsealed import Arrived, Unsealed, merge
from tbservice.errors import Malformed, NotFound
from tbservice.store import digest_rows, time_series
from tbservice.store.digest_rows import TAIL, BlobRow, ScalarRow, TensorRow
from tbservice.store.packing import Points
from tbservice.store.scalar_blocks import OPEN, SEALED
from tbservice.types import DataClass, ExperimentId, ReadGrant, Selection, Series
from tbwire.digests import (
    Records,
    SeriesDigest,
    blob_sequence_digest,
    record_dtype,
    scalar_records,
    tensor_digest,
    value_records,
)

_VALUE_POINTS_A_QUERY: Final = 20_000
"""Points of tensors and blob sequences after which a query takes no further series."""

_SCALAR_POINTS_A_QUERY: Final = 4_000_000
"""The same for scalars: of these, only the places of their blocks are held."""

_INT64_MAX: Final = 2**63 - 1

_AFTER_BLOCKS: Final = 2**62
"""Added to the ids of tail rows: what is sealed came first, then what is in open blocks, then the tail."""


@dataclass(frozen=True, slots=True)
class Digest:
    """What proves a series: how many points it holds, between which steps, and their digest (see `tbwire.digests`)."""

    series: Series
    count: int
    first_step: int | None
    last_step: int | None
    sha256: str
    metadata_sha256: str


@dataclass(frozen=True, slots=True)
class RecordPage:
    """A piece of a series in step order, as records of `tbwire.digests`; `following` is None at its end."""

    series: Series
    records: Records
    following: str | None


def list_digests(
    db: Connection, grant: ReadGrant, selection: Selection, after: str, limit: int
) -> tuple[list[Digest], str | None]:
    """A page of digests, by data class and then in the order in which the series came, and where the next page begins.

    At most `limit`, or as many as `digest_page_seconds` allow; at least one. Raises Malformed for a place that is none.
    """
    started = time.monotonic()
    place = _numbers(after, 2) or [0, 0]
    found = time_series.list_page(db, grant.experiment_id, selection, (place[0], place[1]), limit + 1)
    page: list[Digest] = []
    for digest in _digests(db, grant.experiment_id, found[:limit]):
        page.append(digest)
        if time.monotonic() - started > limits.digest_page_seconds:
            break
    if len(page) == len(found):
        return page, None
    last = page[-1].series
    return page, f"{int(last.data_class)}.{last.series_id}"


def read_records(db: Connection, grant: ReadGrant, run: str, tag: str, after: str, limit: int) -> RecordPage:
    """The `limit` points of a series that come after step `after` (from the beginning, when empty), as records.

    Raises NotFound when there is no such series, Malformed for a place that is none.
    """
    place = _numbers(after, 1)
    found = time_series.list_series(db, grant.experiment_id, Selection(runs=frozenset({run}), tags=frozenset({tag})))
    if not found:
        raise NotFound("the experiment has no such series")
    pieces = [np.empty(0, record_dtype(is_scalar=found[0].data_class is DataClass.SCALAR))]
    for _, piece in _pieces(db, grant.experiment_id, found, place[0] if place else None, limit + 1):
        pieces.append(piece)
        if sum(map(len, pieces)) > limit:
            break
    whole = np.concatenate(pieces)
    records = whole[:limit]
    return RecordPage(found[0], records, str(records["step"][-1]) if len(whole) > limit else None)


def _numbers(after: str, count: int) -> list[int]:
    """The numbers, parted by points, that a `next` was made of; none when it is empty."""
    if not after:
        return []
    try:
        numbers = [int(number) for number in after.split(".")]
    except ValueError:
        numbers = []
    if len(numbers) != count or not all(-_INT64_MAX <= number + 1 <= _INT64_MAX + 1 for number in numbers):
        raise Malformed("'after' is not the 'next' of an earlier page")
    return numbers


def _digests(db: Connection, experiment_id: ExperimentId, found: Sequence[Series]) -> Iterator[Digest]:
    """The digest of each series, in their order; a series whose points are gone has that of none."""
    pieces = _pieces(db, experiment_id, found, None, None)
    waiting = next(pieces, None)
    for series in found:
        digest = SeriesDigest()
        while waiting is not None and waiting[0] == series.series_id:
            digest.add(waiting[1])
            waiting = next(pieces, None)
        metadata = hashlib.sha256(series.summary_metadata).hexdigest()
        yield Digest(series, digest.count, digest.first_step, digest.last_step, digest.hexdigest(), metadata)


def _pieces(
    db: Connection, experiment_id: ExperimentId, found: Sequence[Series], after: int | None, limit: int | None
) -> Iterator[tuple[int, Records]]:
    """Series id and records, by series as they are found and then by step; none, or more, a series.

    Only steps greater than `after`. About `limit` points are wanted.
    """
    for group in _groups(found):
        ids = [series.series_id for series in group]
        match group[0].data_class:
            case DataClass.SCALAR:
                yield from _scalar_pieces(db, experiment_id, ids, after, limit)
            case DataClass.TENSOR:
                for rows in digest_rows.stream_tensors(db, experiment_id, ids, after, limit):
                    yield from _split(rows, [_tensor_digest(row) for row in rows])
            case DataClass.BLOB_SEQUENCE:
                for parts in digest_rows.stream_blob_sequences(db, experiment_id, ids, after, limit):
                    yield from _split(parts, [blob_sequence_digest(row.digests) for row in parts])


def _groups(found: Sequence[Series]) -> Iterator[list[Series]]:
    """Series next to each other, of one data class, that one query may look at together."""
    group: list[Series] = []
    points = 0
    for series in found:
        is_scalar = series.data_class is DataClass.SCALAR
        points_max = _SCALAR_POINTS_A_QUERY if is_scalar else _VALUE_POINTS_A_QUERY
        if group and (group[0].data_class is not series.data_class or points + series.count > points_max):
            yield group
            group, points = [], 0
        group.append(series)
        points += series.count
    if group:
        yield group


def _scalar_pieces(
    db: Connection, experiment_id: ExperimentId, ids: Sequence[int], after: int | None, limit: int | None
) -> Iterator[tuple[int, Records]]:
    """The rows of all series are read in one sequence, but what is unsealed in a series that has too much of it."""
    listed = digest_rows.list_scalar_rows(db, experiment_id, ids, after)
    points_max = limits.digest_window_points if limit is None else min(limit, limits.digest_window_points)

    def read(rows: Iterable[ScalarRow]) -> Iterator[Arrived]:
        return map(_arrived, digest_rows.read_scalar_rows(db, experiment_id, rows, points_max))

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
            looked_through = Unsealed(partial(read, rows), points_max)
        else:
            looked_through = Unsealed(partial(islice, sequence, len(rows)), points_max)
        sealed = islice(sequence, len(_sealed(listed.get(id_, ()))))
        yield from ((id_, records) for records in merge(looked_through, sealed, after))


def _sealed(rows: Iterable[ScalarRow]) -> list[ScalarRow]:
    return [row for row in rows if row.level == SEALED]


def _arrived(read: tuple[ScalarRow, Points]) -> Arrived:
    row, points = read
    order = {SEALED: 0, OPEN: row.block_id, TAIL: _AFTER_BLOCKS + row.block_id}[row.level]
    return Arrived(scalar_records(points.steps, points.wall_times, points.values), order)


def _tensor_digest(row: TensorRow) -> bytes:
    return tensor_digest(row.dtype, row.shape, row.data_sha256, row.histogram_sha256)


def _split(rows: Sequence[TensorRow] | Sequence[BlobRow], digests: Sequence[bytes]) -> Iterator[tuple[int, Records]]:
    """The rows as records, by series."""
    records = value_records([row.step for row in rows], [row.wall_time for row in rows], digests)
    ids = np.array([row.series_id for row in rows], np.int64)
    bounds = [0, *(np.flatnonzero(np.diff(ids)) + 1).tolist(), len(ids)]
    for start, end in pairwise(bounds):
        yield int(ids[start]), records[start:end]
