"""Run the application with uvicorn, in one or several worker processes."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr
from uvicorn.config import STARTUP_FAILURE
from uvicorn.server import HANDLED_SIGNALS

from tbservice import limits
from tbservice.admission.connections import Connection, raise_file_limit
from tbservice.admission.listener import Acceptor
from tbservice.api.http.metrics_exposition import (
    multiprocess_metrics,
    reserve_metrics_space,
)
from tbservice.db.database import Database
from tbservice.db.schema import check_schema
from tbservice.errors import StartupError, Unavailable
from tbservice.handlers.processes import get_fork_server
from tbservice.launch import set_parent_death_signal
from tbservice.metrics import share_metrics
from tbservice.server import bind, logs
from tbservice.server.app import HANDLER_MODULES, create_app, prepare_backends
from tbservice.server.grpc_port import reserve_grpc_port
from tbservice.server.grpc_service import SUGGESTION_MODULES, import_listener
from tbservice.server.signals import STOP_SECONDS
from tbservice.server.supervisor import Supervisor
from tbservice.settings import Settings, read_settings

HEAD_BYTES_MAX: Final = 48 * limits.KIB
"""Bytes of a request's first line and headers."""

THREAD_SWITCH_SECONDS = 0.0001
"""Seconds after which a thread releases Python's lock to a waiting one.

With Python's default of 0.005 s each system call of a short request waits that long while another
request computes.
"""

WORKER_RETRY_SECONDS = 1.0
"""Seconds between a starting worker's attempts to reach PostgreSQL and S3."""

_log = logging.getLogger(__name__)

PENDING_CONNECTIONS_ITEMS_MAX: Final = 2048
"""Connections that the operating system keeps until the loop accepts them (uvicorn's default)."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""Parameters of `mallopt` (glibc's malloc.h)."""
_ARENAS_MAX: Final = 2
_MAPPED_BYTES_MIN: Final = 256 * 1024
"""Bytes from which an allocation is mapped, and unmapped when it is freed.

Setting it also stops glibc from raising it (mallopt(3), M_MMAP_THRESHOLD).
"""
_TRIMMED_BYTES_MIN: Final = 16 * 1024 * 1024
"""Free bytes at the end of a heap from which they are returned to the system.

With 4 MiB, a card of 100 runs returned its memory and took it again, 1,700 pages each time.
"""
_COLLECTED_OBJECTS_MIN: Final = 20_000
"""Allocations minus deallocations that start a collection of the youngest generation.

A batch of many small series allocates many objects; with Python's default of 700 it would be
interrupted by hundreds of collections.
"""


class WorkerConfig(uvicorn.Config):
    """Uvicorn's configuration in a worker: until the application is loaded, a signal ends it.

    Uvicorn would note the signal, load and start the application, and only then stop it.
    """

    def load(self) -> None:
        """Load the application. Call it in the main thread."""
        handlers = {number: signal.signal(number, signal.SIG_DFL) for number in HANDLED_SIGNALS}
        super().load()
        for number, handler in handlers.items():
            signal.signal(number, handler)


class Server(uvicorn.Server):
    """A uvicorn server with a callback for the time when it listens."""

    def __init__(self, config: uvicorn.Config, when_ready: Callable[[], None]) -> None:
        """Configure it; `when_ready` is called once, in the event loop, and must not block."""
        super().__init__(config)
        self._when_ready = when_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then call `when_ready`."""
        # Sent when a terminal is closed; uvicorn handles only SIGINT and SIGTERM.
        # Without a handler, SIGHUP ends Python at once: no response in progress would be completed.
        signal.signal(signal.SIGHUP, self.handle_exit)
        await super().startup(sockets)
        if self.started:
            self._when_ready()


def configure(
    app: FastAPI | str,
    settings: Settings,
    config_type: type[uvicorn.Config] = uvicorn.Config,
    **options: Any,
) -> uvicorn.Config:
    """Return the uvicorn configuration of `serve` and `tbservice up`."""
    return config_type(
        app,
        http=Connection,
        loop=f"{EventLoop.__module__}:{EventLoop.__name__}",
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        forwarded_allow_ips=settings.trusted_proxies,
        # The address of a share link has its token in it.
        access_log=False,
        log_config=None,  # `logs.configure` was called by the command
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
        **options,
    )


def serve(grpc_port: int | None = None) -> None:
    """Serve by the settings until a signal, in one process or several with an application each.

    `grpc_port` replaces the setting of this name.

    Raises SchemaMismatch if the schema is too old or too new: this never migrates it, because
    several servers may start at once. Raises StartupError if a worker does not start.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _exit_on_signal)
    if grpc_port is not None:
        os.environ["TBHUB_GRPC_PORT"] = str(grpc_port)
    named = read_settings()
    logs.configure(named.log_format)
    _check_database(named)

    with (
        bind.bind_socket(named.host, named.port) as bound,
        reserve_grpc_port(named) as settings,
    ):
        if settings.workers == 1:
            app = create_app(settings)
            # Raises an error of one line; in the application's lifespan it would be a traceback.
            prepare_backends(app)
            run(Server(configure(app, settings), lambda: _announce(settings)), bound)
        else:
            if settings.grpc_port is not None:  # the workers read their settings again
                os.environ["TBHUB_GRPC_PORT"] = str(settings.grpc_port)
                import_listener()
                get_fork_server(SUGGESTION_MODULES).start()
            get_fork_server(HANDLER_MODULES).start()  # of which each worker has a clone
            _announce(settings)
            factory = f"{__name__}:{create_worker_app.__name__}"
            with multiprocess_metrics():
                supervisor = Supervisor(
                    configure(
                        factory, settings, WorkerConfig, factory=True, workers=settings.workers
                    ),
                    sockets=[bound],
                )
                supervisor.run()
            if supervisor.has_given_up:
                raise StartupError(
                    "a worker did not start, so all were stopped: see the lines above"
                )


