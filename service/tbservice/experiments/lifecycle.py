"""Create, show and update experiments."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.audit.acts import Act
from tbservice.audit.recording import record
from tbservice.auth import secrets
from tbservice.auth.tables import users, workspaces
from tbservice.db.clock import read_now
from tbservice.errors import Conflict, Forbidden, Invalid, NotFound
from tbservice.experiment_values import ExperimentNotes
from tbservice.experiments.metadata import (
    Metadata,
    check_text,
    make_columns,
    make_name_key,
    normalize_tags,
)
from tbservice.experiments.search_words import collect_words, in_archive, mark_name
from tbservice.experiments.tables import experiment_words, experiments, share_links, uploads
from tbservice.quotas import room
from tbservice.quotas.tables import usage_counters
from tbservice.types.experiments import RESTORABLE, Experiment, Visibility
from tbservice.types.grants import AdminGrant, ExperimentGrant, Grant, ReadGrant, WorkspaceGrant
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.quotas import Usage

NOT_FOUND = "there is no such experiment, or it is not yours"

_VIEW_CHARS: Final = 16
"""Hexadecimal digits by which an ETag tells what links show."""


def create_experiment(
    db: Connection,
    grant: WorkspaceGrant,
    metadata: Metadata = Metadata(),  # noqa: B008 - immutable
    request_key: str | None = None,
    *,
    is_name_locked: bool = False,
) -> Experiment:
    """Create an experiment, or return the one created with the same `request_key`.

    Without `expires_at` it expires when the workspace says that new ones do.

    Raises Invalid for texts over their limit, Forbidden if it would be visible by link and the
    grant may not share, and QuotaExceeded if the workspace may not have another one.
    """
    if metadata.visibility is Visibility.LINK and not grant.may_share:
        raise Forbidden("to create an experiment that is visible by link takes the scope admin")
    check_text("an Idempotency-Key", request_key or "", limits.EXPERIMENT_NAME_CHARS_MAX)
    defaults = {"name": "", "description": "", "visibility": Visibility.PRIVATE.value}
    columns = {**defaults, **make_columns(metadata, {})}
    if metadata.expires_at is None:
        days = workspaces.find_expiry_days(db, grant.workspace_id)
        if days is not None:
            columns["erase_at"] = read_now(db) + timedelta(days=days) + RESTORABLE
    experiment, is_new = experiments.create(
        db,
        grant.workspace_id,
        secrets.generate_experiment_id,
        columns,
        request_key,
        grant.user_id,
        is_name_locked=is_name_locked,
    )
    if is_new:
        room.check_experiments(db, grant.workspace_id)
        if usage_counters.exist(db):
            usage_counters.create(db, grant.workspace_id, experiment.experiment_id, Usage())
        index_words(db, grant.workspace_id, experiment)
        if experiment.visibility is Visibility.LINK:
            _record_visibility(db, grant, experiment)
    return experiment


def get_or_create_experiment(
    db: Connection, grant: WorkspaceGrant, metadata: Metadata
) -> tuple[Experiment, bool]:
    """Return the experiment of this name, and whether it was created now.

    If several calls with one name run at once, one creates it. An existing one is not changed.

    Raises:
        Invalid: A text is over its limit, or the name is empty.
        Conflict: Several experiments have the name.
    """
    if not metadata.name:
        raise Invalid("unique_name requires a name")
    columns = make_columns(metadata, {})
    name, name_key = columns["name"], columns["name_key"]
    archived_word = in_archive(mark_name(name_key))
    # Two are enough to know that the name is ambiguous.
    known = experiments.lock_name(db, grant.workspace_id, name, name_key, archived_word, limit=2)
    if len(known) > 1:
        raise Conflict(
            "several experiments have this name: name one by its ID, or rename the others",
            code="ambiguous_name",
        )
    if known:
        return known[0], False
    return create_experiment(db, grant, metadata, is_name_locked=True), True


def get_experiment(db: Connection, grant: ReadGrant) -> Experiment:
    """Return the experiment, without counts of points if a link hides something of it.

    Strangers and readers of links do not learn when it expires: a frozen copy has a time of its
    own.

    Raises NotFound if it was deleted after the grant was created.
    """
    experiment = _find(db, grant)
    if grant.is_stranger or grant.link is not None:
        experiment = replace(experiment, erase_at=None)
    return experiment if grant.view is None else replace(experiment, points=None, bytes=None)


def find_own(db: Connection, grant: AdminGrant) -> Experiment:
    """Return the experiment, to change it. Raises NotFound if it was deleted meanwhile."""
    return _find(db, grant)


def _find(db: Connection, grant: ExperimentGrant) -> Experiment:
    experiment = experiments.find(db, grant.experiment_id)
    if experiment is None:
        raise NotFound(NOT_FOUND)
    return experiment


def get_notes(
    db: Connection, experiment: Experiment, reader: ReadGrant | None = None
) -> ExperimentNotes:
    """Return what is written about an experiment that another use case has returned.

    A `reader` who is a stranger learns nothing of its origin. Raises NotFound if it was deleted
    meanwhile.
    """
    notes = experiments.find_notes(db, experiment.experiment_id)
    if notes is None:
        raise NotFound(NOT_FOUND)
    return replace(notes, origin={}) if reader is not None and reader.is_stranger else notes


def get_version_tag(db: Connection, grant: ReadGrant) -> str:
    """Return the text of `make_version_tag`. Raises NotFound."""
    experiment = get_experiment(db, grant)
    return make_version_tag(experiment.version, experiment.updated_at, grant)


def make_version_tag(number: int, updated_at: datetime, grant: ReadGrant) -> str:
    """Return a text that changes whenever data, name or visibility of the experiment change.

    For ETags: links that show different things have different texts.
    """
    version = f"{number}-{updated_at.timestamp():.6f}"
    if grant.view is None:
        return version
    view = hashlib.sha256(repr(grant.view).encode()).hexdigest()
    return f"{version}-{view[:_VIEW_CHARS]}"


def update_experiment(db: Connection, grant: AdminGrant, metadata: Metadata) -> Experiment:
    """Change what is not None. An empty origin removes also the records of uploads.

    What becomes private is published no longer. Raises Invalid for texts over their limit, NotFound
    if the experiment was deleted, and Conflict if everyone could read then what a link hides, or
    search engines what is private.
    """
    if metadata.visibility is Visibility.LINK:
        _check_links(db, grant)
    metadata = _settle_published(db, metadata)
    # The first update locks the row: of two changes at once, each keeps the other's properties.
    if metadata.properties is not None and experiments.update(db, grant.experiment_id, {}) is None:
        raise NotFound(NOT_FOUND)
    notes = experiments.find_notes(db, grant.experiment_id)
    columns = make_columns(metadata, notes.properties if notes else {})
    experiment = experiments.update(db, grant.experiment_id, columns)
    if experiment is None:
        raise NotFound(NOT_FOUND)
    if metadata.published and experiment.visibility is not Visibility.LINK:
        raise Conflict(
            "search engines may list only what anyone with the URL may read: make it visible to "
            "anyone with the URL (link) first"
        )
    # The records of uploads have host and user as well.
    if columns.get("origin") == {}:
        uploads.delete_all(db, grant.experiment_id)
    if columns:
        is_archived = experiments.is_archived(db, grant.experiment_id)
        index_words(db, grant.workspace_id, experiment, is_archived=is_archived)
    if metadata.visibility is not None or metadata.published is not None:
        _record_visibility(db, grant, experiment)
    return experiment


def _record_visibility(db: Connection, grant: Grant, experiment: Experiment) -> None:
    record(
        db,
        Act.EXPERIMENT_SHARE,
        grant.workspace_id,
        experiment.experiment_id,
        visibility=experiment.visibility,
        published=is_published(db, experiment),
    )


def _settle_published(db: Connection, metadata: Metadata) -> Metadata:
    """Return what is to change, with the end of publishing of what becomes private."""
    if metadata.visibility is Visibility.PRIVATE and not metadata.published:
        metadata = replace(metadata, published=False)
    if metadata.published is not None and not experiments.has_publishing(db):
        if metadata.published:
            raise Conflict("the service is being upgraded: publish the experiment after it")
        metadata = replace(metadata, published=None)
    return metadata


def _check_links(db: Connection, grant: AdminGrant) -> None:
    """Raise Conflict if a link hides something of the experiment: its readers have the id."""
    # Locked first: a link that another transaction is making is counted after its commit.
    experiments.find(db, grant.experiment_id, is_locked=True)
    count = share_links.count_restricted(db, grant.experiment_id)
    if count:
        raise Conflict(
            f"{count} share link{'s' if count > 1 else ''} of this experiment hide runs, tags, or "
            "who and where, and their readers could then read everything: revoke them first, or "
            "make frozen ones"
        )


def is_archived(db: Connection, grant: Grant, experiment: Experiment) -> bool:
    """Return whether the experiment is archived; False for readers by a link, who see no list."""
    if isinstance(grant, ReadGrant) and (grant.link is not None or grant.is_stranger):
        return False
    return experiments.is_archived(db, experiment.experiment_id)


def is_published(db: Connection, experiment: Experiment) -> bool:
    """Return whether search engines may list the pages of the experiment: its owner says so."""
    return experiment.visibility is Visibility.LINK and experiments.is_published(
        db, experiment.experiment_id
    )


def change_tags(
    db: Connection, grant: AdminGrant, tags: Sequence[str], *, is_added: bool
) -> Experiment:
    """Add tags to the experiment, or remove them, ignoring case; its other tags stay.

    Raises Invalid for too many, or for what is no tag, NotFound if the experiment was deleted.
    """
    changed = normalize_tags(tags)
    experiment = experiments.find(db, grant.experiment_id, is_locked=True)
    if experiment is None:
        raise NotFound(NOT_FOUND)
    keys = {tag.casefold() for tag in changed}
    kept = [tag for tag in experiment.tags if tag.casefold() not in keys]
    return update_experiment(db, grant, Metadata(tags=[*kept, *changed] if is_added else kept))


def index_words(
    db: Connection,
    workspace_id: WorkspaceId,
    experiment: Experiment,
    *,
    is_archived: bool = False,
) -> None:
    """Let searches find an experiment by its present texts."""
    notes = experiments.find_notes(db, experiment.experiment_id)
    if notes is None:
        return
    creator = None if experiment.created_by is None else users.find(db, experiment.created_by)
    people = [creator.person.name, creator.person.email] if creator else []
    words = collect_words(experiment, notes, people)
    if is_archived:
        words.add(mark_name(make_name_key(experiment.name)))
        words = set(map(in_archive, words))
    experiment_words.replace(db, workspace_id, experiment.number, words)
