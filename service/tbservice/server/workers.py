"""Runs the application with uvicorn: its workers, and a stop that does not wait for idle clients."""

from __future__ import annotations

import json
import logging
import multiprocessing
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from tbservice import limits
from tbservice.admission.connections import Connection, raise_file_limit
from tbservice.api.http.metrics_exposition import multiprocess_metrics
from tbservice.errors import StartupError, Unavailable
from tbservice.launch import set_parent_death_signal
from tbservice.server import bind, logs
from tbservice.server.app import create_app, prepare_backends
from tbservice.server.memory import limit_memory_growth
from tbservice.server.signals import STOP_SECONDS
from tbservice.settings import Settings, read_settings
from tbservice.store.pg.database import Database
from tbservice.store.pg.schema import check_schema

WORKER_HEALTHCHECK_SECONDS_MAX = 30
"""Seconds after which a worker that does not answer its parent is replaced."""

THREAD_SWITCH_SECONDS = 0.0005
"""Seconds after which a thread gives way to another one that waits for Python's lock. With Python's own 0.005 each
system call of a short request waits that long while another request computes."""

WORKER_RETRY_SECONDS = 1.0
"""Seconds between two attempts of a worker to find the servers it needs before it starts."""

_log = logging.getLogger(__name__)


class Supervisor(Multiprocess):
    """Uvicorn's parent of several workers, which knows whether it was stopped or has stopped by itself."""

    has_given_up = False

    def keep_subprocess_alive(self) -> None:
        """Replaces workers that died; gives up when one does not start, as the next would not either."""
        for process in self.processes:
            process.child_conn.close()  # the worker's end: held here too, it would hide that the worker has died
        was_stopped = self.should_exit.is_set()
        super().keep_subprocess_alive()
        self.has_given_up = self.should_exit.is_set() and not was_stopped


class Server(uvicorn.Server):
    """A uvicorn server that says when it has begun to listen."""

    def __init__(self, config: uvicorn.Config, when_ready: Callable[[], None]) -> None:
        """`when_ready` is called once, in the event loop: it must not block."""
        super().__init__(config)
        self._when_ready = when_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts listening, then calls `when_ready`."""
        signal.signal(
            signal.SIGHUP, self.handle_exit
        )  # a closed terminal; uvicorn itself knows the other two
        await super().startup(sockets)
        if self.started:
            self._when_ready()


def configure(app: FastAPI | str, settings: Settings, **options: Any) -> uvicorn.Config:
    """The uvicorn configuration that every way of serving shares."""
    return uvicorn.Config(
        app,
        http=Connection,
        h11_max_incomplete_event_size=limits.HEAD_BYTES_MAX,
        forwarded_allow_ips=settings.trusted_proxies,
        access_log=False,
        log_config=None,  # `logs.configure` was called, as it is of every command
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
        timeout_worker_healthcheck=WORKER_HEALTHCHECK_SECONDS_MAX,
        **options,
    )


def serve() -> None:
    """Serves as the settings say until a signal, in one process or in several, each with an application of its own.

    Raises SchemaMismatch when the database is not migrated: that is never done from here, where many may do it at once.
    Raises StartupError when it ends without a signal: a worker does not start.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _exit_on_signal)
    settings = read_settings()
    _check_database(settings)
    with bind.bind_socket(settings.host, settings.port) as bound:
        if settings.workers == 1:
            app = create_app(settings)
            prepare_backends(
                app
            )  # an error here is one line; in the application's start-up it would be a traceback
            run(Server(configure(app, settings), lambda: _announce(settings)), bound)
        else:
            _announce(settings)
            factory = f"{__name__}:{create_worker_app.__name__}"
            with multiprocess_metrics():
                supervisor = Supervisor(
                    configure(factory, settings, factory=True, workers=settings.workers),
                    sockets=[bound],
                )
                supervisor.run()
            if supervisor.has_given_up:
                raise StartupError(
                    "a worker did not start, so all were stopped: the lines above say why"
                )


def openapi_json() -> str:
    """The OpenAPI document as JSON; needs neither settings nor servers."""
    return json.dumps(
        create_app(Settings(database_url=SecretStr("postgresql://"))).openapi(), indent=2
    )


def run(server: Server, bound: socket.socket) -> None:
    """Serves on the socket until a signal. Raises StartupError when the application does not start; its log says why."""
    _prepare_process()
    server.run(sockets=[bound])
    if not server.started:
        raise StartupError("the service did not start: the lines above say why")


def create_worker_app() -> FastAPI:
    """The application of a worker process, which ends with its parent and reads the same environment.

    Exits with the code by which the parent knows that no other worker would start, where the servers are there but
    cannot be served from.
    """
    logs.configure()
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        set_parent_death_signal(signal.SIGTERM, parent.pid)
    app = create_app(read_settings())
    try:
        _wait_for_servers(app)
    except StartupError as error:
        _log.error("a worker cannot start: %s", error)
        sys.exit(STARTUP_FAILURE)
    _prepare_process()
    return app


def _prepare_process() -> None:
    """Set this process up for serving, once everything is imported and made that stays for good."""
    limit_memory_growth()
    raise_file_limit()
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)


def _wait_for_servers(app: FastAPI) -> None:
    """Waits until PostgreSQL and S3 answer: one worker that fails to start, a replacement too, ends all of them.

    They may go away again just after that, which is no reason not to start: the application does not look again.
    """
    ends = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        try:
            prepare_backends(app)
            break
        except Unavailable as error:
            _log.warning("a worker waits to start: %s", error)
            time.sleep(WORKER_RETRY_SECONDS)
    signal.signal(signal.SIGTERM, ends)


def _check_database(settings: Settings) -> None:
    database = Database(settings.database_url.get_secret_value(), 1)
    try:
        check_schema(database)
    finally:
        database.close()


def _announce(settings: Settings) -> None:
    address = f"{settings.host} port {settings.port}"
    print(f"tbhub listens on {address}, workers: {settings.workers}", flush=True)  # noqa: T201 - the command's answer


def _exit_on_signal(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)
