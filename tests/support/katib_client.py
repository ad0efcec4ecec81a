"""Katib's components as clients of the gRPC port: DBManager, Suggestion and EarlyStopping."""

from __future__ import annotations

from support.grpc_calls import SECONDS_MAX, raw_client
from tbservice.katib import katib_pb2 as pb

METHODS = {
    "ReportObservationLog": "DBManager",
    "GetObservationLog": "DBManager",
    "DeleteObservationLog": "DBManager",
    "GetSuggestions": "Suggestion",
    "ValidateAlgorithmSettings": "Suggestion",
    "GetEarlyStoppingRules": "EarlyStopping",
    "SetTrialStatus": "EarlyStopping",
    "ValidateEarlyStoppingSettings": "EarlyStopping",
}
TIME = "2026-01-02T03:04:05Z"


class Katib:
    """All methods of the three services, over one channel."""

    def __init__(self, channel, token=None):
        self._channel = channel
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    def call(self, method, request, *, timeout=SECONDS_MAX, more=()):
        """Call a method by its name; return its reply."""
        reply = getattr(pb, f"{method}Reply")
        rpc = self._channel.unary_unary(
            f"/api.v1.beta1.{METHODS[method]}/{method}",
            type(request).SerializeToString,
            reply.FromString,
        )
        return rpc(request, timeout=timeout, metadata=(*self._metadata, *more))

    def report(self, trial, *logs, **options):
        """Report logs, each a metric, a value and a time (`TIME` by default)."""
        return self.call("ReportObservationLog", report(trial, *logs), **options)

    def logs(self, trial, metric="", start="", end=""):
        """Return the logs of a trial as (metric, value, time)."""
        request = pb.GetObservationLogRequest(
            trial_name=trial, metric_name=metric, start_time=start, end_time=end
        )
        reply = self.call("GetObservationLog", request)
        assert reply.HasField("observation_log")
        return [
            (log.metric.name, log.metric.value, log.time_stamp)
            for log in reply.observation_log.metric_logs
        ]

    def delete(self, trial):
        return self.call("DeleteObservationLog", pb.DeleteObservationLogRequest(trial_name=trial))

    def suggest(self, request):
        return self.call("GetSuggestions", request)

    def validate(self, experiment):
        request = pb.ValidateAlgorithmSettingsRequest(experiment=experiment)
        return self.call("ValidateAlgorithmSettings", request)

    def rules(self, experiment, trials):
        """Return the rules of early stopping; the address is of nobody, and must not be called."""
        request = pb.GetEarlyStoppingRulesRequest(
            experiment=experiment, trials=trials, db_manager_address="192.0.2.1:1"
        )
        return list(self.call("GetEarlyStoppingRules", request).early_stopping_rules)

    def stop(self, trial, **options):
        return self.call("SetTrialStatus", pb.SetTrialStatusRequest(trial_name=trial), **options)


def report(trial, *logs):
    """Return a request that reports logs, each a metric, a value and a time if not `TIME`."""
    return pb.ReportObservationLogRequest(
        trial_name=trial,
        observation_log=pb.ObservationLog(
            metric_logs=[
                pb.MetricLog(
                    time_stamp=time[0] if time else TIME,
                    metric=pb.Metric(name=name, value=str(value)),
                )
                for name, value, *time in logs
            ]
        ),
    )


def katib_client(stack, port, token=None):
    """Return a `Katib` whose channel is closed with the stack."""
    return Katib(stack.enter_context(raw_client(port)).channel, token)
