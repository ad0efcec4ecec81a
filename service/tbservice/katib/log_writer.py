"""Write the logs of a report, and the scalar points made of them, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tbservice.errors import Conflict
from tbservice.ingest import run_names, sessions
from tbservice.ingest.batch import SentMetadata, SentSeries
from tbservice.ingest.door import PointWriter
from tbservice.ingest.series_updates import IncomingBySeries, SeriesUpdate
from tbservice.ingest.session_records import SessionFields
from tbservice.katib import places, trial_sessions
from tbservice.katib.katib_pb2 import ReportObservationLogRequest
from tbservice.katib.reports import Logs, note_report
from tbservice.katib.tables import katib_observations, katib_trials
from tbservice.katib.tables.katib_observations import LogColumns
from tbservice.katib.tables.katib_trials import TrialRow
from tbservice.series.tables import runs_tags
from tbservice.types.grants import AppendGrant
from tbwire.hparams import EXPERIMENT_TAG, SESSION_END_TAG, SESSION_START_TAG
from tbwire.points import DataClass, ScalarPoints
from tbwire.tensorboard_pb2 import DATA_CLASS_SCALAR, SummaryMetadata

KATIB_TRIAL_LOGS_ITEMS_MAX: Final = 1_000_000
"""Logs (items) of one trial."""

_PLUGIN: Final = "scalars"

SCALAR_METADATA: Final = SentMetadata(
    _PLUGIN,
    DataClass.SCALAR,
    SummaryMetadata(
        plugin_data=SummaryMetadata.PluginData(plugin_name=_PLUGIN), data_class=DATA_CLASS_SCALAR
    ).SerializeToString(),
)
"""Summary metadata that `tf.summary.scalar` and tensorboardX log with a scalar."""


def write_report(
    writer: PointWriter,
    place: AppendGrant,
    request: ReportObservationLogRequest,
    logs: Logs,
    received_at: float,
) -> None:
    """Write the logs and their points; nothing for a report that was sent again.

    The row of the trial is locked
    first, so that reports of one trial follow each other: steps count on in the order of arrival.

    Raises RunDeleted if the trial's run was deleted, NotFound if the experiment was, and Conflict
    (`experiment_full`) for too many trials or logs.
    """
    name, digest = request.trial_name, runs_tags.hash_name(request.trial_name)
    run_id = run_names.resolve_runs(writer.db, place, [name])[name]
    trial = katib_trials.lock_or_create(writer.db, place, {digest: run_id})[digest]
    # After the lock: of two equal reports at once, the second must see what the first noted.
    recent = note_report(trial.recent_reports, request, received_at)
    if recent is None:
        return

    if not (trial.log_count or trial.recent_reports):  # perhaps new
        places.check_room(writer.db, place)
    fields = trial_sessions.note_report(trial, name, logs)
    trial.recent_reports = recent
    write_logs(writer, place, trial, logs, fields)


def write_logs(
    writer: PointWriter,
    place: AppendGrant,
    trial: TrialRow,
    logs: Logs,
    fields: SessionFields | None,
) -> None:
    """Write logs of a trial that is locked, its row, and its session if `fields` is not None.

    Raises NotFound if the experiment was deleted, and Conflict for too many logs.
    """
    if trial.log_count + len(logs) > KATIB_TRIAL_LOGS_ITEMS_MAX:
        raise Conflict(
            f"a trial has at most {KATIB_TRIAL_LOGS_ITEMS_MAX:,} logs; this one has "
            f"{trial.log_count:,}",
            code="experiment_full",
        )
    assert trial.run_id is not None  # noqa: S101 - a trial that is locked has a run
    db = writer.db
    # The server's time: clocks of trials' pods differ, and some reports have old timestamps.
    run_id, now = trial.run_id, float(logs.received_at.max())
    tag_ids = runs_tags.resolve_tags(db, place, logs.metrics)
    set_sessions = {} if fields is None else {run_id: fields}
    if fields is not None:  # mostly the first report
        first = [float(logs.wall_times.min())]
        runs_tags.set_start_times(db, place.experiment_id, [run_id], first, [None])
    incoming = _group_points(run_id, logs)
    updates = sessions.plan_sessions(writer, place, set_sessions, now, incoming, skip_misfits=True)
    columns = _make_columns(logs, tag_ids, updates)
    katib_observations.insert(db, place, run_id, trial.log_count, columns)
    trial.log_count += len(logs)
    katib_trials.update(db, place, [trial])
    writer.write(place, updates)


def _group_points(run_id: int, logs: Logs) -> IncomingBySeries:
    """Return the logs that are numbers, by series; their steps follow the last one of it.

    Tags of the HParams plugin, which hold no scalars, are left out.
    """
    order = np.flatnonzero(logs.is_number)
    # Stable: logs of one metric keep the order of arrival, which becomes their steps.
    order = order[np.argsort(logs.metric[order], kind="stable")]
    metrics, starts = np.unique(logs.metric[order], return_index=True)
    incoming = {}
    for metric, rows in zip(metrics.tolist(), np.split(order, starts[1:]), strict=False):
        tag = logs.metrics[metric]
        if tag in {EXPERIMENT_TAG, SESSION_START_TAG, SESSION_END_TAG}:
            continue
        steps = np.arange(len(rows))
        points = ScalarPoints(steps, logs.wall_times[rows], logs.numbers[rows])
        series = SentSeries(tag, SCALAR_METADATA, points, follows_last_step=True)
        incoming[run_id, runs_tags.hash_name(tag)] = [series]
    return incoming


def _make_columns(
    logs: Logs, tag_ids: dict[str, int], updates: Sequence[SeriesUpdate]
) -> LogColumns:
    """Return the logs with the step of each that has become a point."""
    tags = np.array([tag_ids[name] for name in logs.metrics], np.int64)[logs.metric]
    steps = np.zeros(len(logs), np.int64)
    has_step = np.zeros(len(logs), np.bool_)
    order = np.flatnonzero(logs.is_number)
    order = order[np.argsort(tags[order], kind="stable")]
    sorted_tags = tags[order]
    for update in updates:
        if update.row.data_class != DataClass.SCALAR or update.deduplicated is None:
            continue
        bounds = np.searchsorted(sorted_tags, [update.row.tag_id, update.row.tag_id + 1])
        rows = order[slice(*bounds)]
        steps[rows] = update.deduplicated.steps
        has_step[rows] = True
    return LogColumns(
        tags,
        logs.times,
        logs.received_at,
        logs.values,
        logs.numbers,
        logs.is_number,
        steps,
        has_step,
    )
