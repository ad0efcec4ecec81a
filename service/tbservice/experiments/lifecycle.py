"""Create, list, update and delete experiments; delete their runs and series."""

from __future__ import annotations

from sqlalchemy import Connection

from tbservice import limits
from tbservice.auth import secrets
from tbservice.errors import Conflict, Invalid, NotFound
from tbservice.pagination import decode_page_token, encode_page_token
from tbservice.store import (
    experiments,
    katib_observations,
    katib_trials,
    points,
    runs_tags,
    time_series,
    upload_streams,
)
from tbservice.types import AdminGrant, Experiment, ReadGrant, Visibility, WorkspaceGrant

_NOT_FOUND = "there is no such experiment, or it is not yours"


def create_experiment(
    db: Connection,
    grant: WorkspaceGrant,
    name: str = "",
    description: str = "",
    visibility: Visibility = Visibility.PRIVATE,
    request_key: str | None = None,
) -> Experiment:
    """Create an experiment, or return the one created with the same `request_key`.

    Raises Invalid for texts over their limit.
    """
    _check_texts(name, description)
    _check_text("an Idempotency-Key", request_key or "", limits.EXPERIMENT_NAME_CHARS_MAX)
    experiment_id = secrets.generate_experiment_id()
    return experiments.create(
        db, grant.workspace_id, experiment_id, name, description, visibility, request_key
    )


def get_or_create_experiment(
    db: Connection,
    grant: WorkspaceGrant,
    name: str,
    description: str = "",
    visibility: Visibility = Visibility.PRIVATE,
) -> tuple[Experiment, bool]:
    """Return the experiment of this name, and whether it was created now.

    Of concurrent calls with one name, one creates it. An existing one is not changed.

    Raises:
        Invalid: A text is over its limit, or the name is empty.
        Conflict: Several experiments have the name.
    """
    if not name:
        raise Invalid("unique_name requires a name")
    _check_texts(name, description)
    known = experiments.lock_name(db, grant.workspace_id, name, limit=2)
    if len(known) > 1:
        raise Conflict(
            "several experiments have this name: name one by its ID, or rename the others",
            code="ambiguous_name",
        )
    if known:
        return known[0], False
    return create_experiment(db, grant, name, description, visibility), True


def get_experiment(db: Connection, grant: ReadGrant) -> Experiment:
    """Return the experiment. Raises NotFound if it was deleted after the grant was created."""
    experiment = experiments.find(db, grant.experiment_id)
    if experiment is None:
        raise NotFound(_NOT_FOUND)
    return experiment


def get_version_tag(db: Connection, grant: ReadGrant) -> str:
    """Return a text that changes whenever data, name or visibility of the experiment change.

    For ETags. Raises NotFound.
    """
    experiment = get_experiment(db, grant)
    return f"{experiment.version}-{experiment.updated_at.timestamp():.6f}"


def list_experiments(
    db: Connection, grant: WorkspaceGrant, search_text: str, after: str | None, limit: int
) -> tuple[list[Experiment], str | None]:
    """Return a page of the workspace's experiments and the page token of the next one, if any.

    The newest first. `search_text` must occur in name or description, ignoring case. Raises
    MalformedRequest if `after` is not a page token.
    """
    _check_text("q", search_text, limits.EXPERIMENT_NAME_CHARS_MAX)
    before = decode_page_token(after) if after else None
    rows = experiments.list_page(db, grant.workspace_id, search_text, before, limit + 1)
    page = rows[:limit]
    last = page[-1] if len(rows) > limit else None
    return page, encode_page_token(last.created_at, last.experiment_id) if last else None


def update_experiment(
    db: Connection,
    grant: AdminGrant,
    name: str | None = None,
    description: str | None = None,
    visibility: Visibility | None = None,
) -> Experiment:
    """Change what is not None.

    Raises Invalid for texts over their limit, NotFound if the experiment was deleted.
    """
    _check_texts(name or "", description or "")
    experiment = experiments.update(db, grant.experiment_id, name, description, visibility)
    if experiment is None:
        raise NotFound(_NOT_FOUND)
    return experiment


def delete_experiment(db: Connection, grant: AdminGrant) -> None:
    """Delete the experiment with everything in it. Raises NotFound if it was deleted before.

    The experiment's row is deleted first: an ingest in progress fails at its last statement and
    rolls back.
    """
    if not experiments.delete(db, grant.experiment_id):
        raise NotFound(_NOT_FOUND)
    points.delete_experiment_points(db, grant.experiment_id)


def delete_run(db: Connection, grant: AdminGrant, run: str) -> None:
    """Delete a run, its series, upload cursors, and trial. Raises NotFound if it does not exist."""
    run_id = _lock_run(db, grant, run)
    series_ids = time_series.delete(db, grant.experiment_id, run_id, None)
    points.delete_series_points(db, grant.experiment_id, series_ids)
    upload_streams.delete_run_streams(db, grant.experiment_id, run_id)
    katib_observations.delete_run(db, grant.experiment_id, run_id)
    katib_trials.delete(db, grant.experiment_id, runs_tags.hash_name(run))
    runs_tags.delete_run(db, grant.experiment_id, run_id)
    experiments.bump_version(db, grant.experiment_id)


def delete_series(db: Connection, grant: AdminGrant, run: str, tag: str) -> None:
    """Delete one series, and the upload cursors of its run, so that an upload can restore it.

    Raises NotFound.
    """
    run_id = _lock_run(db, grant, run)
    tag_id = runs_tags.find_tag(db, grant.experiment_id, tag)
    series_ids = (
        [] if tag_id is None else time_series.delete(db, grant.experiment_id, run_id, tag_id)
    )
    if not series_ids:
        raise NotFound("the run has no such tag")
    points.delete_series_points(db, grant.experiment_id, series_ids)
    upload_streams.delete_run_streams(db, grant.experiment_id, run_id)
    experiments.bump_version(db, grant.experiment_id)


def _lock_run(db: Connection, grant: AdminGrant, run: str) -> int:
    run_id = runs_tags.lock_run(db, grant.experiment_id, run)
    if run_id is None:
        raise NotFound("the experiment has no such run")
    return run_id


def _check_texts(name: str, description: str) -> None:
    _check_text("a name", name, limits.EXPERIMENT_NAME_CHARS_MAX)
    _check_text("a description", description, limits.EXPERIMENT_DESCRIPTION_CHARS_MAX)


def _check_text(what: str, content: str, chars_max: int) -> None:
    if len(content) > chars_max or "\0" in content:
        raise Invalid(f"{what} has at most {chars_max} characters, none of them NUL")
