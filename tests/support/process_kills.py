"""Kill real servers with SIGKILL and start them again, while a call is held."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import psutil
import psycopg

from support.waiting import SECONDS_MAX
from tbservice.local.embedded.instance import Instance


class SyncPoint:
    """Holds a call or statement in its proxy while the test's own thread kills or restarts servers.

    Start servers in that thread: they end with the thread that started them.
    """

    def __init__(self) -> None:
        self._has_come = threading.Event()
        self._is_over = threading.Event()

    def wait_at(self) -> None:
        """Wait, in the proxy's thread; only at the first call."""
        self._has_come.set()
        assert self._is_over.wait(SECONDS_MAX)

    def run_at(self, action: Callable[[], None]) -> None:
        """Wait until a call is held, run the action, and release the call."""
        try:
            assert self._has_come.wait(SECONDS_MAX), "the moment never came"
            action()
        finally:
            self._is_over.set()


def kill_worker(service, port: int) -> None:
    """Kill the worker process of a running `tbservice serve` that has a connection from this port."""
    workers = [
        worker
        for worker in workers_of(service)
        if port in {connection.laddr.port for connection in _connections(worker)}
    ]
    assert len(workers) == 1, "the statement is not a worker's"
    workers[0].kill()


def started_workers(service, database_port: int) -> list[psutil.Process]:
    """Return the worker processes that are connected to their database: their application has
    started.
    """
    workers = workers_of(service)
    return [
        worker
        for worker in workers
        if database_port in {connection.raddr.port for connection in _connections(worker)}
    ]


def _connections(process: psutil.Process) -> list:
    with suppress(psutil.NoSuchProcess):  # it has just died
        return [
            connection
            for connection in process.net_connections("tcp")
            if connection.laddr and connection.raddr
        ]
    return []


def workers_of(service) -> list[psutil.Process]:
    """Return the running worker processes of a `tbservice serve`, which it forks."""
    parent = psutil.Process(service.process.pid)
    return [child for child in parent.children() if _is_forked(child, parent.cmdline())]


def _is_forked(child: psutil.Process, command: list[str]) -> bool:
    try:
        return child.cmdline() == command
    except psutil.NoSuchProcess:  # it has just died
        return False


def end_backends(superuser: psycopg.Connection, database: str) -> None:
    """Let PostgreSQL end a database's connections, as an administrator does."""
    superuser.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database]
    )


def kill_postgres(instance: Instance) -> None:
    """Kill PostgreSQL's first process; the others notice and end."""
    _kill(instance._database)


def restart_postgres(instance: Instance) -> None:
    """Start PostgreSQL again on its port and its files, and wait until it is ready."""
    instance.children.remove(instance._database)
    instance._database = instance._add(instance.postgres.start())
    instance.postgres.wait_ready(instance._database)


def kill_seaweedfs(instance: Instance) -> None:
    """Kill SeaweedFS."""
    _kill(instance._objects)


def restart_seaweedfs(instance: Instance) -> None:
    """Start SeaweedFS again on its ports and its files, and wait until it is ready."""
    instance.children.remove(instance._objects)
    instance._objects = instance._add(instance.seaweedfs.start())
    instance.seaweedfs.wait_ready(instance._objects)


def _kill(child) -> None:
    child._process.kill()
    child._process.wait()
