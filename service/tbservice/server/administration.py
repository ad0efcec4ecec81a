"""The database operations of the administration commands (`migrate`, `workspace`, `token`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from tbservice.auth.tokens import create_owner_token
from tbservice.auth.workspaces import create_workspace, list_workspaces
from tbservice.errors import NotFound, StartupError
from tbservice.settings import read_settings
from tbservice.store.pg import migrate
from tbservice.store.pg.database import Database
from tbservice.store.pg.schema import check_schema
from tbservice.types import WorkspaceId


def upgrade_database() -> list[str]:
    """Migrate the database and return the names of the migrations that ran.

    Raises StartupError if the database refuses; it is then unchanged.
    """
    try:
        return migrate.upgrade(read_settings().database_url.get_secret_value())
    except exc.DBAPIError as error:
        raise StartupError(
            f"the database could not be migrated and is unchanged: {error.orig}"
        ) from error


def add_workspace(name: str) -> WorkspaceId:
    """Create a workspace and return its id."""
    with _open_database() as database, database.transaction() as db:
        return create_workspace(db, name)


def read_workspaces() -> list[tuple[WorkspaceId, str]]:
    """Return the id and name of every workspace."""
    with _open_database() as database, database.transaction() as db:
        return list_workspaces(db)


def issue_owner_token(workspace_id: int, label: str) -> str:
    """Create an owner token and return its secret, which cannot be read again.

    Raises NotFound if there is no such workspace.
    """
    if workspace_id not in dict(read_workspaces()):
        raise NotFound(
            f"there is no workspace {workspace_id}: `tbservice workspace list` shows them"
        )
    workspace = WorkspaceId(workspace_id)
    with _open_database() as database, database.transaction(workspace) as db:
        return create_owner_token(db, workspace, label)[1]


@contextmanager
def _open_database() -> Iterator[Database]:
    """Open the database of the settings. Raises SchemaMismatch if it is not migrated."""
    database = Database(read_settings().database_url.get_secret_value(), 1)
    try:
        check_schema(database)
        yield database
    finally:
        database.close()
