"""Delete runs and series of an experiment: at once, and for good.

Their rows go in one transaction, which hides all of them. Their points go after that, since those
of a large run take longer than a request may.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import Connection

from tbservice.audit.acts import Act
from tbservice.audit.receipts import record_erased
from tbservice.audit.recording import record
from tbservice.db.database import Database
from tbservice.errors import NotFound
from tbservice.experiments.tables import deleted_runs, erased_series, experiment_size, experiments
from tbservice.ingest import charges
from tbservice.objects.tables import blobs, object_references
from tbservice.pagination import cut_page, decode_digest_token, encode_digest_token
from tbservice.quotas.tables import usage_counters
from tbservice.series.tables import runs_tags, time_series, upload_streams
from tbservice.types.grants import AdminGrant, AppendGrant, ReadGrant
from tbservice.types.identifiers import ExperimentId, WorkspaceId
from tbservice.types.series import RunSize

ERASE_REQUEST_SECONDS: Final = 5.0
"""Seconds for which a request that deletes runs or series erases points; the rest is left to the
background.
"""

ERASE_REQUEST_ITEMS_MAX: Final = 2_000
"""Rows (items) that one transaction of such a request erases."""

_TAG_MISSING = "the run has no such tag"


class Removed(NamedTuple):
    """The data that a deletion has removed from an experiment.

    Points of earlier attempts are included, and None if they are not counted. `bytes` are those of
    scalars, estimated, and of tensors, also of those that are objects. Of the objects, other runs
    and experiments may use some, which stay then.
    """

    points: int | None
    bytes: int | None
    objects: int
    object_bytes: int


DeleteRunRows = Callable[[Connection, ExperimentId, int, str], None]
"""Deletes rows of an experiment's run, by its id and name, in the caller's transaction."""

_DELETIONS: Final[list[DeleteRunRows]] = []
"""Functions of other packages that delete their rows of a run."""


def register_run_rows(delete: DeleteRunRows) -> None:
    """Have `delete` called for each run that is deleted; once per process for each function."""
    if delete not in _DELETIONS:
        _DELETIONS.append(delete)


def list_run_sizes(
    db: Connection, grant: AdminGrant, search: str, after: int, limit: int
) -> list[RunSize]:
    """Return a page of the runs with their sizes, in the order of creation, after a run id.

    Only runs whose names contain `search`, in any case.
    """
    return runs_tags.list_sizes(db, grant.experiment_id, limit, search=search, after=after)


def find_run_sizes(db: Connection, grant: AdminGrant, run_ids: Sequence[int]) -> list[RunSize]:
    """Return the runs that exist, of these, with their sizes, in the order of creation."""
    return runs_tags.list_sizes(db, grant.experiment_id, len(run_ids), run_ids=run_ids)


def find_named_run_sizes(
    db: Connection, grant: AdminGrant, digests: Sequence[str]
) -> list[RunSize]:
    """Return the runs that exist, of those whose names have SHA-256s that begin with these texts.

    The texts are 16 hexadecimal digits, as in addresses of comparisons.
    """
    run_ids = runs_tags.find_run_ids(db, grant.experiment_id, digests)
    return find_run_sizes(db, grant, run_ids)


def check_runs(db: Connection, grant: AdminGrant, names: Sequence[str]) -> None:
    """Raise NotFound, with the name, for a run that neither exists nor was deleted."""
    existing = set(runs_tags.list_run_names(db, grant.experiment_id, names).values())
    others = {runs_tags.hash_name(name): name for name in names if name not in existing}
    if not others:
        return
    deleted = deleted_runs.find(db, grant.experiment_id, list(others))
    for digest, name in others.items():
        if digest not in deleted:
            raise NotFound(f"the experiment has no run {name[:200]!r}: nothing was deleted")


def delete_run(db: Connection, grant: AdminGrant, name: str) -> bool:
    """Delete a run with all that it has, and remember that it was deleted.

    Waits for requests that write to the run; those that wait for this one are refused
    (`ingest/run_names.py`). Returns False if there is no such run (any more).
    """
    removed = remove_run(db, grant, name)
    if removed is None:
        return False
    deleted_runs.insert(db, grant, runs_tags.hash_name(name))
    place = grant.workspace_id, grant.experiment_id
    record(db, Act.RUN_DELETE, *place, run=name, **removed._asdict())
    return True


def delete_runs(database: Database, grant: AdminGrant, names: Sequence[str]) -> None:
    """Delete runs, each in a transaction of its own, and then erase points of them."""
    for name in names:
        with database.transaction(grant) as db:
            delete_run(db, grant, name)
    erase_points(database, grant)


def remove_run(db: Connection, grant: AdminGrant, name: str) -> Removed | None:
    """Delete a run as `delete_run`, for a caller that moves it: it may come again.

    Its series, points and upload cursors, what others registered, and the tags and references to
    blobs that nothing else of the experiment uses. Objects in S3 remain. Returns what that was;
    None if there is no such run.
    """
    experiment_id = grant.experiment_id
    run_id = runs_tags.lock_run(db, experiment_id, name)
    if run_id is None:
        return None
    tag_ids = time_series.list_run_tags(db, experiment_id, run_id)
    digests = _delete_series(db, grant, run_id, None) or []
    for delete_rows in _DELETIONS:
        delete_rows(db, experiment_id, run_id, name)
    runs_tags.delete_run(db, experiment_id, run_id)
    return _finish(db, grant, tag_ids, digests)


def delete_series(db: Connection, grant: AdminGrant, run: str, tag: str) -> None:
    """Delete one series, and the upload cursors of its run, so that an upload can restore it.

    Raises NotFound.
    """
    run_id = runs_tags.lock_run(db, grant.experiment_id, run)
    if run_id is None:
        raise NotFound("the experiment has no such run")
    tag_id = runs_tags.find_tag(db, grant.experiment_id, tag)
    digests = None if tag_id is None else _delete_series(db, grant, run_id, tag_id)
    if tag_id is None or digests is None:
        raise NotFound(_TAG_MISSING)
    removed = _finish(db, grant, [tag_id], digests)
    place = grant.workspace_id, grant.experiment_id
    record(db, Act.SERIES_DELETE, *place, run=run, tag=tag, **removed._asdict())


def _delete_series(
    db: Connection, grant: AdminGrant, run_id: int, tag_id: int | None
) -> list[bytes] | None:
    """Delete a run's series, or that of one tag, and its upload cursors.

    Returns the SHA-256s of the blobs that they refer to; None if there is no series of the tag. The
    run is locked.
    """
    experiment_id = grant.experiment_id
    series_ids = time_series.delete(db, experiment_id, run_id, tag_id)
    if not series_ids and tag_id is not None:
        return None
    digests = object_references.list_all_digests(db, experiment_id, series_ids)
    erased_series.insert(db, grant, series_ids)
    object_references.delete_unused(db, experiment_id, digests)
    upload_streams.delete_run_streams(db, experiment_id, run_id)
    return digests


def _finish(
    db: Connection, grant: AdminGrant, tag_ids: Sequence[int], digests: Sequence[bytes]
) -> Removed:
    """Delete the tags that are unused now, and change the experiment's row; return what is gone.

    In the order of a batch, which locks tags and changes that row last: else they could deadlock.
    """
    experiment_id = grant.experiment_id
    runs_tags.delete_unused_tags(db, experiment_id, tag_ids)
    experiments.bump_version(db, experiment_id)
    # Measured with its row locked: what a batch adds to other runs comes before, or after it.
    experiments.set_size(db, experiment_id, *experiment_size.measure(db, experiment_id))
    removed = charges.count_again(db, grant)
    object_bytes = blobs.measure(db, grant.workspace_id, digests)
    if removed is None:
        return Removed(None, None, len(digests), object_bytes)
    size = removed.scalars * experiment_size.SCALAR_BYTES + removed.tensor_bytes
    return Removed(removed.points, size, len(digests), object_bytes)


def erase_points(database: Database, grant: AdminGrant) -> None:
    """Erase points of deleted series for a few seconds, of most runs all of them.

    After the transaction that deleted the series: nobody sees these points any more. The rest is
    erased in the background (`eraser.py`).
    """
    end = time.monotonic() + ERASE_REQUEST_SECONDS
    is_gone = False
    while not is_gone and time.monotonic() < end:
        with database.transaction(grant) as db:
            is_gone = erase_some(
                db, grant.workspace_id, grant.experiment_id, ERASE_REQUEST_ITEMS_MAX
            )


def erase_some(
    db: Connection, workspace_id: WorkspaceId, experiment_id: ExperimentId, rows_max: int
) -> bool:
    """Erase points of deleted series as `erased_series.erase_some`.

    When no table has any more, that is recorded: what receipts are made of.
    """
    if not erased_series.erase_some(db, experiment_id, rows_max):
        return False
    # Others may be erasing some. Who deletes more holds this lock until the commit.
    if usage_counters.lock_experiment(db, experiment_id) and not erased_series.are_left(
        db, experiment_id
    ):
        record_erased(db, workspace_id, experiment_id)
    return True


def list_deleted(
    db: Connection, grant: ReadGrant, after: str, limit: int
) -> tuple[list[tuple[bytes, datetime]], str | None]:
    """Return a page of deleted runs, as SHA-256 of the name and time, and the next page's token.

    None for a share link that shows a part of the experiment. Raises MalformedRequest if `after` is
    no page token.
    """
    if grant.view is not None:
        return [], None
    position = decode_digest_token(after)
    rows = deleted_runs.list_page(db, grant.experiment_id, position, limit + 1)
    return cut_page(rows, limit, lambda last: encode_digest_token(last[0]))


def allow_runs(db: Connection, grant: AppendGrant, names: Sequence[str]) -> None:
    """Let deleted runs be written again. Their data is not restored. Repeating it is a no-op."""
    digests = [runs_tags.hash_name(name) for name in names]
    if deleted_runs.delete(db, grant.experiment_id, digests):
        for name in names:
            record(db, Act.RUN_ALLOW, grant.workspace_id, grant.experiment_id, run=name)
