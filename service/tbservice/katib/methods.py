"""The methods of Katib's services: grants, use cases, and processes that compute suggestions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from tbservice.api.grpc.call import Call
from tbservice.api.grpc.calls import Answer, CallRunner
from tbservice.api.grpc.metadata import read_experiment
from tbservice.auth import grants
from tbservice.handlers.pool import HandlerPool
from tbservice.ingest.service import Ingest
from tbservice.katib import early_stopping, katib_pb2, observation_log, suggestions, trials
from tbservice.types.grants import KatibGrant

_PACKAGE: Final = "api.v1.beta1"
SERVICES: Final = tuple(
    f"{_PACKAGE}.{name}" for name in ("DBManager", "Suggestion", "EarlyStopping")
)
"""The full names of the services."""

_VALIDATIONS: Final = {"ValidateAlgorithmSettings", "ValidateEarlyStoppingSettings"}
_STATUSES: Final = dict.fromkeys(
    (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.INTERNAL,
    ),
    grpc.StatusCode.UNAVAILABLE,
)
"""Statuses of a validation that did not take place: Katib's controller repeats it ten times at
UNAVAILABLE and RESOURCE_EXHAUSTED, and in the end takes the latter, and the others, for consent.
Errors of the token stay as they are: `GetSuggestions`, which checks the same, ends with them too.
"""

UseCase = Callable[[KatibGrant, Any, str | None], Message | None]
"""Takes the grant, the request, and the experiment that the metadata name.

Returns the reply; None for an empty one.
"""


class KatibMethods:
    """The methods of the three services, over the use cases in `tbservice.katib`."""

    def __init__(self, ingest: Ingest, processes: HandlerPool) -> None:
        """Start nothing; suggestions are computed in `processes`."""
        self._ingest = ingest
        self._processes = processes

    def handlers(self, runner: CallRunner) -> list[grpc.GenericRpcHandler]:
        """Return the handlers of all methods."""
        ingest = self._ingest
        use_cases: dict[str, dict[str, UseCase]] = {
            "DBManager": {
                "ReportObservationLog": partial(observation_log.report, ingest),
                "GetObservationLog": partial(observation_log.get, ingest),
                "DeleteObservationLog": partial(observation_log.delete, ingest),
            },
            "Suggestion": {
                "ValidateAlgorithmSettings": lambda _grant, request, _name: suggestions.validate(
                    request.experiment
                ),
            },
            "EarlyStopping": {
                "GetEarlyStoppingRules": self._rules,
                "SetTrialStatus": partial(trials.set_trial_status, ingest),
                "ValidateEarlyStoppingSettings": lambda _grant, request, _name: (
                    early_stopping.validate(request.early_stopping)
                ),
            },
        }
        services = {
            service: {name: self._simple(name, use_case) for name, use_case in methods.items()}
            for service, methods in use_cases.items()
        }
        services["Suggestion"]["GetSuggestions"] = self._get_suggestions
        return [
            # By name and without generated stubs, whose code is bound to a version of grpcio:
            # https://grpc.github.io/grpc/python/grpc.html#grpc.method_handlers_generic_handler
            grpc.method_handlers_generic_handler(
                f"{_PACKAGE}.{service}",
                {
                    name: runner.handler(
                        f"{service}/{name}", answer, _STATUSES if name in _VALIDATIONS else None
                    )
                    for name, answer in methods.items()
                },
            )
            for service, methods in services.items()
        ]

    def _simple(self, name: str, use_case: UseCase) -> Answer:
        """Return a method that is one use case in one thread."""
        request: type[Message] = getattr(katib_pb2, f"{name}Request")
        empty: Message = getattr(katib_pb2, f"{name}Reply")()

        def work(call: Call) -> bytes:
            reply = use_case(self._grant(call), call.parse(request), read_experiment(call.metadata))
            return (empty if reply is None else reply).SerializeToString()

        async def answer(call: Call) -> bytes:
            return await call.in_thread(work, call)

        return answer

    def _grant(self, call: Call) -> KatibGrant:
        with self._ingest.database.without_transaction() as db:
            return grants.grant_katib(db, call.secret)

    async def _get_suggestions(self, call: Call) -> bytes:
        """Compute in a process without a turn; then record the trials, and what is handed out.

        Nothing is recorded of a request that is not valid.
        """

        def begin() -> tuple[KatibGrant, katib_pb2.GetSuggestionsRequest]:
            grant, request = self._grant(call), call.parse(katib_pb2.GetSuggestionsRequest)
            trials.check_request(request.experiment, request.trials)
            return grant, request

        grant, request = await call.in_thread(begin)
        # It computes for seconds in a process, and needs neither this worker's thread nor a
        # connection.
        async with call.without_turn():
            reply = await self._processes.in_process(
                "katib_suggest", call.message, calls={}, cancel=_nothing_to_cancel
            )

        def finish() -> bytes:
            message = katib_pb2.GetSuggestionsReply.FromString(reply)
            # After the suggestions were computed: an invalid request must leave no trials behind.
            trials.record_request(self._ingest, grant, request.experiment, request.trials)
            # It names the trials, so that their first reports find the experiment.
            trials.record_suggestions(self._ingest, grant, request.experiment, message)
            return message.SerializeToString()

        return await call.in_thread(finish)

    def _rules(
        self,
        grant: KatibGrant,
        request: katib_pb2.GetEarlyStoppingRulesRequest,
        _experiment: str | None,
    ) -> Message:
        """Answer from our own store: `db_manager_address` is the caller's, and is never dialled."""
        spec = request.experiment.spec
        count = early_stopping.logs_per_trial(spec.early_stopping)
        trials.record_request(self._ingest, grant, request.experiment, request.trials)
        finished = early_stopping.trials_to_compare(request.trials)
        logs = trials.objective_logs(self._ingest, grant, request.experiment, finished, count)
        rules = early_stopping.rules(spec.early_stopping, spec.objective, logs)
        return katib_pb2.GetEarlyStoppingRulesReply(early_stopping_rules=rules)


def _nothing_to_cancel() -> None:
    """Killing the process is enough: it calls nothing in the worker."""