def openapi_json() -> str:
    """Return the OpenAPI document as JSON; needs neither settings nor servers."""
    return json.dumps(
        create_app(Settings(database_url=SecretStr("postgresql://"))).openapi(), indent=2
    )


def run(server: Server, bound: socket.socket) -> None:
    """Serve on the socket until a signal.

    Raises StartupError if the application does not start; the reason is in the log.
    """
    _prepare_process()
    server.run(sockets=[bound])
    if not server.started:
        raise StartupError("the service did not start: see the lines above")


def create_worker_app() -> FastAPI:
    """Create the application of a worker process, which ends with its parent.

    Exits with uvicorn's STARTUP_FAILURE, at which the parent starts no other worker, if the
    backends respond but cannot be used.
    """
    settings = read_settings()
    logs.configure(settings.log_format)
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        # prctl(2), PR_SET_PDEATHSIG: a parent that was killed cannot tell its workers.
        set_parent_death_signal(signal.SIGTERM, parent.pid)

    share_metrics()
    app = create_app(settings)
    try:
        reserve_metrics_space()
        _wait_for_backends(app)
    except StartupError as error:
        _log.error("a worker cannot start: %s", error)
        sys.exit(STARTUP_FAILURE)
    _prepare_process()
    return app


def _prepare_process() -> None:
    """Tune this process for serving. Call it when all long-lived objects exist."""
    _limit_memory_growth()
    raise_file_limit()
    # https://docs.python.org/3/library/sys.html#sys.setswitchinterval
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)


def _wait_for_backends(app: FastAPI) -> None:
    """Wait until PostgreSQL and S3 respond: uvicorn stops all workers if one fails to start.

    The application does not check them again, so that an outage right after this does not prevent
    the start.
    """
    while True:
        try:
            prepare_backends(app)
        except Unavailable as error:
            _log.warning("a worker waits to start: %s", error)
            time.sleep(WORKER_RETRY_SECONDS)
        else:
            return


def _check_database(settings: Settings) -> None:
    database = Database(settings.database_url.get_secret_value(), 1)
    try:
        missing = check_schema(database)
    finally:
        database.close()
    if missing:
        _log.warning("the database lacks %s: run 'tbservice migrate'", ", ".join(missing))


def _announce(settings: Settings) -> None:
    address = f"{settings.host} port {settings.port}"
    grpc = "" if settings.grpc_port is None else f", gRPC on port {settings.grpc_port}"
    print(f"tbhub listens on {address}{grpc}, workers: {settings.workers}", flush=True)  # noqa: T201 - the command's answer


def _exit_on_signal(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


class EventLoop(asyncio.SelectorEventLoop):
    """An event loop in which new connections do not delay the requests of others.

    asyncio accepts as many connections as may wait, 2,048, whenever its socket is readable
    (`selector_events._accept_connection`): a client that opened and reset connections made each
    turn of the loop last up to a second, and a page needs some twenty turns. `Acceptor` serves one
    in each turn, in rotation by address or IPv6 network.
    """

    async def create_server(  # type: ignore[override] # its overloads
        self, make_protocol: Callable[[], asyncio.BaseProtocol], *args: Any, **options: Any
    ) -> asyncio.Server:
        """Create the server; connections of a given socket `sock` are accepted by an `Acceptor`."""
        listening = options.get("sock")
        if listening is None:
            return await super().create_server(make_protocol, *args, **options)

        server = await super().create_server(
            make_protocol, *args, **options | {"start_serving": False}
        )
        listening.listen(PENDING_CONNECTIONS_ITEMS_MAX)
        Acceptor(self, listening, make_protocol)
        return server


def _limit_memory_growth() -> None:
    """Tune malloc and the garbage collector. Call it when all long-lived objects exist."""
    if sys.platform == "linux":
        _tune_malloc()
    gc.collect()
    gc.freeze()
    gc.enable()  # `tbservice` starts without
    gc.set_threshold(_COLLECTED_OBJECTS_MIN)


def _tune_malloc() -> None:
    """Tune glibc's malloc; other C libraries have no `mallopt`, or one without effect."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS_MAX)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES_MIN)
        mallopt(_M_TRIM_THRESHOLD, _TRIMMED_BYTES_MIN)
