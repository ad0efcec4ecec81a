"""A real standby of a node of a cluster, which can be cut off from it and promoted."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import psycopg

from support.citus import Cluster, as_account
from support.standby import Standby
from support.waiting import wait_until
from tbservice.local.embedded.ports import LOOPBACK, choose_ports


class NodeServer:
    """A node or its standby, as `Standby` uses a server of ours."""

    def __init__(self, cluster: Cluster, data: Path, port: int) -> None:
        self._cluster = cluster
        self._data = data
        self._port = port

    def url(self) -> str:
        """Return a URL of the server."""
        return f"postgresql://postgres@{LOOPBACK}:{self._port}/postgres"

    def start(self) -> NodeServer:
        """Start the server; return before it is ready."""
        self._control("start", "-W", "-o", f"-p {self._port}", "-l", self._data / "log")
        return self

    def request_stop(self) -> None:
        """Begin to stop the server."""
        self._control("stop", "-W", "-m", "fast")

    def stop(self) -> None:
        """Wait until it has stopped."""
        wait_until(lambda: not (self._data / "postmaster.pid").exists())

    def wait_ready(self, _child: object = None) -> None:
        """Wait until it accepts connections."""
        wait_until(self._is_ready)

    def connect_as_superuser(self, database: str) -> psycopg.Connection:
        """Connect in autocommit mode."""
        return psycopg.connect(
            host=LOOPBACK, port=self._port, user="postgres", dbname=database, autocommit=True
        )

    def _is_ready(self) -> bool:
        try:
            self.connect_as_superuser("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def _control(self, *arguments: object) -> None:
        program = self._cluster.directory / "pg/bin/pg_ctl"
        command = as_account(self._data, [program, "-D", self._data, *arguments])
        subprocess.run(
            command, check=True, env=self._cluster.environment(), stdout=subprocess.DEVNULL
        )


@contextmanager
def standby_of_node(cluster: Cluster, node: int):
    """Run a Standby of the node; yield (the node's server, the standby)."""
    primary = NodeServer(cluster, cluster.data(node), cluster.port + node)
    data = cluster.directory / f"standby{node}"
    cluster.run_program(
        "pg_basebackup",
        f"--dbname={primary.url()}",
        f"--pgdata={data}",
        "--checkpoint=fast",
        "--write-recovery-conf",
    )
    owner = cluster.data(node).stat()
    for path in (data, *data.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    port = choose_ports(["standby"], {})["standby"]
    standby = Standby(NodeServer(cluster, data, port))
    try:
        yield primary, standby
    finally:
        standby.stop()
        shutil.rmtree(data)
