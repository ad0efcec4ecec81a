"""Delete the logs of a trial, and of its series the points that were made of them.

Blocks have many points, and thinned copies of them. So a series is deleted, and what came from
elsewhere is written again as a new one: change cursors then read it from its begin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice.errors import TooLarge
from tbservice.ingest.batch import SentMetadata, SentSeries
from tbservice.ingest.door import PointWriter
from tbservice.ingest.series_updates import IncomingBySeries
from tbservice.katib.reports import compute_wall_times
from tbservice.katib.tables import katib_observations, katib_trials
from tbservice.katib.tables.katib_observations import DeletedLogs
from tbservice.series.scan import read_scalar_chunks
from tbservice.series.tables import hparams_rows, points, runs_tags, series_rows, time_series
from tbservice.series.tables.scalar_format import concatenate
from tbservice.types.grants import AppendGrant
from tbservice.types.sampling import ALL_STEPS, Selection
from tbservice.types.series import Series
from tbwire.digests import scalar_records
from tbwire.points import DataClass, ScalarPoints

KATIB_KEPT_POINTS_MAX: Final = 5_000_000
"""Points of other origin that a DeleteObservationLog may have to write again."""

_CHUNK_POINTS: Final = 200_000
"""Points that are read at a time."""


def delete_logs(writer: PointWriter, place: AppendGrant, name: str) -> None:
    """Delete logs and points in the caller's transaction.

    The run is locked against ingest first: all that writes to its series waits, or has committed.

    Raises TooLarge if more than `KATIB_KEPT_POINTS_MAX` points from elsewhere are in the series.
    """
    db, digest = writer.db, runs_tags.hash_name(name)
    run_id = runs_tags.lock_run(db, place.experiment_id, name)
    if run_id is None:
        return
    trial = katib_trials.lock_or_create(db, place, {digest: run_id})[digest]
    deleted_by_tag = katib_observations.delete_returning(db, place.experiment_id, run_id)
    names = hparams_rows.list_tag_names(db, place.experiment_id, list(deleted_by_tag))
    deleted = {names[tag_id]: logs for tag_id, logs in deleted_by_tag.items()}
    trial.recent_reports = b""  # a report that is sent after the deletion is a new one
    katib_trials.update(db, place, [trial])

    selection = Selection(
        runs=frozenset({name}), tags=frozenset(deleted), data_class=DataClass.SCALAR
    )
    affected = time_series.list_series(db, place.experiment_id, selection) if deleted else []
    kept = _remove_points(db, place, run_id, affected, deleted)
    updates = writer.plan(place, _group_kept(run_id, affected, kept))
    writer.write(place, updates, is_rewrite=True)


def _remove_points(
    db: Connection,
    place: AppendGrant,
    run_id: int,
    affected: Sequence[Series],
    deleted: Mapping[str, DeletedLogs],
) -> dict[int, ScalarPoints]:
    """Delete the series; return the points from elsewhere of each that has some, by series id."""
    if not affected:
        return {}
    keys = [(run_id, runs_tags.hash_name(series.tag)) for series in affected]
    series_rows.lock(db, place.experiment_id, keys)  # against compaction

    tags = {series.series_id: series.tag for series in affected}
    made = {tag: _as_bytes(_make_points(logs)) for tag, logs in deleted.items()}
    chunks: dict[int, list[ScalarPoints]] = {}
    count = 0
    for series_id, stored in read_scalar_chunks(
        db, place.experiment_id, list(tags), ALL_STEPS, _CHUNK_POINTS
    ):
        others = stored.select(~np.isin(_as_bytes(stored), made[tags[series_id]]))
        count += len(others)
        if count > KATIB_KEPT_POINTS_MAX:
            raise TooLarge(
                "the trial's series have more than "
                f"{KATIB_KEPT_POINTS_MAX} points that were uploaded "
                "(katib_kept_points_max): delete the run instead"
            )
        if len(others):
            chunks.setdefault(series_id, []).append(others)
    time_series.delete_by_id(db, place.experiment_id, list(tags))
    points.delete_series_points(db, place.experiment_id, list(tags))
    return {series_id: concatenate(parts) for series_id, parts in chunks.items()}


def _group_kept(
    run_id: int, affected: Sequence[Series], kept: Mapping[int, ScalarPoints]
) -> IncomingBySeries:
    return {
        (run_id, runs_tags.hash_name(series.tag)): [
            SentSeries(
                series.tag,
                SentMetadata(series.plugin, DataClass.SCALAR, series.summary_metadata),
                kept[series.series_id],
            )
        ]
        for series in affected
        if series.series_id in kept
    }


def _make_points(logs: DeletedLogs) -> ScalarPoints:
    wall_times = compute_wall_times(logs.times, logs.received_at)
    return ScalarPoints(logs.steps, wall_times, logs.numbers)


def _as_bytes(points: ScalarPoints) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """Return points as bytes, which are equal for equal NaN, too."""
    records = scalar_records(points.steps, points.wall_times, points.values)
    return records.view(f"V{records.dtype.itemsize}")
