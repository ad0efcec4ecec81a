"""The real PostgreSQL and SeaweedFS that tests run on, databases and buckets for them, and a live
service.
"""

from __future__ import annotations

import functools
import itertools
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import psycopg
from botocore.config import Config
from botocore.exceptions import ClientError
from psycopg import sql
from pydantic import SecretStr
from sqlalchemy.pool import NullPool

from support import process_kills, zygote
from support.batches import ApiClient
from support.postgres_faults import postgres_faults
from support.waiting import SECONDS_MAX
from tbservice.auth.tokens import create_owner_token
from tbservice.auth.workspaces import create_workspace
from tbservice.db import migrate, schema_versions
from tbservice.db.database import Database
from tbservice.db.engine import make_engine
from tbservice.errors import Unavailable
from tbservice.local.embedded.instance import Instance, make_settings
from tbservice.local.embedded.ports import LOOPBACK, choose_ports
from tbservice.objects.s3_client import get_session
from tbservice.settings import Settings

START_SECONDS_MAX = 120
STOP_SECONDS_MAX = 30
LOG_CHARS_MAX = 4_000  # of a log that an error shows
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients of our own servers, which speak plain HTTP: by default each client takes 40 ms to load
all certificate authorities. It trusts none.
"""
OWN_SERVERS = {"trust_env": False, "verify": NO_TLS, "timeout": SECONDS_MAX}
"""Options of all clients of our own servers: no proxy of the environment is between."""
MEMORY_DIRECTORY = Path("/dev/shm")  # noqa: S108 - directories with names of their own are made in it
MEMORY_BYTES_MIN = 4 << 30


def choose_directory() -> Path:
    """Return where the servers' files go: into memory if there is enough, because each commit waits
    for a disk.

    The tests kill processes, never the machine, so that memory keeps what a disk would.
    """
    if MEMORY_DIRECTORY.is_dir():
        status = os.statvfs(MEMORY_DIRECTORY)
        has_room = status.f_bavail * status.f_frsize >= MEMORY_BYTES_MIN
        if (
            has_room and not status.f_flag & os.ST_NOEXEC
        ):  # PostgreSQL's programs may be copied there
            return MEMORY_DIRECTORY
    return Path(tempfile.gettempdir())


class Servers:
    """Both servers of a pytest process.

    The instance's own database, migrated, is the template of all others.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._numbers = itertools.count(1)
        migrate.upgrade(instance.postgres.url())

    @contextmanager
    def database(self, *, migrated: bool = True):
        """Create a database; yield its URL, and drop it at the end."""
        name = f"test_{next(self._numbers)}"
        template = "tbhub" if migrated else "template0"
        # By default PostgreSQL writes every page into its log: seven times the processor time.
        create = sql.SQL("CREATE DATABASE {} OWNER tbhub TEMPLATE {} STRATEGY FILE_COPY").format(
            *map(sql.Identifier, (name, template))
        )
        self._execute(create)
        try:
            yield self.instance.postgres.url(name)
        finally:
            self._execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    @contextmanager
    def database_before(self, number: str):
        """Create a database as the migrations before that of this number leave it; yield its URL."""
        with self.database(migrated=False) as url:
            engine = make_engine(self.owner_url(url), poolclass=NullPool)
            for migration in schema_versions.list_migrations():
                if migration.name < number:
                    level = "AUTOCOMMIT" if migration.concurrent else "READ COMMITTED"
                    with engine.execution_options(isolation_level=level).begin() as db:
                        migrate.apply(db, migration.name)
            yield url

    def postgres_faults(self, database_url: str):
        """Run a PostgresFaults before this database until the block ends."""
        return postgres_faults(database_url)

    def superusers(self, database: str) -> list[psycopg.Connection]:
        """Connect to each server of the database, of which a cluster has several."""
        return [self.instance.postgres.connect_as_superuser(database)]

    def kill_postgres(self) -> None:
        """Kill each server's first process; the others notice and end."""
        process_kills.kill_postgres(self.instance)

    def restart_postgres(self) -> None:
        """Start each server again on its port and its files, and wait until it is ready."""
        process_kills.restart_postgres(self.instance)

    def execute_on_nodes(self, database_url: str, statement: str) -> list[tuple]:
        """Execute a statement as a superuser on each server of the database; return all rows."""
        rows = []
        for superuser in self.superusers(database_name(database_url)):
            with superuser as db:
                rows += db.execute(statement).fetchall()
        return rows

    def count_waiting(self, database_url: str) -> int:
        """Return how many statements of a database wait for a lock."""
        waiting = """
            SELECT pid FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'
        """
        return len(self.execute_on_nodes(database_url, waiting))

    @staticmethod
    def owner_url(database_url: str) -> str:
        """Return the URL of the role that owns the tables, and may change them."""
        return database_url

    @staticmethod
    def service_url(owner_url: str) -> str:
        """Return the URL of the role that serves, from that of the owner, who migrates."""
        return owner_url

    def service_settings(self, settings: Settings) -> Settings:
        """Return settings that serve, from those of the owner, who migrates."""
        url = self.service_url(settings.database_url.get_secret_value())
        return settings.model_copy(update={"database_url": SecretStr(url)})

    def _execute(self, statement: sql.Composed) -> None:
        # A new connection each time: a test may restart PostgreSQL.
        with self.instance.postgres.connect_as_superuser("postgres") as db:
            db.execute(statement)

    @contextmanager
    def settings(self, database_url: str):
        """Yield settings with that database and a new bucket, which the service creates when it
        first needs it.
        """
        base = make_settings(self.instance, host=LOOPBACK, port=0, public_url="http://testserver")
        bucket = f"test-{next(self._numbers)}"
        values = base.model_dump() | {
            "database_url": database_url,
            "s3_bucket": bucket,
            "database_pool_size": 8,
        }
        yield type(base)(**values)
        delete_bucket(base, bucket)


