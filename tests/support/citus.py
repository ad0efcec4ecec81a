"""A real Citus cluster for tests: a coordinator and two workers, and databases on all of them.

`pytest --citus` lets every test that asks for a database have one of the cluster. CITUS_TOOLS names
the folder with `cluster.sh`, which makes and starts it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg
from psycopg import sql
from pydantic import SecretStr

from support.postgres_faults import postgres_faults
from support.servers import Servers, choose_directory, database_name
from tbservice.db import migrate
from tbservice.local.embedded.instance import Instance
from tbservice.local.embedded.ports import LOOPBACK, is_free

TOOLS = os.environ.get("CITUS_TOOLS", "")
PORT = int(os.environ.get("CITUS_PORT", "32000"))
"""The coordinator's; the workers have the next ones. `choose_ports` gives none from 32,000 on."""

PORTS_PER_PROCESS = 8
"""For the cluster of a pytest process, and for one that a test kills nodes of."""
SECOND = 3
"""Ports of the former, before those of the latter."""
SHARDS = 4
"""Shards of each table: few, so that a database is made in a second."""

OWNER = "tbhub"
APPLICATION = "tbhub_app"
"""The role that serves; the other owns the tables and migrates."""

DROP_SECONDS_MAX = 30


class Cluster:
    """A running cluster; node 0 is the coordinator."""

    def __init__(self, directory: Path, port: int, workers: int = 2) -> None:
        self.directory = directory
        self.port = port
        self.workers = workers
        self._run("start", str(workers))
        for node in range(workers + 1):
            self._make_role(node)

    @property
    def ports(self) -> list[int]:
        """The ports of all nodes."""
        return [self.port + node for node in range(self.workers + 1)]

    def add_worker(self) -> None:
        """Start another worker and add it to the cluster of the database `tbhub`, without shards."""
        self.workers += 1
        self._run("add", str(self.workers))

    def kill(self, node: int) -> None:
        """Kill a node's postmaster and its processes, as a power cut does."""
        data = self.data(node)
        postmaster = int((data / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGSTOP)  # it starts no more processes
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for process in (postmaster, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        wait_until_free(self.port + node)

    def start(self, node: int) -> None:
        """Start a node that was killed, when no process of before holds its memory any more."""
        command = [self.directory / "pg/bin/pg_ctl", "-D", self.data(node), "-w", "-t", "60"]
        command += ["-l", self.data(node) / "log", "start"]
        command = as_account(self.data(node), command)
        deadline = time.monotonic() + DROP_SECONDS_MAX
        while subprocess.run(command, check=False, env=self.environment()).returncode:
            assert time.monotonic() < deadline, (self.data(node) / "log").read_text()[-2_000:]
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop all nodes."""
        self._run("stop")

    def connect(self, database: str, node: int = 0) -> psycopg.Connection:
        """Connect to a node as a superuser, in autocommit mode."""
        return psycopg.connect(
            host=LOOPBACK,
            port=self.port + node,
            user="postgres",
            dbname=database,
            autocommit=True,
        )

    def url(self, database: str = OWNER, node: int = 0, role: str = APPLICATION) -> str:
        """Return the URL of a database, entered by a node."""
        address = f"{role}:secret@{LOOPBACK}:{self.port + node}"
        return f"postgresql://{address}/{database}?sslmode=prefer"

    def url_for_migration(self, database: str, shards: int) -> str:
        """Return the owner's URL, whose connections distribute tables over so many shards."""
        return f"{self.url(database, role=OWNER)}&options=-ccitus.shard_count%3D{shards}"

    def make_database(self, name: str, template: str | None) -> None:
        """Create a database on all nodes, as a copy of a distributed one or with nothing in it."""
        for node in range(self.workers + 1):
            with self.connect("postgres", node) as db:
                create_database(db, name, template)
        if template is None:
            for node in range(self.workers + 1):
                with self.connect(name, node) as db:
                    db.execute("CREATE EXTENSION citus")
            with self.connect(name) as db:
                db.execute("SELECT citus_set_coordinator_host(%s, %s)", (LOOPBACK, self.port))
                for port in self.ports[1:]:
                    db.execute("SELECT citus_add_node(%s, %s)", (LOOPBACK, port))

    def drop_database(self, name: str) -> None:
        """Drop a database on all nodes."""
        statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        for node in range(self.workers + 1):
            with self.connect("postgres", node) as db:
                execute_when_unused(db, statement)

    def run_program(self, name: str, *arguments: object) -> str:
        """Run a program of this PostgreSQL, such as pg_dump; return its output."""
        command = [self.directory / "pg/bin" / name, *arguments]
        ended = subprocess.run(
            [str(word) for word in command],
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def _make_role(self, node: int) -> None:
        with self.connect("postgres", node) as db:
            db.execute(f"CREATE ROLE {APPLICATION} LOGIN NOSUPERUSER NOBYPASSRLS")

    def data(self, node: int) -> Path:
        """Return a node's data directory."""
        return self.directory / (f"worker{node}" if node else "coordinator")

    def _run(self, command: str, *arguments: str) -> None:
        ports = () if command == "stop" else (str(self.port),)
        subprocess.run(
            [Path(TOOLS, "cluster.sh"), command, self.directory, *ports, *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            env=self.environment(),
        )

    def environment(self) -> dict[str, str]:
        """Return what the programs of this PostgreSQL need."""
        library = str(self.directory / "pg/lib")
        return os.environ | {"PYTHON": sys.executable, "LC_ALL": "C", "LD_LIBRARY_PATH": library}


def as_account(data: Path, command: list[object]) -> list[str]:
    """Return the command, run as the owner of a data directory: PostgreSQL does not run as root."""
    if os.getuid():
        return [str(word) for word in command]
    owner = pwd.getpwuid(data.stat().st_uid)
    account = [f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
    return ["setpriv", *account, *map(str, command)]


def wait_until_free(port: int) -> None:
    """Wait until nobody answers at a port of this machine."""
    deadline = time.monotonic() + DROP_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            psycopg.connect(host=LOOPBACK, port=port, user="postgres", connect_timeout=2).close()
        except psycopg.OperationalError:
            return
        time.sleep(0.05)
    raise AssertionError(f"something still answers at port {port}")


def create_database(db: psycopg.Connection, name: str, template: str | None) -> None:
    """Create a database; Citus' daemon may be at work in the template for a moment."""
    names = map(sql.Identifier, (name, OWNER, template or "template0"))
    statement = sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {}").format(*names)
    end_sessions = "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE datname = %s"
    execute_when_unused(db, statement, lambda: db.execute(end_sessions, [template]))


def execute_when_unused(db: psycopg.Connection, statement: sql.Composed, first=lambda: None):
    """Execute a statement that needs a database for itself, after `first`, again and again."""
    deadline = time.monotonic() + DROP_SECONDS_MAX
    while True:
        first()
        try:
            db.execute(statement)
        except psycopg.errors.ObjectInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


class Plain(NamedTuple):
    """How to connect to the plain PostgreSQL beside the cluster, for what moves between them."""

    url: Callable[..., str]
    connect: Callable[[str], psycopg.Connection]


class ClusterServers(Servers):
    """A cluster instead of PostgreSQL; SeaweedFS as in other tests.

    The instance's own PostgreSQL runs too, unused: tests of it are of no cluster.
    """

    plain: Plain

    def __init__(self, instance: Instance, cluster: Cluster) -> None:
        self.instance = instance
        self.cluster = cluster
        self._numbers = itertools.count(1)
        self._template = "tbhub_template"
        cluster.make_database(self._template, None)
        migrate.upgrade(cluster.url_for_migration(self._template, SHARDS))
        for node in range(cluster.workers + 1):
            with cluster.connect("postgres", node) as db:
                db.execute(f"ALTER DATABASE {self._template} ALLOW_CONNECTIONS false")

    def superusers(self, database: str) -> list[psycopg.Connection]:
        """Connect to each node."""
        return [self.cluster.connect(database, node) for node in self._nodes()]

    @staticmethod
    def owner_url(database_url: str) -> str:
        """Return the URL of the role that migrates; the one that serves is another."""
        return database_url.replace(f"//{APPLICATION}:", f"//{OWNER}:")

    @staticmethod
    def service_url(owner_url: str) -> str:
        """Return the URL of the role that serves, from that of the owner."""
        return owner_url.replace(f"//{OWNER}:", f"//{APPLICATION}:")

    @contextmanager
    def database(self, *, migrated: bool = True):
        """Create a database on all nodes; yield its URL, and drop it at the end."""
        name = f"test_{next(self._numbers)}"
        self.cluster.make_database(name, self._template if migrated else None)
        if not migrated:
            with self.cluster.connect("postgres") as db:
                db.execute(f"ALTER DATABASE {name} SET citus.shard_count = {SHARDS}")
        try:
            yield self.cluster.url(name, role=APPLICATION if migrated else OWNER)
        finally:
            self.cluster.drop_database(name)

    @contextmanager
    def postgres_faults(self, database_url: str):
        """Run a PostgresFaults before all nodes: the service finds each of them through it."""
        name = database_name(database_url)
        with postgres_faults(database_url, self.cluster.ports) as proxy:
            for node in self._nodes():
                with self.cluster.connect(name, node) as db:
                    for port, gate in proxy.gates.items():
                        db.execute(
                            "UPDATE pg_dist_node SET nodeport = %s WHERE nodeport = %s",
                            [gate.port, port],
                        )
            yield proxy

    def kill_postgres(self) -> None:
        """Kill all nodes."""
        for node in self._nodes():
            self.cluster.kill(node)

    def restart_postgres(self) -> None:
        """Start all nodes again."""
        for node in self._nodes():
            self.cluster.start(node)

    def _nodes(self) -> range:
        return range(self.cluster.workers + 1)


def find_free(port: int, count: int) -> int:
    """Return the first of so many free ports, from `port` on."""
    while not all(is_free(port + number) for number in range(count)):
        port += 1
    return port


@contextmanager
def running_cluster(port: int = PORT, workers: int = 2) -> Iterator[Cluster]:
    """Run a new cluster until the block ends."""
    with tempfile.TemporaryDirectory(prefix="tbhub-citus-", dir=choose_directory()) as directory:
        Path(directory).chmod(0o755)
        cluster = Cluster(Path(directory), find_free(port, workers + 2), workers)
        try:
            yield cluster
        finally:
            cluster.stop()


@contextmanager
def cluster_servers(worker: int = 0, *, is_second: bool = False):
    """Run a new cluster and SeaweedFS until the block ends; yield the Servers.

    `is_second`: beside the one that all tests of the process use.
    """
    with (
        running_cluster(PORT + worker * PORTS_PER_PROCESS + is_second * SECOND) as cluster,
        tempfile.TemporaryDirectory(prefix="tbhub-tests-", dir=choose_directory()) as directory,
        Instance(Path(directory, "data")) as instance,
    ):
        servers = ClusterServers(instance, cluster)
        servers.plain = Plain(instance.postgres.url, instance.postgres.connect_as_superuser)
        instance.postgres.connect_as_superuser = cluster.connect
        instance.postgres.url = cluster.url
        instance.postgres.superuser_url = lambda name: SecretStr(cluster.url(name, role="postgres"))
        yield servers
