"""Erase again, after a restore, what was erased since the backup."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from contextlib import closing, suppress

from sqlalchemy import Connection

from tbservice.audit.acting import begin_command
from tbservice.audit.acts import AUDIT_DETAIL_CHARS_MAX
from tbservice.audit.backups import find_repeated_until, record_restore
from tbservice.audit.recording import clean
from tbservice.audit.tables import audit_records
from tbservice.auth import deletion
from tbservice.auth.tables import deletions, users, workspaces
from tbservice.backup.tables.backup_snapshot import KEPT, Erasure, to_text
from tbservice.db.database import Database, set_local
from tbservice.errors import CommandFailed, Conflict, NotFound
from tbservice.experiments import run_deletion
from tbservice.experiments.deletion import delete_experiment, restore_experiment
from tbservice.experiments.tables.person_rows import ERASED_NAME
from tbservice.series.tables import runs_tags
from tbservice.settings import Settings
from tbservice.types.grants import AdminGrant, AppendGrant, WorkspaceGrant
from tbservice.types.identifiers import ExperimentId, UserId, WorkspaceId


def erase_again(settings: Settings, backup: str, erased: Iterable[Erasure]) -> dict[str, int]:
    """Delete for good what is there of a list; return how many of each kind. Idempotent.

    Nobody sees it any more, and the eraser of the service does the rest. It is recorded as a
    restore of this backup. Raises CommandFailed if the database lacks a migration that this needs.
    """
    begin_command("tbservice restore")
    counts: Counter[str] = Counter()
    with closing(Database(settings.database_url.get_secret_value(), 1)) as database:
        with database.transaction() as db:
            known = workspaces.list_with_ages(db)
            has_deletions = deletions.exist(db)
            repeated_until = find_repeated_until(db)
        until = repeated_until
        names = {(each, to_text(made)): name for each, name, made in known}
        for each in sorted(erased):
            with database.transaction() as db:
                if each.kind == "experiment":
                    counts[each.kind] += _erase_experiment(db, each)
                elif each.names:
                    # Else what was uploaded since to a run of this name would be deleted.
                    if each.erased_at > repeated_until:
                        counts[each.kind] += _repeat_deletion(db, each)
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
            until = max(until, each.erased_at)
        counts = +counts
        with database.transaction() as db:
            record_restore(db, backup, until, counts)
    return dict(counts)


def _erase_experiment(db: Connection, erased: Erasure) -> bool:
    workspace_id = WorkspaceId(erased.workspace_id)
    set_local(db, "workspace_id", str(workspace_id))
    with suppress(NotFound):  # it was deleted before the backup, and could still be restored
        restore_experiment(db, WorkspaceGrant(workspace_id), erased.object_id)
    with suppress(NotFound):
        grant = AdminGrant(workspace_id, ExperimentId(erased.object_id))
        try:
            delete_experiment(db, grant, is_final=True, keeps_copies=erased.names == KEPT)
        except Conflict:  # its sharing was suspended before the backup
            delete_experiment(db, grant, is_final=True)
        return True
    return False


def _repeat_deletion(db: Connection, deleted: Erasure) -> bool:
    """Delete a run or series again, or allow the run; return whether anything was deleted.

    Not if the restored audit log has that act, too: then it was before the backup. A name that the
    record has cut, and that several runs or tags begin with, is left.
    """
    workspace_id = WorkspaceId(deleted.workspace_id)
    set_local(db, "workspace_id", str(workspace_id))
    if audit_records.has_at(db, workspace_id, deleted.object_id, deleted.erased_at):
        return False
    grant = AdminGrant(workspace_id, ExperimentId(deleted.object_id))
    run, *tag = json.loads(deleted.names)
    if deleted.kind == "allow":
        allowing = AppendGrant(workspace_id, grant.experiment_id)
        run_deletion.allow_runs(db, allowing, [run])
        return False
    with suppress(NotFound):  # it came after the backup, or its experiment is not there
        run = _find_name(run, runs_tags.list_run_names(db, grant.experiment_id).values())
        if not tag:
            return run_deletion.delete_run(db, grant, run)
        name = _find_name(tag[0], runs_tags.list_tag_names(db, grant.experiment_id).values())
        run_deletion.delete_series(db, grant, run, name)
        return True
    return False


def _find_name(recorded: str, names: Iterable[str]) -> str:
    """Return the only name that a record has so. Raises NotFound."""
    is_cut = len(recorded) == AUDIT_DETAIL_CHARS_MAX
    matching = [each for each in names if each == recorded or (is_cut and clean(each) == recorded)]
    if len(matching) != 1:
        raise NotFound("no such name, or several")
    return matching[0]


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
