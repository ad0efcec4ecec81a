"""One embedded instance: PostgreSQL and SeaweedFS in a data directory, started together, stopped together."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from tbservice.local.embedded import seaweedfs
from tbservice.local.embedded.accounts import Account
from tbservice.local.embedded.data_directory import DataDirectory
from tbservice.local.embedded.postgres import Postgres
from tbservice.local.embedded.seaweedfs import SeaweedFS
from tbservice.local.embedded.subprocesses import ChildProcess


class Instance:
    """Both servers, ready between entering and leaving the `with` block. Enter it in a thread that outlives them."""

    def __init__(self, path: Path, account: Account | None = None) -> None:
        """Locks the data directory and finds the programs; starts nothing. Raises StartupError.

        `account` is whom root runs PostgreSQL as; by default the best that the system allows.
        """
        self.directory = DataDirectory.open(path)
        try:
            ports = self.directory.choose_ports(
                ["postgres", *seaweedfs.PORTS], seaweedfs.is_port_usable
            )
            self.postgres = Postgres(self.directory, ports.pop("postgres"), account)
            self.seaweedfs = SeaweedFS(self.directory, ports)
        except BaseException:
            self.directory.close()
            raise
        self.children: list[ChildProcess] = []

    def __enter__(self) -> Self:
        """Starts both servers. Raises StartupError, with nothing left running."""
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stops both servers."""
        self.stop()

    def start(self) -> None:
        """Starts both servers and returns before they are ready. Raises StartupError; call `stop` in any case."""
        self._objects = self._add(self.seaweedfs.start())  # first: it gets ready while initdb runs
        self._database = self._add(self.postgres.start())

    def wait_ready(self) -> None:
        """Waits until both servers do their work and the service's database is there. Raises StartupError."""
        self.postgres.wait_ready(self._database)
        self.postgres.ensure_database()
        self.seaweedfs.wait_ready(self._objects)

    def check(self) -> None:
        """Raises StartupError when a server has stopped by itself."""
        for child in self.children:
            child.check()

    def stop(self) -> None:
        """Stops both servers, at the same time, and unlocks the data directory. Returns when they are gone."""
        for child in self.children:
            child.request_stop()
        for child in self.children:
            child.stop()
        self.children.clear()
        self.seaweedfs.remove_sockets()
        self.directory.close()

    def _add(self, child: ChildProcess) -> ChildProcess:
        self.children.append(child)
        return child
