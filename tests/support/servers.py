"""The real PostgreSQL and SeaweedFS that tests run on, a database and a bucket for each test, and a
live service.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from botocore.config import Config
from botocore.exceptions import ClientError
from psycopg import sql

from tbservice.auth.tokens import create_owner_token
from tbservice.auth.workspaces import create_workspace
from tbservice.local.embedded.instance import Instance, make_settings
from tbservice.local.embedded.ports import LOOPBACK
from tbservice.settings import Settings
from tbservice.store.pg import migrate
from tbservice.store.pg.database import Database
from tbservice.store.s3_client import get_session

START_SECONDS_MAX = 120


class Servers:
    """Both servers of a test session. The instance's own database, migrated, is the template of
    every test's.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._numbers = itertools.count(1)
        migrate.upgrade(instance.postgres.url())

    @contextmanager
    def database(self, *, migrated: bool = True):
        """The URL of a new database, which is gone afterwards."""
        name = f"test_{next(self._numbers)}"
        template = "tbhub" if migrated else "template0"
        create = sql.SQL("CREATE DATABASE {} OWNER tbhub TEMPLATE {}").format(
            *map(sql.Identifier, (name, template))
        )
        self._execute(create)
        try:
            yield self.instance.postgres.url(name)
        finally:
            self._execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def _execute(self, statement: sql.Composed) -> None:
        with self.instance.postgres.connect_as_superuser(
            "postgres"
        ) as db:  # anew: a test may restart PostgreSQL
            db.execute(statement)

    @contextmanager
    def settings(self, database_url: str):
        """Settings with that database and a bucket of their own, made when the service first needs
        it.
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


def delete_bucket(settings, bucket):
    """Deletes a bucket and all in it, as SeaweedFS allows; one that was never made is fine."""
    client = s3_client(settings)
    try:
        client.delete_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchBucket":
            raise
    finally:
        client.close()


def s3_client(settings):
    """A plain client of the settings' S3 server."""
    return get_session().client(
        "s3",
        endpoint_url=settings.s3_endpoint,
        region_name=settings.s3_region,
        aws_access_key_id=settings.s3_access_key.get_secret_value(),
        aws_secret_access_key=settings.s3_secret_key.get_secret_value(),
        config=Config(s3={"addressing_style": "path"}),
    )


def database_name(url: str) -> str:
    """The database that a libpq URL names, without the parameters behind it."""
    return urlsplit(url).path.removeprefix("/")


@dataclass(frozen=True)
class Workspace:
    """A workspace, and the secret of an owner token of it."""

    workspace_id: int
    owner_token: str


def new_workspace(database_url: str) -> Workspace:
    """Create a workspace in that database, with an owner token."""
    database = Database(database_url, 1)
    try:
        with database.transaction() as db:
            workspace_id = create_workspace(db, "a test's workspace")
        with database.transaction(workspace_id) as db:
            secret = create_owner_token(db, workspace_id, "a test")[1]
    finally:
        database.close()
    return Workspace(workspace_id, secret)


def new_owner(database_url: str) -> str:
    """Create a workspace in that database; return the secret of its owner token."""
    return new_workspace(database_url).owner_token


@dataclass(frozen=True)
class LiveService:
    """`tbservice serve` as a process of its own."""

    url: str
    database_url: str
    process: subprocess.Popen
    settings: Settings

    def new_owner(self) -> str:
        """Makes a workspace and returns its owner token: tests share the service and never each
        other's experiments.
        """
        return new_owner(self.database_url)


def environment_of(settings) -> dict[str, str]:
    """The settings as the environment variables that `tbservice serve` reads."""
    secret = {"database_url", "s3_access_key", "s3_secret_key"}
    values = {name: getattr(settings, name).get_secret_value() for name in secret}
    for name in ("s3_bucket", "s3_endpoint", "s3_region", "s3_path_style", "public_url"):
        values[name] = str(getattr(settings, name))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TBHUB_")}
    return kept | {f"TBHUB_{name.upper()}": value for name, value in values.items()}


SERVE = ("-m", "tbservice", "serve")


@contextmanager
def live_service(
    settings, port: int, log: Path, *, program: Sequence[str | Path] = SERVE, **more: str
):
    """Runs `tbservice serve` on the port until the block ends; its output goes to `log`, `more` to
    its environment.

    `program` are other arguments of Python, which serve the same way.
    """
    url = f"http://{LOOPBACK}:{port}"
    environment = (
        environment_of(settings) | {"TBHUB_PORT": str(port), "TBHUB_PUBLIC_URL": url} | more
    )
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *program], env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_ready(process, url, log)
        yield LiveService(url, settings.database_url.get_secret_value(), process, settings)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def wait_ready(process, url: str, log: Path) -> None:
    """Waits until /readyz answers 200; fails with the log when the process ends or takes too long."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            if httpx2.get(f"{url}/readyz", trust_env=False).status_code == httpx2.codes.OK:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"not ready after {START_SECONDS_MAX} s: {log.read_text()}")