def http_client(url: str = "", **options) -> httpx2.Client:
    """Return a client of one of our own servers."""
    return httpx2.Client(base_url=url, **(OWN_SERVERS | options))


def fetch(url: str, method: str = "GET", **options) -> httpx2.Response:
    """Send one request to one of our own servers; return the answer."""
    return httpx2.request(method, url, **(OWN_SERVERS | options))


@contextmanager
def live_api(url: str, token: str):
    """Yield the HTTP API of a running service, with this token."""
    with http_client(url) as http:
        yield ApiClient(http, token)


@contextmanager
def embedded_servers():
    """Run a new PostgreSQL and SeaweedFS until the block ends; yield the Servers.

    A missing wheel is a failure that says what to install.
    """
    with tempfile.TemporaryDirectory(prefix="tbhub-tests-", dir=choose_directory()) as directory:
        # Where root may make no user namespace, PostgreSQL runs as another account.
        Path(directory).chmod(0o711)
        with Instance(Path(directory, "data")) as instance:
            yield Servers(instance)


def delete_bucket(settings, bucket):
    """Delete a bucket and its objects, as SeaweedFS allows; a bucket that does not exist is no
    error.
    """
    client = s3_client(settings)
    try:
        client.delete_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchBucket":
            raise
    finally:
        client.close()


def s3_client(settings):
    """Return a plain client of the settings' S3 server; once closed, it connects again when used."""
    keys = settings.s3_access_key, settings.s3_secret_key
    secrets = [key.get_secret_value() for key in keys]
    return _make_client(settings.s3_endpoint, settings.s3_region, *secrets)


@functools.cache
def _make_client(endpoint, region, access_key, secret_key):
    """Make a client, once for each server: it takes 20 ms of processor time."""
    return get_session().client(
        "s3",
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        config=Config(s3={"addressing_style": "path"}),
    )


def database_name(url: str) -> str:
    """Return the database that a libpq URL names, without parameters."""
    return urlsplit(url).path.removeprefix("/")


@dataclass(frozen=True)
class Workspace:
    """A workspace, and the secret of an owner token of it."""

    workspace_id: int
    owner_token: str


def new_workspace(database_url: str) -> Workspace:
    """Create a workspace in that database, with an owner token."""
    with closing(Database(database_url, 1)) as database:
        return make_workspace(database)


