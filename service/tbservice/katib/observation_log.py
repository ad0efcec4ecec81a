"""Report, read and delete the observation logs of trials: the use cases of Katib's DBManager.

The logs are kept as they were reported. Values that are numbers are also points of a scalar series
of the run with the trial's name, written in the same transaction.
"""

from __future__ import annotations

import time

from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import Forbidden, Invalid, TooLarge
from tbservice.ingest.service import Ingest
from tbservice.katib import log_deletion, log_writer, places
from tbservice.katib.katib_pb2 import (
    DeleteObservationLogRequest,
    GetObservationLogReply,
    GetObservationLogRequest,
    ReportObservationLogRequest,
)
from tbservice.katib.reports import decode_report
from tbservice.katib.tables import katib_observations, katib_trials
from tbservice.katib.tables.katib_observations import LogFilter
from tbservice.katib.timestamps import format_timestamp, parse_timestamp
from tbservice.series.tables import hparams_rows, runs_tags
from tbservice.types.grants import KatibGrant


def report(
    ingest: Ingest,
    grant: KatibGrant,
    request: ReportObservationLogRequest,
    experiment_name: str | None = None,
) -> None:
    """Store the logs of a trial, all or none; after the return they are committed.

    Equal logs in one report are all stored. A report that is sent again is not: see
    `reports.note_report`. Nothing is done for a report without a log that has a timestamp.

    Args:
        ingest: The door for points.
        grant: The right to report.
        request: The report.
        experiment_name: The experiment of Katib that the call's metadata names, if any.

    Raises:
        Invalid: A timestamp, a name or the trial's name is not valid, or a log has no metric.
        TooLarge: A limit is exceeded.
        NotFound: The experiment was deleted.
        Unavailable: Nothing was stored; send the same report again.
    """
    received_at = time.time()
    name = places.check_trial_name(request.trial_name)
    logs = decode_report(request, received_at)
    if not len(logs):
        return
    with ingest.door.transaction(grant) as writer:
        place = places.place_trial(writer.db, grant, name, experiment_name)
        log_writer.write_report(writer, place, request, logs, received_at)


def get(
    ingest: Ingest,
    grant: KatibGrant,
    request: GetObservationLogRequest,
    experiment_name: str | None = None,
) -> GetObservationLogReply:
    """Return the logs of a trial by time, and those of equal times in the order of arrival.

    Without a metric's name, all metrics are returned; start and end are inclusive. A trial that is
    not known has an empty log.

    Raises:
        Invalid: The start or the end cannot be read.
        Forbidden: The token cannot read.
        TooLarge: The response would be over a limit; name a metric or a range of times.
    """
    if not grant.may_read:
        raise Forbidden("this token lacks the scope read; it can only report")
    first = _read_bound("start_time", request.start_time, LogFilter().first)
    last = _read_bound("end_time", request.end_time, LogFilter().last)
    reply = GetObservationLogReply()
    reply.observation_log.SetInParent()

    with ingest.database.snapshot(grant) as db:
        rows, names = _read_logs(db, grant, request, experiment_name, first, last)
    add = reply.observation_log.metric_logs.add
    for moment, metric, value in rows:
        log = add(time_stamp=format_timestamp(moment))
        log.metric.name = names[metric]
        log.metric.value = value.decode()
    return reply


def _read_logs(
    db: Connection,
    grant: KatibGrant,
    request: GetObservationLogRequest,
    experiment_name: str | None,
    first: int,
    last: int,
) -> tuple[list[tuple[int, int, bytes]], dict[int, str]]:
    """Return time, tag id and value of each log, and the names of the tags. Raises TooLarge."""
    place = places.find_place(db, grant, request.trial_name, experiment_name)
    if place is None:
        return [], {}
    id_, digest = place.experiment_id, runs_tags.hash_name(request.trial_name)
    trial = katib_trials.list_trials(db, id_, [digest]).get(digest)
    metric = request.metric_name
    tag_id = runs_tags.find_tag(db, id_, metric) if metric else None
    if trial is None or trial.run_id is None or (metric and tag_id is None):
        return [], {}
    selected = LogFilter(tag_id, first, last)
    _check_size(*katib_observations.measure(db, id_, trial.run_id, selected))
    rows = katib_observations.read(db, id_, trial.run_id, selected)
    return rows, hparams_rows.list_tag_names(db, id_, list({tag_id for _, tag_id, _ in rows}))


def _read_bound(field: str, text: str, default: int) -> int:
    try:
        return parse_timestamp(text) if text else default
    except ValueError as error:
        raise Invalid(f"{field} {text[:50]!r}: {error}") from error


def _check_size(count: int, size: int) -> None:
    advice = "name a metric, or a start_time and an end_time"
    if count > limits.KATIB_READ_LOGS_MAX:
        limit = f"{limits.KATIB_READ_LOGS_MAX} logs (katib_read_logs_max)"
        raise TooLarge(f"a response has at most {limit}; this would have {count}: {advice}")
    if size > limits.KATIB_READ_BYTES_MAX:
        limit = f"{limits.KATIB_READ_BYTES_MAX} bytes of values (katib_read_bytes_max)"
        raise TooLarge(f"a response has at most {limit}; this would have {size}: {advice}")


def delete(
    ingest: Ingest,
    grant: KatibGrant,
    request: DeleteObservationLogRequest,
    experiment_name: str | None = None,
) -> None:
    """Delete the logs of a trial and the points made of them; repeating it changes nothing.

    Its run remains, with its hyperparameters and all points that came from elsewhere. A trial that
    is not known has nothing to delete.

    Raises:
        Forbidden: The token is not an admin token of a workspace.
        TooLarge: Too many points from elsewhere are in the same series.
        Unavailable: Nothing was deleted; send the request again.
    """
    if grant.experiment_id is not None or not grant.may_delete:
        raise Forbidden("only a token of a workspace with the scope admin can delete logs")
    name = request.trial_name
    with ingest.door.transaction(grant) as writer:
        place = places.find_place(writer.db, grant, name, experiment_name)
        if place is not None:
            log_deletion.delete_logs(writer, place, name)
