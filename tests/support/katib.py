"""Calls of Katib's components without a transport: messages in, messages out."""

from __future__ import annotations

from tbservice.katib import observation_log, places
from tbservice.katib.katib_pb2 import (
    DeleteObservationLogRequest,
    GetObservationLogRequest,
    MetricLog,
    ReportObservationLogRequest,
)
from tbservice.series import compaction
from tbservice.series.tables import runs_tags


def log(metric: str, value: object, time_stamp: str = "2026-01-31T12:00:00Z") -> MetricLog:
    """One log."""
    return MetricLog(time_stamp=time_stamp, metric={"name": metric, "value": str(value)})


class KatibClient:
    """Calls with one grant."""

    def __init__(self, ingest, grant) -> None:
        self.ingest = ingest
        self.grant = grant

    def call(self, function, request, *more):
        """The reply to a request."""
        return function(self.ingest, self.grant, request, *more)

    def report(self, trial: str, *logs: MetricLog, experiment: str | None = None) -> None:
        """Reports logs of a trial."""
        request = ReportObservationLogRequest(
            trial_name=trial, observation_log={"metric_logs": logs}
        )
        self.call(observation_log.report, request, experiment)

    def get(
        self,
        trial: str,
        metric: str = "",
        *,
        start: str = "",
        end: str = "",
        experiment: str | None = None,
    ):
        """(time, metric, value) of each log."""
        request = GetObservationLogRequest(
            trial_name=trial, metric_name=metric, start_time=start, end_time=end
        )
        logs = self.call(observation_log.get, request, experiment).observation_log.metric_logs
        return [(each.time_stamp, each.metric.name, each.metric.value) for each in logs]

    def values(self, trial: str, metric: str = "", **more: str) -> list[str]:
        """The values, in the order of the log."""
        return [value for _, _, value in self.get(trial, metric, **more)]

    def delete(self, trial: str) -> None:
        """Deletes the log of a trial."""
        self.call(observation_log.delete, DeleteObservationLogRequest(trial_name=trial))

    def compact(self, trial: str) -> None:
        """Compacts the run of a trial."""
        with self.ingest.database.transaction(self.grant.workspace_id) as db:
            place = places.find_place(db, self.grant, trial, None)
            run_id = runs_tags.resolve_runs(db, place, [trial])[trial]
            while compaction.compact_run(db, place, run_id, compact_idle=True).series:
                pass
