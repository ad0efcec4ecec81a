"""Functions of the administration commands: `migrate`, `workspace`, `token` and `user`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, exc

from tbservice.audit import receipts
from tbservice.audit.acts import Act
from tbservice.audit.log import expire, read_after
from tbservice.audit.recording import NO_WORKSPACE, record
from tbservice.auth import deletion, operators, people, sessions, tokens, workspaces
from tbservice.auth.link_urls import sign_in_url
from tbservice.auth.sign_in_links import create_link
from tbservice.auth.tables import workspaces as workspace_rows
from tbservice.db import migrate
from tbservice.db.database import Database
from tbservice.db.schema import check_schema
from tbservice.db.schema_versions import list_migrations
from tbservice.errors import NotFound, StartupError
from tbservice.experiments import workspace_overview
from tbservice.settings import Settings
from tbservice.types.audit import AuditRecord
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.people import DeletedWorkspace, Membership, Person, Role


def upgrade_database(
    settings: Settings, *, compress_blocks: bool = False, sweep_objects: bool = False
) -> list[str]:
    """Migrate the database and return the names of the migrations that ran.

    With `compress_blocks` or `sweep_objects`, servers of the release before cannot start on it any
    more.

    Raises StartupError if the database refuses; the migration that failed has changed nothing.
    """
    with _one_line_errors("migrated"):
        names = migrate.upgrade(
            _database_url(settings), compress_blocks=compress_blocks, sweep_objects=sweep_objects
        )
    if names:
        with _open_as_owner(settings) as database, database.transaction() as db:
            record(db, Act.DATABASE_MIGRATE, None, names[-1], migrations=len(names))
    return names


def check_migrations(settings: Settings) -> tuple[list[str], bool]:
    """Return what a migration would do, in lines, and whether the schema is current.

    Changes nothing. Raises StartupError if this program does not work with the schema.
    """
    with _one_line_errors("checked"):
        found = migrate.check(_database_url(settings))
    lines = [migration.describe() for migration in found.missing]
    if found.undistributed:
        lines.append(
            f"not distributed over the cluster yet: {', '.join(found.undistributed)}; "
            "locks each until all are"
        )
    lines += [
        f"{node}: the role that serves lacks rights to the views of share links; locks nothing"
        for node in found.unadmitted
    ]
    if lines:
        return lines, False
    newest = list_migrations()[-1].name
    newer = (
        ""
        if found.applied == newest
        else f", newer than this tbhub ({newest}), which works with it"
    )
    lines = [f"up to date: {found.applied}{newer}"]
    if not found.compresses_blocks:
        lines.append(
            "blocks of scalars are not compressed: once no server of an older release runs, "
            "'tbservice migrate --compress-blocks' halves them"
        )
    if not found.sweeps_objects:
        lines.append(
            "objects of deleted data are kept: once no server of an older release runs, "
            "'tbservice migrate --sweep-objects' lets servers delete them"
        )
    return lines, True


def add_workspace(settings: Settings, name: str) -> WorkspaceId:
    """Create a workspace and return its id."""
    with open_database(settings) as database, database.transaction() as db:
        return workspaces.create_workspace(db, name)


def read_workspaces(settings: Settings) -> list[tuple[WorkspaceId, str]]:
    """Return the id and name of every workspace."""
    with open_database(settings) as database, database.transaction() as db:
        return workspaces.list_workspaces(db)


def read_deleted_workspaces(settings: Settings) -> list[DeletedWorkspace]:
    """Return the deleted workspaces, the first to be erased first."""
    with open_database(settings) as database, database.transaction() as db:
        return workspaces.list_deleted(db)


def delete_workspace(settings: Settings, workspace_id: int, name: str, *, is_final: bool) -> None:
    """Delete a workspace. Raises as `deletion.delete_any_workspace` does."""
    with open_database(settings) as database, database.transaction() as db:
        deletion.delete_any_workspace(db, WorkspaceId(workspace_id), name, is_final=is_final)


def restore_workspace(settings: Settings, workspace_id: int) -> None:
    """Undo the deletion of a workspace. Raises NotFound and Conflict."""
    with open_database(settings) as database, database.transaction() as db:
        deletion.restore_workspace(db, None, WorkspaceId(workspace_id))


def issue_owner_token(settings: Settings, workspace_id: int, label: str) -> str:
    """Create an owner token and return its secret, which cannot be read again.

    Raises NotFound if there is no such workspace.
    """
    if workspace_id not in dict(read_workspaces(settings)):
        raise NotFound(
            f"there is no workspace {workspace_id}: `tbservice workspace list` shows them"
        )
    workspace = WorkspaceId(workspace_id)
    with open_database(settings) as database, database.transaction(workspace) as db:
        return tokens.create_owner_token(db, workspace, label)[1]


def revoke_token(settings: Settings, workspace_id: int, token_id: str) -> None:
    """Revoke a token for a whole workspace. Raises NotFound. Idempotent."""
    with open_database(settings) as database, database.transaction() as db:
        grant = workspace_overview.administrate(db, WorkspaceId(workspace_id))
        tokens.revoke_workspace_token(db, grant, token_id)


@dataclass(frozen=True, slots=True)
class ListedUser:
    """A person and their memberships, for administrators."""

    person: Person
    state: str
    memberships: list[Membership]


def invite_user(
    settings: Settings,
    named: str,
    name: str,
    workspace_id: int | None,
    role: Role,
    *,
    is_new: bool = False,
) -> str:
    """Return the URL of a new link that signs a person in, once.

    The person is named by id or address; one is created for an address of nobody. Makes them a
    member of the workspace, if one is named; a member keeps a higher role. Links that were not used
    before remain valid.

    Raises:
        NotFound: There is no such workspace.
        Invalid: Text that is neither an address nor an id.
        Forbidden: The person is disabled.
        Conflict: The workspace is full, or as `people.admit` does.
    """
    with open_database(settings) as database, database.transaction() as db:
        person = people.admit(db, named, name, is_new=is_new)
        secret = create_link(db, person.user_id)
        if workspace_id is not None:
            people.add_member(db, WorkspaceId(workspace_id), person.user_id, role)
    return sign_in_url(settings.public_url, secret)


def read_users(settings: Settings) -> list[ListedUser]:
    """Return everyone, the oldest first."""
    with open_database(settings) as database, database.transaction() as db:
        deleted = deletion.list_deleted_people(db)
        return [
            ListedUser(
                user.person,
                "deleted"
                if user.person.user_id in deleted
                else ("disabled" if user.is_disabled else "active"),
                people.list_memberships(db, user.person.user_id),
            )
            for user in people.list_people(db)
        ]


def disable_user(settings: Settings, named: str) -> None:
    """Disable a person: end their sessions, links and tokens. Raises NotFound. Idempotent."""
    with open_database(settings) as database, database.transaction() as db:
        people.disable(db, people.find_named(db, named).user_id)


def sign_out_user(settings: Settings, named: str) -> int:
    """End all browser sessions and sign-in links of a person; return how many sessions."""
    with open_database(settings) as database, database.transaction() as db:
        return sessions.revoke_other_sessions(db, people.find_named(db, named).user_id, "")


def enable_user(settings: Settings, named: str) -> None:
    """Enable a person again, without what was ended. Raises NotFound. Idempotent."""
    with open_database(settings) as database, database.transaction() as db:
        people.enable(db, people.find_named(db, named).user_id)


def change_operator(settings: Settings, named: str, *, revokes: bool) -> None:
    """Make a person an operator, or no operator any more. Raises NotFound and Conflict."""
    with open_database(settings) as database, database.transaction() as db:
        change = operators.revoke_operator if revokes else operators.make_operator
        change(db, people.find_named(db, named).user_id)


def read_operators(settings: Settings) -> list[tuple[Person, datetime]]:
    """Return the operators and since when they are, the first first."""
    with open_database(settings) as database, database.transaction() as db:
        return operators.list_operators(db)


def delete_user(settings: Settings, named: str, *, is_final: bool) -> None:
    """Delete a person. Raises NotFound, and Conflict as `deletion.delete_person` does."""
    with open_database(settings) as database, database.transaction() as db:
        user_id = people.find_named(db, named).user_id
        deletion.delete_person(db, user_id, is_final=is_final)


def restore_user(settings: Settings, named: str) -> None:
    """Undo the deletion of a person. Raises NotFound and Conflict."""
    with open_database(settings) as database, database.transaction() as db:
        deletion.restore_person(db, people.find_named(db, named).user_id)


def read_audit(
    settings: Settings, workspace_id: int | None, last: int
) -> Iterator[list[tuple[int, AuditRecord]]]:
    """Yield records in the order of their times: the last ones of each workspace, then new ones.

    Each step yields what is new since the one before. None for all workspaces, also those that are
    created meanwhile; 0 for acts of none.
    """
    numbers: defaultdict[WorkspaceId, int] = defaultdict(lambda: -last)
    with open_database(settings) as database:
        while True:
            with database.transaction() as db:
                found = [
                    (each, entry)
                    for each in _list_chains(db, workspace_id)
                    for entry in read_after(db, each, numbers[each])
                ]
            yield sorted(found, key=lambda item: item[1].recorded_at)
            numbers.default_factory = int
            numbers.update({each: entry.number for each, entry in found})


def read_receipts(settings: Settings, workspace_id: int) -> list[dict[str, Any]]:
    """Return the receipts of a workspace, also of one that was erased; of 0: those of people."""
    chain = WorkspaceId(workspace_id)
    with open_database(settings) as database, database.snapshot(chain) as db:
        found = receipts.list_of_erased(db, chain)
    return [each.to_json(settings.backup_keep_days) for each in found]


def expire_audit(settings: Settings) -> int:
    """Delete records that are older than the setting; return how many. Raises StartupError."""
    with _open_as_owner(settings) as database:
        with database.transaction() as db:
            chains = _list_chains(db, None)
        return sum(expire(database, each, settings.audit_days) for each in chains)


def _list_chains(db: Connection, workspace_id: int | None) -> list[WorkspaceId]:
    if workspace_id is not None:
        return [WorkspaceId(workspace_id)]
    return [NO_WORKSPACE, *dict(workspace_rows.list_all(db))]  # also of erased ones


def _database_url(settings: Settings) -> str:
    return settings.database_url.get_secret_value()


@contextmanager
def _one_line_errors(done: str) -> Iterator[None]:
    """Raise PostgreSQL's errors as StartupError: in one line, without a traceback."""
    try:
        yield
    except exc.DBAPIError as error:
        raise StartupError(f"the database could not be {done}: {error.orig}") from error


@contextmanager
def _open_as_owner(settings: Settings) -> Iterator[Database]:
    """Open the database as the owner of the tables, whom a cluster does not let serve."""
    with closing(Database(_database_url(settings), 1)) as database:
        yield database


@contextmanager
def open_database(settings: Settings) -> Iterator[Database]:
    """Open the database of the settings. Raises SchemaMismatch if its schema is another."""
    with closing(Database(_database_url(settings), 1)) as database:
        check_schema(database)
        yield database
