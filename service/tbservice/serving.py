"""Runs the application with uvicorn: its log, its workers, and a stop that does not wait for idle clients."""

from __future__ import annotations

import multiprocessing
import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess

from tbservice import listening
from tbservice.app import create_app
from tbservice.embedded.launch import die_with_parent
from tbservice.settings import Settings
from tbservice.startup_errors import CannotRun

STOP_SECONDS = 3
"""Seconds that requests under way are given when the server stops; what is cut off can be sent again."""
WORKER_SILENCE_SECONDS_MAX = 30
"""Seconds after which a worker that does not answer its parent is replaced."""

# There is no access log: a share link's query holds a token, and logs outlive tokens.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
}


class Server(uvicorn.Server):
    """A uvicorn server that says when it has begun to listen."""

    def __init__(self, config: uvicorn.Config, when_ready: Callable[[], None]) -> None:
        """`when_ready` is called once, in the event loop: it must not block."""
        super().__init__(config)
        self._when_ready = when_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts listening, then calls `when_ready`."""
        signal.signal(signal.SIGHUP, self.handle_exit)  # a closed terminal; uvicorn itself knows the other two
        await super().startup(sockets)
        if self.started:
            self._when_ready()


def configure(app: FastAPI | str, **options: Any) -> uvicorn.Config:
    """The uvicorn configuration that every way of serving shares."""
    return uvicorn.Config(
        app,
        access_log=False,
        log_config=LOGGING,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
        timeout_worker_healthcheck=WORKER_SILENCE_SECONDS_MAX,
        **options,
    )


def serve(settings: Settings, when_ready: Callable[[], None]) -> None:
    """Serves until a signal, in one process or in `settings.workers` of them, each with an application of its own."""
    with listening.bind(settings.host, settings.port) as bound:
        if settings.workers == 1:
            run(Server(configure(create_app(settings)), when_ready), bound)
        else:
            when_ready()
            factory = f"{__name__}:{create_worker_app.__name__}"
            Multiprocess(configure(factory, factory=True, workers=settings.workers), sockets=[bound]).run()


def run(server: Server, bound: socket.socket) -> None:
    """Serves on the socket until a signal. Raises CannotRun when the application does not start; its log says why."""
    server.run(sockets=[bound])
    if not server.started:
        raise CannotRun("the service did not start: the lines above say why")


def create_worker_app() -> FastAPI:
    """The application of a worker process, which ends with its parent and reads the same environment."""
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        die_with_parent(signal.SIGTERM, parent.pid)
    return create_app(read_settings())


def read_settings() -> Settings:
    """The settings in the environment. Raises ValidationError where one is missing or makes no sense."""
    return Settings()  # type: ignore[call-arg]  # the required ones come from the environment
