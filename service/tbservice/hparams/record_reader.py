"""Reads the hparams records of one experiment: which runs are sessions, and which runs they own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import TooLarge
from tbservice.hparams.decoded_records import (
    DECODED,
    NOT_CACHED,
    NotCached,
    RecordDecoder,
    StoredRecord,
)
from tbservice.hparams.schema import LoggedSummary
from tbservice.hparams.session_table import NO_START, StoredStart
from tbservice.store import hparams_rows
from tbservice.store.hparams_rows import HparamsListing, RecordColumns
from tbservice.types import Int64s, ReadGrant
from tbwire import hparams
from tbwire.hparams import ExperimentSummary, SessionEnd

_Record = TypeVar("_Record", StoredStart, ExperimentSummary)


@dataclass(slots=True)
class ExperimentRecords:
    """The records of an experiment.

    `starts` are by run id; a run with one is a session. `wall_times` are those of the starts, in
    seconds. `malformed` counts the records that were left out.
    """

    run_names: dict[int, str]
    starts: dict[int, StoredStart] = field(default_factory=dict)
    wall_times: dict[int, float] = field(default_factory=dict)
    summaries: list[LoggedSummary] = field(default_factory=list)
    malformed: int = 0


def read_records(db: Connection, grant: ReadGrant) -> ExperimentRecords:
    """Read the records of an experiment, in a snapshot.

    Without a session, but with a summary that declares metrics, each run with scalars is a session
    without hyperparameters.

    Raises TooLarge over `HPARAMS_CONTENT_BYTES_MAX` bytes of records or `HPARAMS_VALUE_ITEMS_MAX`
    values of hyperparameters.
    """
    listing = hparams_rows.list_records(db, grant.experiment_id)
    _check_size(int(listing.records.sizes.sum()))
    decoded = _decode(db, grant, listing.records)
    run_names = dict(zip(listing.run_ids.tolist(), listing.run_names, strict=True))

    records = _sort_by_kind(listing, run_names, decoded)
    _check_values(sum(len(start.values) for start in records.starts.values()))
    if not records.starts and any(logged.summary.metrics for logged in records.summaries):
        run_ids, _ = hparams_rows.list_scalar_names(db, grant.experiment_id)
        records.starts = dict.fromkeys(np.unique(run_ids).tolist(), NO_START)
        records.wall_times = dict.fromkeys(records.starts, -np.inf)
    return records


def read_ends(
    db: Connection, grant: ReadGrant, run_ids: Int64s | None
) -> list[tuple[int, SessionEnd, float]]:
    """Return run id, end and wall time in seconds of these runs' ends, None for those of all runs.

    Malformed ones are left out.
    """
    ends = []
    for run_id, wall_time, metadata in hparams_rows.read_ends(db, grant.experiment_id, run_ids):
        try:
            end = hparams.parse_metadata(metadata)
        except hparams.MalformedHparams:
            continue
        if isinstance(end, SessionEnd):
            ends.append((run_id, end, wall_time))
    return ends


def _decode(db: Connection, grant: ReadGrant, columns: RecordColumns) -> list[StoredRecord]:
    """Return the record of each series; reads only those that are not cached."""
    cached = DECODED.find(columns.digests)
    missing = [index for index, record in enumerate(cached) if record is NOT_CACHED]
    decoder = RecordDecoder()
    if missing:
        decoder.share_names(cached)
    digests = {int(columns.series_ids[index]): columns.digests[index] for index in missing}
    decoded: dict[bytes, StoredRecord] = {}
    for chunk in _chunks(missing, columns):
        for series_id, metadata in hparams_rows.read_metadata(db, grant.experiment_id, chunk):
            record, size = decoder.decode(metadata)
            decoded[digests[series_id]] = record
            DECODED.add(digests[series_id], record, size)
    return [
        decoded[digest] if isinstance(record, NotCached) else record
        for digest, record in zip(columns.digests, cached, strict=True)
    ]


def _chunks(missing: Sequence[int], columns: RecordColumns) -> Iterator[list[int]]:
    """Yield the series ids of the missing records, about `SCAN_CHUNK_BYTES` at a time."""
    chunk: list[int] = []
    size = 0
    for index in missing:
        chunk.append(int(columns.series_ids[index]))
        size += int(columns.sizes[index])
        if size >= limits.SCAN_CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _sort_by_kind(
    listing: HparamsListing, run_names: dict[int, str], decoded: Sequence[StoredRecord]
) -> ExperimentRecords:
    """Return the records by kind; one whose content is not what its tag says is malformed."""
    starts = _select(listing, decoded, hparams.SESSION_START_TAG, StoredStart)
    summaries = _select(listing, decoded, hparams.EXPERIMENT_TAG, ExperimentSummary)
    return ExperimentRecords(
        run_names,
        {run_id: start for run_id, start, _ in starts},
        {run_id: wall_time for run_id, _, wall_time in starts},
        [
            LoggedSummary(wall_time, run_names[run_id], each)
            for run_id, each, wall_time in summaries
        ],
        len(decoded) - len(starts) - len(summaries),
    )


def _select(
    listing: HparamsListing, decoded: Sequence[StoredRecord], tag: str, kind: type[_Record]
) -> list[tuple[int, _Record, float]]:
    """Return run id, record and wall time of the records with this tag and kind."""
    tag_ids = [tag_id for tag_id, name in listing.tag_names.items() if name == tag]
    rows = np.flatnonzero(np.isin(listing.records.tag_ids, tag_ids))
    columns = zip(
        listing.records.run_ids[rows].tolist(),
        [decoded[row] for row in rows.tolist()],
        listing.records.wall_times[rows].tolist(),
        strict=True,
    )
    return [
        (run_id, record, wall_time)
        for run_id, record, wall_time in columns
        if isinstance(record, kind)
    ]


def _check_size(size: int) -> None:
    if size > limits.HPARAMS_CONTENT_BYTES_MAX:
        limit = f"the limit of {limits.HPARAMS_CONTENT_BYTES_MAX} (hparams_content_bytes_max)"
        raise TooLarge(f"the experiment's hparams records have {size} bytes, over {limit}")


def _check_values(count: int) -> None:
    if count > limits.HPARAMS_VALUE_ITEMS_MAX:
        limit = f"the limit of {limits.HPARAMS_VALUE_ITEMS_MAX} (hparams_value_items_max)"
        raise TooLarge(f"the experiment's sessions have {count} hyperparameters, over {limit}")
