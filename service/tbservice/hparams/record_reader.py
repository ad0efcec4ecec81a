"""Reads the hparams records of one experiment: which runs are sessions, and which runs they own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import TooLarge
from tbservice.experiments.lifecycle import get_version_tag
from tbservice.grouping import group_by_weight
from tbservice.hparams.record_cache import (
    RECORDS,
    CachedRecords,
    ExperimentRecords,
    RecordDecoder,
    SizedRecord,
    StoredRecord,
)
from tbservice.hparams.schema import LoggedSummary
from tbservice.hparams.session_table import NO_START, StoredStart
from tbservice.series.tables import hparams_rows
from tbservice.series.tables.hparams_rows import HparamsListing, RecordColumns
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import Int64s
from tbwire import hparams
from tbwire.hparams import ExperimentSummary, SessionEnd

HPARAMS_CONTENT_BYTES_MAX: Final = 128 * limits.MIB
"""Bytes of the hparams plugin's content in one experiment: summaries, starts and ends."""

HPARAMS_VALUE_ITEMS_MAX: Final = 4_000_000
"""Values of hyperparameters of all sessions of one experiment: 2,000 sessions of 2,000, say."""

_Record = TypeVar("_Record", StoredStart, ExperimentSummary)


def read_records(db: Connection, grant: ReadGrant) -> ExperimentRecords:
    """Read the records of an experiment, in a snapshot, or return the cached ones.

    Without a session, but with a summary that declares metrics, each run with scalars is a session
    without hyperparameters.

    Raises TooLarge over `HPARAMS_CONTENT_BYTES_MAX` bytes of records or `HPARAMS_VALUE_ITEMS_MAX`
    values of hyperparameters.
    """
    version = get_version_tag(db, grant)
    key = replace(grant, link=grant.view, user_id=None)  # equal for all who see the same
    cached = RECORDS.find(key)
    if cached is not None and cached.version == version:
        return cached.records

    listing = hparams_rows.list_records(db, grant.experiment_id)
    _check_size(int(listing.records.sizes.sum()))
    by_digest = _decode(db, grant, listing.records, cached.by_digest if cached else {})
    records = _sort_by_kind(listing, [by_digest[digest][0] for digest in listing.records.digests])
    _check_values(sum(len(start.values) for start in records.starts.values()))
    if not records.starts and any(logged.summary.metrics for logged in records.summaries):
        run_ids, _ = hparams_rows.list_scalar_names(db, grant.experiment_id)
        starts = dict.fromkeys(np.unique(run_ids).tolist(), NO_START)
        records = replace(records, starts=starts, wall_times=dict.fromkeys(starts, -np.inf))
    RECORDS.put(key, CachedRecords(version, records, by_digest))
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


def _decode(
    db: Connection,
    grant: ReadGrant,
    columns: RecordColumns,
    known: Mapping[bytes, SizedRecord],
) -> dict[bytes, SizedRecord]:
    """Return the records by digest; reads only those that are not known."""
    digests = columns.digests
    records = {digest: known[digest] for digest in digests if digest in known}
    missing = [index for index, digest in enumerate(digests) if digest not in records]
    decoder = RecordDecoder()
    if missing:
        decoder.share_names(record for record, _ in records.values())
    digest_of = {int(columns.series_ids[index]): digests[index] for index in missing}
    for group in group_by_weight(
        missing, lambda index: int(columns.sizes[index]), limits.SCAN_CHUNK_BYTES
    ):
        ids = columns.series_ids[group].tolist()
        for series_id, metadata in hparams_rows.read_metadata(db, grant.experiment_id, ids):
            records[digest_of[series_id]] = decoder.decode(metadata)
    return records


def _sort_by_kind(listing: HparamsListing, decoded: Sequence[StoredRecord]) -> ExperimentRecords:
    """Return the records by kind; one whose content is not what its tag says is malformed."""
    run_names = dict(zip(listing.run_ids.tolist(), listing.run_names, strict=True))
    starts = _select(listing, decoded, hparams.SESSION_START_TAG, StoredStart)
    summaries = _select(listing, decoded, hparams.EXPERIMENT_TAG, ExperimentSummary)
    return ExperimentRecords(
        run_names,
        {run_id: start for run_id, start, _ in starts},
        {run_id: wall_time for run_id, _, wall_time in starts},
        tuple(
            LoggedSummary(wall_time, run_names[run_id], each)
            for run_id, each, wall_time in summaries
        ),
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
    if size > HPARAMS_CONTENT_BYTES_MAX:
        limit = f"the limit of {HPARAMS_CONTENT_BYTES_MAX} (hparams_content_bytes_max)"
        raise TooLarge(f"the experiment's hparams records have {size} bytes, over {limit}")


def _check_values(count: int) -> None:
    if count > HPARAMS_VALUE_ITEMS_MAX:
        limit = f"the limit of {HPARAMS_VALUE_ITEMS_MAX} (hparams_value_items_max)"
        raise TooLarge(f"the experiment's sessions have {count} hyperparameters, over {limit}")
