"""Creating, listing, changing and deleting experiments, their runs and their series."""

from __future__ import annotations

from sqlalchemy import Connection

from tbservice import limits
from tbservice.auth import secrets
from tbservice.errors import Invalid, NotFound
from tbservice.pagination import decode_page_token, encode_page_token
from tbservice.store import experiments, points, runs_tags, time_series, upload_streams
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
    """A new experiment, or the one that the same `request_key` made before. Raises Invalid for long texts."""
    _check_texts(name, description)
    _check_text("an Idempotency-Key", request_key or "", limits.EXPERIMENT_NAME_CHARS_MAX)
    experiment_id = secrets.generate_experiment_id()
    return experiments.create(
        db, grant.workspace_id, experiment_id, name, description, visibility, request_key
    )


def get_experiment(db: Connection, grant: ReadGrant) -> Experiment:
    """The experiment. Raises NotFound when it has been deleted since the grant was made."""
    experiment = experiments.find(db, grant.experiment_id)
    if experiment is None:
        raise NotFound(_NOT_FOUND)
    return experiment


def get_version_tag(db: Connection, grant: ReadGrant) -> str:
    """A text that is another one whenever the experiment's data, name or visibility has changed. Raises NotFound."""
    experiment = get_experiment(db, grant)
    return f"{experiment.version}-{experiment.updated_at.timestamp():.6f}"


def list_experiments(
    db: Connection, grant: WorkspaceGrant, search_text: str, after: str | None, limit: int
) -> tuple[list[Experiment], str | None]:
    """A page of the workspace's experiments, the newest first, and where the next begins, None at the end.

    `search_text` must be part of the name or the description, in any case. Raises MalformedRequest for a place that is none.
    """
    _check_text("q", search_text, limits.EXPERIMENT_NAME_CHARS_MAX)
    place = decode_page_token(after) if after else None
    found = experiments.list_page(db, grant.workspace_id, search_text, place, limit + 1)
    page = found[:limit]
    last = page[-1] if len(found) > limit else None
    return page, encode_page_token(last.created_at, last.experiment_id) if last else None


def update_experiment(
    db: Connection,
    grant: AdminGrant,
    name: str | None = None,
    description: str | None = None,
    visibility: Visibility | None = None,
) -> Experiment:
    """Changes what is not None. Raises Invalid for texts over their limit, NotFound when it is gone."""
    _check_texts(name or "", description or "")
    experiment = experiments.update(db, grant.experiment_id, name, description, visibility)
    if experiment is None:
        raise NotFound(_NOT_FOUND)
    return experiment


def delete_experiment(db: Connection, grant: AdminGrant) -> None:
    """Deletes the experiment with everything in it. Raises NotFound when it is gone already.

    The experiment's row goes first: an ingest that is under way finds it gone at its last statement, and rolls back.
    """
    if not experiments.delete(db, grant.experiment_id):
        raise NotFound(_NOT_FOUND)
    points.delete_experiment_points(db, grant.experiment_id)


def delete_run(db: Connection, grant: AdminGrant, run: str) -> None:
    """Deletes a run, its series and its cursors. Raises NotFound when there is none."""
    run_id = _lock_run(db, grant, run)
    series_ids = time_series.delete(db, grant.experiment_id, run_id, None)
    points.delete_series_points(db, grant.experiment_id, series_ids)
    upload_streams.delete_run_streams(db, grant.experiment_id, run_id)
    runs_tags.delete_run(db, grant.experiment_id, run_id)
    experiments.bump_version(db, grant.experiment_id)


def delete_series(db: Connection, grant: AdminGrant, run: str, tag: str) -> None:
    """Deletes one series, and the cursors of its run, so that an upload can bring it back. Raises NotFound."""
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
        raise Invalid(f"{what} has at most {chars_max} characters, and no NUL")
