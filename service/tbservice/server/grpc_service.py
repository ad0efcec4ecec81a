"""The gRPC server of an application, if its settings have a port for it.

Modules that need the extra `katib` are imported only then.
"""
# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.datastructures import State

from tbservice.handlers.pool import HandlerPool
from tbservice.server.logs import log_failure
from tbservice.server.signals import STOP_SECONDS

if TYPE_CHECKING:
    from tbservice.api.grpc.listener import GrpcListener


SUGGESTION_MODULES: Final = ("tbservice.katib.suggestions.handler_jobs",)
"""Modules with the jobs of the processes that compute suggestions."""


class GrpcService:
    """The listener and the processes that compute suggestions; without a port, neither."""

    def __init__(self, state: State) -> None:
        """Start nothing yet. `state` is that of the application, complete except for this."""
        self._listener: GrpcListener | None = None
        # Of their own: those of pages start faster and are smaller without these libraries.
        self._processes = HandlerPool(*SUGGESTION_MODULES)
        if state.settings.grpc_port is not None:
            self._listener = _make_listener(state, self._processes)

    async def start(self) -> None:
        """Accept calls. Raises RuntimeError if the port cannot be bound."""
        if self._listener is not None:
            self._processes.warm()  # their libraries take seconds to load
            await self._listener.start()

    def begin_stop(self) -> None:
        """Refuse further calls. Idempotent; call it in the event loop."""
        if self._listener is not None:
            self._listener.begin_stop()

    async def stop(self) -> None:
        """Return when all calls have ended or were cancelled; kill what still computes."""
        if self._listener is not None:
            await self._listener.wait_stopped()
            self._processes.close()


def import_listener() -> None:
    """Import what a listener needs, for processes that will be forked from this one."""
    import tbservice.api.grpc.listener
    import tbservice.api.grpc.reflection
    import tbservice.katib.methods  # noqa: F401 - kept by Python


def _make_listener(state: State, processes: HandlerPool) -> GrpcListener:
    from tbservice.api.grpc.calls import CallRunner
    from tbservice.api.grpc.health import make_health_handler
    from tbservice.api.grpc.listener import GrpcListener
    from tbservice.api.grpc.reflection import make_reflection_handler
    from tbservice.katib.methods import SERVICES, KatibMethods

    runner = CallRunner(state.database, state.shares, state.traffic, log_failure)
    handlers = [
        *KatibMethods(state.ingest, processes).handlers(runner),
        make_health_handler(runner, state.readiness, lambda: processes.is_warm),
        make_reflection_handler(runner, [*SERVICES, "grpc.health.v1.Health"]),
    ]
    return GrpcListener(state.settings, handlers, STOP_SECONDS)
