"""What the commands other than `up` do, on the PostgreSQL and the S3 that the settings name."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pydantic import SecretStr
from sqlalchemy import exc

from tbservice import migrate, serving
from tbservice.app import create_app
from tbservice.domain.tokens import create_owner_token
from tbservice.domain.workspaces import create_workspace, list_workspaces
from tbservice.errors import NotFound, Unavailable
from tbservice.serving import read_settings
from tbservice.settings import Settings
from tbservice.store.database import Database
from tbservice.store.schema import check_schema
from tbservice.types import WorkspaceId


def serve() -> None:
    """Serves until a signal. Raises SchemaMismatch when the database is not migrated: `serve` never does it itself."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    settings = read_settings()
    with _database() as database:
        check_schema(database)
    address = f"{settings.host} port {settings.port}, {settings.workers} worker(s)"
    serving.serve(settings, lambda: print(f"tbhub listens on {address}", flush=True))  # noqa: T201 - the command's answer


def upgrade_database() -> list[str]:
    """Migrates the database and returns the names of the migrations that ran."""
    try:
        return migrate.upgrade(read_settings().database_url.get_secret_value())
    except exc.OperationalError as error:
        raise Unavailable(f"the database cannot be migrated: {error.orig}") from error


def openapi() -> str:
    """The OpenAPI document as JSON; needs neither settings nor servers."""
    return json.dumps(create_app(Settings(database_url=SecretStr("postgresql://"))).openapi(), indent=2)


def new_workspace(name: str) -> WorkspaceId:
    """Makes a workspace and returns its id."""
    with _database() as database, database.transaction() as db:
        return create_workspace(db, name)


def all_workspaces() -> list[tuple[WorkspaceId, str]]:
    """Every workspace's id and name."""
    with _database() as database, database.transaction() as db:
        return list_workspaces(db)


def new_owner_token(workspace_id: int, label: str) -> str:
    """Makes an owner token and returns its secret, which is told only now. Raises NotFound for no such workspace."""
    if workspace_id not in dict(all_workspaces()):
        raise NotFound(f"there is no workspace {workspace_id}: `tbservice workspace list` shows them")
    workspace = WorkspaceId(workspace_id)
    with _database() as database, database.transaction(workspace) as db:
        return create_owner_token(db, workspace, label)[1]


@contextmanager
def _database() -> Iterator[Database]:
    database = Database(read_settings().database_url.get_secret_value(), 1)
    try:
        yield database
    finally:
        database.close()


def _end(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)
