"""Tag runs, as experiments are tagged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

from tbservice.errors import Conflict, NotFound
from tbservice.experiments.metadata import normalize_tags
from tbservice.experiments.tables import experiments
from tbservice.runs.tables import tags_of_runs
from tbservice.series.tables.runs_tags import hash_name
from tbservice.types.grants import AdminGrant

RUN_TAGGED_ITEMS_MAX: Final = 1_000
"""Runs (items) of a request that tags runs."""


def change_run_tags(
    db: Connection,
    grant: AdminGrant,
    names: Sequence[str],
    added: Sequence[str] = (),
    removed: Sequence[str] = (),
) -> None:
    """Add tags to some runs of an experiment, and remove others, ignoring case.

    All other tags of these runs stay. Repeating it is a no-op.

    Raises:
        NotFound: One of the names is no run; no run is changed.
        Invalid: A text is no tag, or a run would have too many.
        Conflict: The database is not migrated yet.
    """
    if not tags_of_runs.is_supported(db):
        raise Conflict("runs have tags once the database is migrated: tbservice migrate")
    new = normalize_tags(added, "a run")
    gone = {tag.casefold() for tag in [*new, *normalize_tags(removed, "a run")]}
    by_digest = {hash_name(name): name for name in names}
    ids: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for run_id, digest, tags in tags_of_runs.lock_tags(db, grant.experiment_id, by_digest):
        del by_digest[digest]
        kept = [tag for tag in tags if tag.casefold() not in gone]
        wanted = normalize_tags([*kept, *new], "a run")
        if wanted != tags:
            ids[tuple(wanted)].append(run_id)
    for name in by_digest.values():
        raise NotFound(f"the experiment has no run {name[:200]!r}: nothing was changed")
    if ids:
        tags_of_runs.set_tags(db, grant.experiment_id, ids)
        experiments.bump_version(db, grant.experiment_id)
