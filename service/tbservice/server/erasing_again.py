"""Erase again, after a restore, what was erased since the backup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import closing, suppress

from sqlalchemy import Connection

from tbservice.audit.acting import begin_command
from tbservice.auth import deletion
from tbservice.auth.tables import deletions, users, workspaces
from tbservice.backup.tables.backup_snapshot import Erasure, to_text
from tbservice.db.database import Database, set_local
from tbservice.errors import CommandFailed, NotFound
from tbservice.experiments.deletion import delete_experiment, restore_experiment
from tbservice.experiments.tables.person_rows import ERASED_NAME
from tbservice.settings import Settings
from tbservice.types.grants import AdminGrant, WorkspaceGrant
from tbservice.types.identifiers import ExperimentId, UserId, WorkspaceId


def erase_again(settings: Settings, erased: Iterable[Erasure]) -> dict[str, int]:
    """Delete for good what is there of a list; return how many of each kind. Idempotent.

    Nobody sees it any more, and the eraser of the service does the rest. Raises CommandFailed if
    the database lacks a migration that this needs.
    """
    begin_command("tbservice restore")
    counts: Counter[str] = Counter()
    with closing(Database(settings.database_url.get_secret_value(), 1)) as database:
        with database.transaction() as db:
            known = workspaces.list_with_ages(db)
            has_deletions = deletions.exist(db)
        names = {(each, to_text(made)): name for each, name, made in known}
        for each in sorted(erased):
            with database.transaction() as db:
                if each.kind == "experiment":
                    counts[each.kind] += _erase_experiment(db, each)
                elif not has_deletions:
                    raise CommandFailed(
                        "a workspace or a person was erased since the backup, which needs a later "
                        "schema: run 'tbservice migrate', then the restore with --erasures-only"
                    )
                elif each.kind == "workspace":
                    name = names.get((WorkspaceId(each.workspace_id), each.created_at))
                    counts[each.kind] += _erase_workspace(db, each.workspace_id, name)
                else:
                    counts[each.kind] += _erase_person(db, UserId(each.object_id))
    return {kind: count for kind, count in counts.items() if count}


def _erase_experiment(db: Connection, erased: Erasure) -> bool:
    workspace_id = WorkspaceId(erased.workspace_id)
    set_local(db, "workspace_id", str(workspace_id))
    with suppress(NotFound):  # it was deleted before the backup, and could still be restored
        restore_experiment(db, WorkspaceGrant(workspace_id), erased.object_id)
    with suppress(NotFound):
        grant = AdminGrant(workspace_id, ExperimentId(erased.object_id))
        delete_experiment(db, grant, is_final=True)
        return True
    return False


def _erase_workspace(db: Connection, number: int, name: str | None) -> bool:
    if name is None:  # it is erased, or another one has its number
        return False
    deletion.delete_any_workspace(db, WorkspaceId(number), name, is_final=True)
    return True


def _erase_person(db: Connection, user_id: UserId) -> bool:
    user = users.find(db, user_id)
    if user is None or user.person.name.startswith(ERASED_NAME):
        return False
    deletion.delete_person(db, user_id, is_final=True, leaves_workspaces=True)
    return True
