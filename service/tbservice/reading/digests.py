"""Digests of complete series, to compare them with a client's files, and the digests' records.

A digest covers what a full read of the series would return (`tbwire.digests`). A scalar row with
damaged bytes counts as absent, so that a comparison reports which points are missing.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import NotFound
from tbservice.grouping import group_by_weight
from tbservice.pagination import decode_number_token, decode_series_token, encode_series_token
from tbservice.reading.tables import digest_scan
from tbservice.reading.tables.digest_scan import TensorDigestRow
from tbservice.reading.value_readers import VALUE_READERS
from tbservice.series.scan import read_scalar_chunks
from tbservice.series.tables import time_series
from tbservice.series.tables.value_scan import BlobRow
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import ExperimentId
from tbservice.types.sampling import ALL_STEPS, Selection, StepRange
from tbservice.types.series import Series
from tbwire.digests import (
    Records,
    SeriesDigest,
    record_dtype,
    scalar_records,
    value_records,
)
from tbwire.points import DataClass

_VALUE_POINTS_PER_QUERY: Final = 20_000
"""Maximum points in the tensor or blob sequence series of a query, unless it is a single series."""

_SCALAR_POINTS_PER_QUERY: Final = 4_000_000
"""Scalar points per query: more than of others, as only positions of blocks are in memory."""

_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Digest:
    """Count, first and last step, and SHA-256 (hexadecimal) of a series: see `tbwire.digests`."""

    series: Series
    count: int
    first_step: int | None
    last_step: int | None
    sha256: str
    metadata_sha256: str


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Points of a series as digest records, in step order; `next_page_token` is None at its end."""

    series: Series
    records: Records
    next_page_token: str | None


def list_digests(
    db: Connection, grant: ReadGrant, selection: Selection, after: str, limit: int
) -> tuple[list[Digest], str | None]:
    """Return a page of digests, ordered by data class, then by creation, and the next page token.

    A page has at most `limit` digests and ends early after `DIGEST_PAGE_SECONDS`, but has at least
    one. The last page has the token None. Raises MalformedRequest for an invalid token.
    """
    started = time.monotonic()
    position = decode_series_token(after)
    series_list = time_series.list_page(db, grant.experiment_id, selection, position, limit + 1)
    page: list[Digest] = []
    for digest in _compute_digests(db, grant.experiment_id, series_list[:limit]):
        # Checked after the digest: a page has at least one, or a client would ask for the same page
        # again.
        page.append(digest)
        if time.monotonic() - started > limits.DIGEST_PAGE_SECONDS:
            break
    if len(page) == len(series_list):
        return page, None
    last = page[-1].series
    return page, encode_series_token(last.data_class, last.series_id)


def read_records(
    db: Connection, grant: ReadGrant, run: str, tag: str, after: str, limit: int
) -> RecordPage:
    """Return at most `limit` points of a series as digest records, after a page token.

    Raises NotFound for a series that does not exist, MalformedRequest for an invalid token.
    """
    after_step = decode_number_token(after)
    series_list = time_series.list_series(
        db, grant.experiment_id, Selection(runs=frozenset({run}), tags=frozenset({tag}))
    )
    if not series_list:
        raise NotFound("the experiment has no such series")

    chunks = [np.empty(0, record_dtype(is_scalar=series_list[0].data_class is DataClass.SCALAR))]
    for _, chunk in _stream_records(db, grant.experiment_id, series_list, after_step, limit + 1):
        chunks.append(chunk)
        if sum(map(len, chunks)) > limit:
            break

    read = np.concatenate(chunks)
    records = read[:limit]
    next_page_token = str(records["step"][-1]) if len(read) > limit else None
    return RecordPage(series_list[0], records, next_page_token)


def _compute_digests(
    db: Connection, experiment_id: ExperimentId, series_list: Sequence[Series]
) -> Iterator[Digest]:
    """Yield the digest of each series, in this order; without points, that of the empty series."""
    chunks = _stream_records(db, experiment_id, series_list, None, None)
    chunk = next(chunks, None)
    for series in series_list:
        digest = SeriesDigest()
        while chunk is not None and chunk[0] == series.series_id:
            digest.add(chunk[1])
            chunk = next(chunks, None)
        metadata = hashlib.sha256(series.summary_metadata).hexdigest()
        yield Digest(
            series, digest.count, digest.first_step, digest.last_step, digest.hexdigest(), metadata
        )


def _stream_records(
    db: Connection,
    experiment_id: ExperimentId,
    series_list: Sequence[Series],
    after: int | None,
    limit: int | None,
) -> Iterator[tuple[int, Records]]:
    """Yield series ids and digest records, in the order of the series and of their steps.

    A series may yield any number of chunks. Only steps greater than `after` are read. `limit` is
    about how many points the caller will use: it bounds the size of queries.
    """
    points_max = limits.SCAN_CHUNK_POINTS if limit is None else min(limit, limits.SCAN_CHUNK_POINTS)

    for group in _group_by_points(series_list):
        ids = [series.series_id for series in group]
        data_class = group[0].data_class
        if data_class is DataClass.SCALAR:
            for id_, points in read_scalar_chunks(
                db, experiment_id, ids, _steps_after(after), points_max, skip_damaged=True
            ):
                yield id_, scalar_records(points.steps, points.wall_times, points.values)
            continue
        reader = VALUE_READERS[data_class]
        for rows in digest_scan.stream(
            db, reader.digest_row_type, experiment_id, ids, after, limit
        ):
            yield from _split_by_series(rows, [reader.digest(row) for row in rows])


def _group_by_points(series_list: Sequence[Series]) -> Iterator[list[Series]]:
    """Yield groups of consecutive series of one data class, each small enough for one query."""
    for data_class, of_class in groupby(series_list, lambda series: series.data_class):
        is_scalar = data_class is DataClass.SCALAR
        points_max = _SCALAR_POINTS_PER_QUERY if is_scalar else _VALUE_POINTS_PER_QUERY
        yield from group_by_weight(of_class, lambda series: series.count, points_max)


def _steps_after(step: int | None) -> StepRange:
    """Return the range of steps greater than this one; with None, all steps."""
    if step is None:
        return ALL_STEPS
    return StepRange(step + 1) if step < _INT64_MAX else StepRange(0, -1)


def _split_by_series(
    rows: Sequence[TensorDigestRow] | Sequence[BlobRow], digests: Sequence[bytes]
) -> Iterator[tuple[int, Records]]:
    """Yield the rows as digest records, with series ids, split where the series changes."""
    records = value_records([row.step for row in rows], [row.wall_time for row in rows], digests)
    ids = np.array([row.series_id for row in rows], np.int64)
    bounds = [0, *(np.flatnonzero(np.diff(ids)) + 1).tolist(), len(ids)]
    for start, end in pairwise(bounds):
        yield int(ids[start]), records[start:end]