def make_workspace(database: Database) -> Workspace:
    """Do the same over connections that are open: a new one takes ten times as long.

    Nodes of a cluster may have lost a connection to another one, which nothing has used since: then
    nothing is written, and the next try opens another.
    """
    with suppress(Unavailable):
        return _make_workspace(database)
    return _make_workspace(database)


def _make_workspace(database: Database) -> Workspace:
    with database.transaction() as db:
        workspace_id = create_workspace(db, "a test's workspace")
    with database.transaction(workspace_id) as db:
        secret = create_owner_token(db, workspace_id, "a test")[1]
    return Workspace(workspace_id, secret)


def new_owner(database_url: str) -> str:
    """Create a workspace in that database; return the secret of its owner token."""
    return new_workspace(database_url).owner_token


@dataclass(frozen=True)
class LiveService:
    """A running `tbservice serve`."""

    url: str
    database_url: str
    process: subprocess.Popen | zygote.ForkedProcess
    settings: Settings
    database: Database | None = None
    """For workspaces of many tests; without it, each is made over a new connection."""

    def new_owner(self) -> str:
        """Makes a workspace and returns its owner token: tests share the service and never each
        other's experiments.
        """
        if self.database is None:
            return new_owner(self.database_url)
        return make_workspace(self.database).owner_token


def environment_of(settings) -> dict[str, str]:
    """Return the settings as the environment of `tbservice serve`, on any free port: by default it
    would meet whatever else runs on this machine.
    """
    secret = {"database_url", "receipt_keys", "s3_access_key", "s3_secret_key"}
    given = {name: getattr(settings, name) for name in secret}
    values = {name: each.get_secret_value() for name, each in given.items() if each} | {"port": "0"}
    for name in ("s3_bucket", "s3_endpoint", "s3_region", "s3_path_style", "public_url"):
        values[name] = str(getattr(settings, name))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TBHUB_")}
    return kept | {f"TBHUB_{name.upper()}": value for name, value in values.items()}


SERVE = ("-m", "tbservice", "serve")


@contextmanager
def live_service(
    settings,
    log: Path,
    *,
    port: int | None = None,
    options: Sequence[str] = (),
    program: Sequence[str | Path] | None = None,
    python: str | Path | None = None,
    forked: str = "tbservice",
    **more: str,
):
    """Run `tbservice serve` until the block ends, on the port or any free one; its output goes to
    `log`, `more` to its environment.

    With `python`, or its arguments `program`, a new process starts; else `zygote` forks one, which
    is `forked`, with these options of the command.
    """
    port = port or choose_ports(["service"], {})["service"]
    url = f"http://{LOOPBACK}:{port}"
    environment = (
        environment_of(settings) | {"TBHUB_PORT": str(port), "TBHUB_PUBLIC_URL": url} | more
    )
    with log.open("wb") as output:
        if program is None and python is None:
            process = zygote.fork(forked, ["serve", *options], environment, output.fileno())
        else:
            process = subprocess.Popen(
                [python or sys.executable, *(program or SERVE)],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
    try:
        wait_ready(process, url, log)
        yield LiveService(url, settings.database_url.get_secret_value(), process, settings)
    except BaseException as error:
        if complaint := stop(process, log):
            error.add_note(complaint)  # raised, it would hide the error of the block
        raise
    else:
        complaint = stop(process, log)
        assert not complaint, complaint


def stop(process, log: Path) -> str:
    """End a service with SIGTERM; return "", or what to tell about one that had to be killed."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        end = log.read_text(errors="replace")[-LOG_CHARS_MAX:]
        return (
            f"the service did not stop within {STOP_SECONDS_MAX} s of SIGTERM; its log ends: {end}"
        )
    return ""


def wait_ready(process, url: str, log: Path) -> None:
    """Wait until /readyz answers 200.

    Fails with the log if the process ends, or after START_SECONDS_MAX.
    """
    deadline = time.monotonic() + START_SECONDS_MAX
    with http_client(url) as http:
        while time.monotonic() < deadline:
            assert process.poll() is None, log.read_text()
            try:
                if http.get("/readyz").status_code == httpx2.codes.OK:
                    return
            except httpx2.TransportError:
                pass
            time.sleep(0.05)
    raise AssertionError(f"not ready after {START_SECONDS_MAX} s: {log.read_text()}")
