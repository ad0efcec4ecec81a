"""The gRPC server of an application, if its settings have a port for it.

Everything that imports grpc is imported only then: it is an extra, and takes memory.
"""
# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from starlette.datastructures import State

from tbservice.server.logs import log_failure
from tbservice.server.signals import STOP_SECONDS

if TYPE_CHECKING:
    from tbservice.api.grpc.listener import GrpcListener


class GrpcService:
    """The listener of an application; without a port, there is none."""

    def __init__(self, state: State) -> None:
        """Start nothing yet. `state` is that of the application, complete except for this."""
        self._listener: GrpcListener | None = None
        if state.settings.grpc_port is not None:
            self._listener = _make_listener(state)

    async def start(self) -> None:
        """Accept calls. Raises RuntimeError if the port cannot be bound."""
        if self._listener is not None:
            await self._listener.start()

    def begin_stop(self) -> None:
        """Refuse further calls. Idempotent; call it in the event loop."""
        if self._listener is not None:
            self._listener.begin_stop()

    async def stop(self) -> None:
        """Return when all calls have ended or were cancelled."""
        if self._listener is not None:
            await self._listener.wait_stopped()


def _make_listener(state: State) -> GrpcListener:
    # gRPC's core writes its own lines to stderr, with what clients sent and without escapes.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from tbservice.api.grpc.calls import CallRunner
    from tbservice.api.grpc.health import make_health_handler
    from tbservice.api.grpc.listener import GrpcListener
    from tbservice.api.grpc.reflection import make_reflection_handler

    runner = CallRunner(state.database, state.shares, log_failure)
    handlers = [
        make_health_handler(runner, state.readiness),
        make_reflection_handler(runner, ["grpc.health.v1.Health"]),
    ]
    return GrpcListener(state.settings, handlers, STOP_SECONDS)
