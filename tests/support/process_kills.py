"""Real servers that are killed with SIGKILL and started again, and a place to stop the world while
that is done.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress

import psutil
import psycopg

from support.uploading import SECONDS_MAX
from tbservice.local.embedded.instance import Instance


class SyncPoint:
    """A call or statement that is held in its proxy while the test's own thread does something
    about the servers.

    Servers have to be started in that thread: they end with the thread that started them.
    """

    def __init__(self) -> None:
        self._has_come = threading.Event()
        self._is_over = threading.Event()

    def wait_at(self) -> None:
        """Called in the proxy's thread; only the first time does it wait."""
        self._has_come.set()
        assert self._is_over.wait(SECONDS_MAX)

    def run_at(self, action: Callable[[], None]) -> None:
        """Waits for the moment, acts, and lets everything go on."""
        try:
            assert self._has_come.wait(SECONDS_MAX), "the moment never came"
            action()
        finally:
            self._is_over.set()


def kill_worker(service, port: int) -> None:
    """Kills the worker process of a running `tbservice serve` that has a connection from this port."""
    found = [
        worker
        for worker in workers_of(service)
        if port in {one.laddr.port for one in _connections(worker)}
    ]
    assert len(found) == 1, "the statement is not a worker's"
    found[0].kill()


def started_workers(service, database_port: int) -> list[psutil.Process]:
    """The worker processes that have found their database: a worker that does not, when it starts,
    ends them all.
    """
    workers = workers_of(service)
    return [
        one for one in workers if database_port in {each.raddr.port for each in _connections(one)}
    ]


def _connections(process: psutil.Process) -> list:
    with suppress(psutil.NoSuchProcess):  # it has just died
        return [one for one in process.net_connections("tcp") if one.laddr and one.raddr]
    return []


def workers_of(service) -> list[psutil.Process]:
    """The living worker processes of a running `tbservice serve`; Python's own resource tracker is
    none.
    """
    return [child for child in psutil.Process(service.process.pid).children() if _is_worker(child)]


def _is_worker(child: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(child.cmdline())
    except psutil.NoSuchProcess:  # it has just died
        return False


def kill_backends(instance: Instance, database: str) -> None:
    """Kills the processes that serve a database's connections; PostgreSQL then restarts all of
    itself.
    """
    with (
        suppress(psycopg.OperationalError),
        instance.postgres.connect_as_superuser("postgres") as superuser,
    ):
        found = superuser.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = %s", [database]
        ).fetchall()
        for (process_id,) in found:
            with suppress(ProcessLookupError):  # the first one that is killed ends the others
                os.kill(process_id, signal.SIGKILL)


def end_backends(instance: Instance, database: str) -> None:
    """Has PostgreSQL end a database's connections, as an administrator would."""
    with instance.postgres.connect_as_superuser("postgres") as superuser:
        superuser.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database]
        )


def kill_postgres(instance: Instance) -> None:
    """Kills PostgreSQL's first process; the others notice and end."""
    _kill(instance._database)


def restart_postgres(instance: Instance) -> None:
    """Starts it again on its port and its files, and waits until it answers."""
    instance.children.remove(instance._database)
    instance._database = instance._add(instance.postgres.start())
    instance.postgres.wait_ready(instance._database)


def kill_seaweedfs(instance: Instance) -> None:
    """Kills SeaweedFS."""
    _kill(instance._objects)


def restart_seaweedfs(instance: Instance) -> None:
    """Starts it again on its ports and its files, and waits until it answers."""
    instance.children.remove(instance._objects)
    instance._objects = instance._add(instance.seaweedfs.start())
    instance.seaweedfs.wait_ready(instance._objects)


def _kill(child) -> None:
    child._process.kill()
    child._process.wait()
