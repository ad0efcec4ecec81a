"""Digests of whole series, to prove that they hold what somebody else has, and their records, to find what differs.

What a series holds is what `reading` would give of it in full. A row of a scalar series whose bytes are damaged counts
as absent: whoever compares digests then learns which points are missing.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import NotFound
from tbservice.reading.tag_groups import numbers_of_place
from tbservice.scalars.scan import read_scalar_pieces
from tbservice.store import digest_scan, time_series
from tbservice.store.digest_scan import BlobRow, TensorRow
from tbservice.types import ALL_STEPS, DataClass, ExperimentId, ReadGrant, Selection, Series, StepRange
from tbwire.digests import Records, SeriesDigest, blob_sequence_digest, record_dtype, tensor_digest, value_records

_VALUE_POINTS_A_QUERY: Final = 20_000
"""Points of tensors and blob sequences after which a query takes no further series."""

_SCALAR_POINTS_A_QUERY: Final = 4_000_000
"""The same for scalars: of these, only the places of their blocks are held."""

_INT64_MAX: Final = 2**63 - 1


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
    place = numbers_of_place(after, 2) or [0, 0]
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
    place = numbers_of_place(after, 1)
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
    points_max = limits.piece_points if limit is None else min(limit, limits.piece_points)
    for group in _groups(found):
        ids = [series.series_id for series in group]
        match group[0].data_class:
            case DataClass.SCALAR:
                yield from read_scalar_pieces(db, experiment_id, ids, _after(after), points_max, skip_damaged=True)
            case DataClass.TENSOR:
                for rows in digest_scan.stream_tensors(db, experiment_id, ids, after, limit):
                    yield from _split(rows, [_tensor_digest(row) for row in rows])
            case DataClass.BLOB_SEQUENCE:
                for parts in digest_scan.stream_blob_sequences(db, experiment_id, ids, after, limit):
                    yield from _split(parts, [_blob_sequence_digest(row) for row in parts])


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


def _after(step: int | None) -> StepRange:
    """The steps greater than this one; all of them, for none."""
    if step is None:
        return ALL_STEPS
    return StepRange(step + 1) if step < _INT64_MAX else StepRange(0, -1)


def _tensor_digest(row: TensorRow) -> bytes:
    return tensor_digest(row.dtype, row.shape, row.data_sha256, row.histogram_sha256)


def _blob_sequence_digest(row: BlobRow) -> bytes:
    return blob_sequence_digest(row.digests, row.logged_content_type)


def _split(rows: Sequence[TensorRow] | Sequence[BlobRow], digests: Sequence[bytes]) -> Iterator[tuple[int, Records]]:
    """The rows as records, by series."""
    records = value_records([row.step for row in rows], [row.wall_time for row in rows], digests)
    ids = np.array([row.series_id for row in rows], np.int64)
    bounds = [0, *(np.flatnonzero(np.diff(ids)) + 1).tolist(), len(ids)]
    for start, end in pairwise(bounds):
        yield int(ids[start]), records[start:end]
