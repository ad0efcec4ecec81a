"""`grpc.health.v1`: whether the service is ready, under the names that Katib's probes ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from starlette.concurrency import run_in_threadpool

from tbservice.api.grpc.calls import CallRunner
from tbservice.api.grpc.metadata import Context
from tbservice.api.http.readiness import Readiness
from tbservice.errors import MalformedRequest, NotFound, Unavailable

_SUGGESTION_NAMES: Final = frozenset(
    {
        "manager.v1beta1.Suggestion",  # what Katib's probes of a suggestion ask for
        "api.v1.beta1.Suggestion",
    }
)
_NAMES: Final = _SUGGESTION_NAMES | {
    "",
    "grpc.health.v1.Health",
    "api.v1.beta1.DBManager",
    "api.v1.beta1.EarlyStopping",
}


def make_health_handler(
    runner: CallRunner, readiness: Readiness, can_suggest: Callable[[], bool]
) -> grpc.GenericRpcHandler:
    """Return the handler of `Check`; `Watch` is not implemented, as in Katib.

    `can_suggest` says whether a call for suggestions need not wait for libraries.
    """

    async def check(context: Context) -> None:
        message = await context.read()
        if not isinstance(message, bytes):
            raise MalformedRequest("the call has no message")
        try:
            service = health_pb2.HealthCheckRequest.FromString(message).service
        except DecodeError as error:
            raise MalformedRequest("the message is not a HealthCheckRequest") from error
        if service not in _NAMES:
            raise NotFound("there is no service of this name here")
        status = health_pb2.HealthCheckResponse.NOT_SERVING
        if service not in _SUGGESTION_NAMES or can_suggest():
            status = await run_in_threadpool(_status, readiness)
        await context.write(health_pb2.HealthCheckResponse(status=status).SerializeToString())

    return grpc.method_handlers_generic_handler(
        "grpc.health.v1.Health", {"Check": runner.open_handler("Health/Check", check)}
    )


def _status(readiness: Readiness) -> health_pb2.HealthCheckResponse.ServingStatus:
    try:
        readiness.check()
    except Unavailable:
        return health_pb2.HealthCheckResponse.NOT_SERVING
    return health_pb2.HealthCheckResponse.SERVING
