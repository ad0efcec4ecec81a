"""An embedded instance: PostgreSQL and SeaweedFS in one data directory, started together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import SecretStr

from tbservice.local.embedded import seaweedfs
from tbservice.local.embedded.accounts import Account
from tbservice.local.embedded.data_directory import DataDirectory
from tbservice.local.embedded.ports import release_ports
from tbservice.local.embedded.postgres import Postgres
from tbservice.local.embedded.seaweedfs import SeaweedFS
from tbservice.local.embedded.subprocesses import ChildProcess, ServerStopped
from tbservice.settings import Settings, read_settings

STARTS_MAX = 3
"""Starts (items), each with other ports, if a server stops first: a foreign one may have a port."""


@dataclass(eq=False)
class Servers:
    """The servers of a data directory, started by this process or by another one."""

    directory: DataDirectory
    postgres: Postgres
    seaweedfs: SeaweedFS


class Instance(Servers):
    """A context manager in which both servers are ready.

    Enter it in a thread that lives longer than the servers: see `subprocesses.ChildProcess`.
    """

    def __init__(self, path: Path, account: Account | None = None) -> None:
        """Lock the data directory and locate the programs; start nothing. Raises StartupError.

        `account` is the one PostgreSQL runs as; by default that of `accounts.choose_account`.
        """
        self.directory = DataDirectory.open(path)
        self._account = account
        self._ports: list[int] = []
        self.children: list[ChildProcess] = []
        try:
            self._choose_ports(keeps_saved=True)
        except BaseException:
            release_ports(self._ports)
            self.directory.close()
            raise

    def __enter__(self) -> Self:
        """Start both servers. Raises StartupError after stopping what was started."""
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
        """Stop both servers."""
        self.stop()

    def start(self) -> None:
        """Start both servers; return before they are ready.

        Raises StartupError; call `stop` even then.
        """
        self._objects = self._add(self.seaweedfs.start())  # first: it starts up while initdb runs
        self._database = self._add(self.postgres.start())

    def wait_ready(self) -> None:
        """Wait until both servers are ready and the service's database exists.

        Starts both with other ports if one stops. Raises StartupError.
        """
        for _attempt in range(STARTS_MAX - 1):
            try:
                self._wait_ready()
            except ServerStopped:
                self._stop_children()
                self._choose_ports(keeps_saved=False)
                self.start()
            else:
                return
        self._wait_ready()

    def _wait_ready(self) -> None:
        self.postgres.wait_ready(self._database)
        self.postgres.ensure_database()
        self.seaweedfs.wait_ready(self._objects)

    def check(self) -> None:
        """Raise StartupError if a server has stopped by itself."""
        for child in self.children:
            child.check()

    def stop(self) -> None:
        """Stop both servers concurrently, wait for their end, and unlock the data directory."""
        self._stop_children()
        release_ports(self._ports)
        self.directory.close()

    def _choose_ports(self, *, keeps_saved: bool) -> None:
        """Choose the ports of both servers in place of earlier ones."""
        release_ports(self._ports)
        ports = self.directory.choose_ports(
            ["postgres", *seaweedfs.PORTS], seaweedfs.is_port_usable, keeps_saved=keeps_saved
        )
        self._ports = list(ports.values())
        self.postgres = Postgres(self.directory, ports.pop("postgres"), self._account)
        self.seaweedfs = SeaweedFS(self.directory, ports)

    def _stop_children(self) -> None:
        for child in self.children:
            child.request_stop()
        for child in self.children:
            child.stop()
        self.children.clear()
        self.seaweedfs.remove_sockets()

    def _add(self, child: ChildProcess) -> ChildProcess:
        self.children.append(child)
        return child


def make_settings(instance: Servers, *, host: str, port: int, public_url: str) -> Settings:
    """Return settings for these servers; all others come from the environment.

    Raises ValidationError and StartupError.
    """
    secrets = instance.directory.secrets
    return read_settings(
        database_url=SecretStr(instance.postgres.url()),
        s3_bucket=seaweedfs.BUCKET,
        s3_endpoint=instance.seaweedfs.endpoint,
        s3_region=seaweedfs.REGION,
        s3_access_key=SecretStr(secrets.s3_access_key),
        s3_secret_key=SecretStr(secrets.s3_secret_key),
        s3_path_style=True,
        s3_ca_file=None,
        s3_server_side_encryption=None,
        s3_kms_key_id=None,
        receipt_keys=SecretStr(instance.directory.read_receipt_keys()),
        host=host,
        port=port,
        public_url=public_url,
    )
