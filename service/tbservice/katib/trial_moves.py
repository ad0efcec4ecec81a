"""Move trials to the experiment that a request names, from where their names had put them.

Rare: a report came before any request, and the trial's name does not tell its experiment.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.experiments.run_deletion import remove_run
from tbservice.ingest import run_names
from tbservice.ingest.door import PointWriter
from tbservice.katib.log_deletion import delete_logs
from tbservice.katib.log_writer import write_logs
from tbservice.katib.metric_values import parse_number
from tbservice.katib.reports import Logs
from tbservice.katib.tables import katib_observations, katib_trials
from tbservice.katib.tables.katib_observations import LogFilter
from tbservice.katib.trial_sessions import make_fields
from tbservice.series.tables import hparams_rows, runs_tags, upload_streams
from tbservice.types.grants import AdminGrant, AppendGrant
from tbservice.types.identifiers import ExperimentId


def move_trials(writer: PointWriter, place: AppendGrant, names: Mapping[bytes, str]) -> None:
    """Move those trials here that are in other experiments, if no request named these.

    Their logs and points move with them. A run is deleted where it was, unless an event file of it
    was uploaded there. A trial with more logs than can be read at once stays where it is.

    Args:
        writer: A transaction of the workspace.
        place: The experiment that a request names.
        names: The trials, by the SHA-256 of their names.
    """
    unbound = katib_trials.list_unbound(writer.db, place.workspace_id, place.experiment_id, names)
    for digest, experiment_id in unbound:
        source = AppendGrant(place.workspace_id, experiment_id)
        _move_trial(writer, source, place, names[digest])


def _move_trial(writer: PointWriter, source: AppendGrant, place: AppendGrant, name: str) -> None:
    db, digest = writer.db, runs_tags.hash_name(name)
    run_id = runs_tags.lock_run(db, source.experiment_id, name)
    known = katib_trials.list_trials(db, source.experiment_id, [digest]).get(digest)
    if run_id is None or known is None:
        return  # deleted meanwhile
    size = katib_observations.measure(db, source.experiment_id, run_id, LogFilter())
    if size[0] > limits.KATIB_READ_LOGS_MAX or size[1] > limits.KATIB_READ_BYTES_MAX:
        return

    logs = _read_logs(db, source.experiment_id, run_id)
    delete_logs(writer, source, name)
    if upload_streams.has_streams(db, source.experiment_id, run_id):
        katib_trials.delete(db, source.experiment_id, digest)
    else:
        remove_run(db, AdminGrant(source.workspace_id, source.experiment_id), name)
    if not len(logs):
        return

    new_run_id = run_names.resolve_runs(db, place, [name])[name]
    trial = katib_trials.lock_or_create(db, place, {digest: new_run_id})[digest]
    if trial.condition is None:
        trial.condition, trial.is_inferred = known.condition, known.is_inferred
    trial.recent_reports = known.recent_reports
    trial.is_bound = True
    times = float(logs.wall_times.min()), float(logs.wall_times.max())
    write_logs(writer, place, trial, logs, make_fields(trial, name, *times))


def _read_logs(db: Connection, experiment_id: ExperimentId, run_id: int) -> Logs:
    rows = katib_observations.read_arrivals(db, experiment_id, run_id)
    tag_ids, metric = np.unique([row[0] for row in rows], return_inverse=True)
    names = hparams_rows.list_tag_names(db, experiment_id, tag_ids)
    values = [row[3] for row in rows]
    numbers = [parse_number(value.decode()) for value in values]
    return Logs(
        [names[tag_id] for tag_id in tag_ids.tolist()],
        metric.astype(np.int64),
        np.array([row[1] for row in rows], np.int64),
        np.array([row[2] for row in rows], np.float64),
        values,
        np.array(numbers, np.float64),  # None becomes NaN
        np.array([number is not None for number in numbers], np.bool_),
    )
