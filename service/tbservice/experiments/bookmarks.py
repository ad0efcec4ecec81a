"""Stars and saved searches: what a person keeps of a workspace's list for themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

from tbservice.auth.secrets import is_experiment_id
from tbservice.errors import Conflict, Invalid, NotFound
from tbservice.experiment_values import SavedSearch
from tbservice.experiments.lifecycle import NOT_FOUND
from tbservice.experiments.metadata import check_text
from tbservice.experiments.tables import experiment_stars, experiments, saved_searches
from tbservice.types.experiments import Experiment
from tbservice.types.grants import Grant, PersonalGrant, ReadGrant, WorkspaceGrant
from tbservice.types.identifiers import ExperimentId, UserId

STARS_ITEMS_MAX: Final = 1_000
"""Experiments (items) of a workspace that a person can star: a search reads all of them."""

SAVED_SEARCHES_ITEMS_MAX: Final = 50
"""Searches (items) of a workspace that a person can save."""

SAVED_SEARCH_NAME_CHARS_MAX: Final = 60
"""Characters of the name of a saved search."""

SAVED_SEARCH_QUERY_CHARS_MAX: Final = 4_000
"""Characters of the query of a saved search, as in its address."""


def star(db: Connection, grant: ReadGrant, *, is_starred: bool) -> None:
    """Star the experiment for the person of the grant, or take the star away; idempotent.

    Raises Conflict for more than STARS_ITEMS_MAX.
    """
    user_id = _require_person(db, grant)
    if not is_starred:
        experiment_stars.remove(db, grant.experiment_id, user_id)
        return
    experiment_stars.add(db, grant.workspace_id, grant.experiment_id, user_id)
    if experiment_stars.count(db, grant.workspace_id, user_id) > STARS_ITEMS_MAX:
        raise Conflict(
            f"you can star {STARS_ITEMS_MAX:,} experiments of a workspace: take stars from others"
        )


def star_own(db: Connection, grant: PersonalGrant, experiment_id: str, *, is_starred: bool) -> None:
    """Star an experiment of the grant's workspace as `star` does; NotFound for any other."""
    known = ExperimentId(experiment_id)
    if not is_experiment_id(experiment_id) or experiments.find(db, known) is None:
        raise NotFound(NOT_FOUND)
    star(db, ReadGrant(grant.workspace_id, known, user_id=grant.user_id), is_starred=is_starred)


def find_starred(
    db: Connection, grant: WorkspaceGrant, experiments: Sequence[Experiment]
) -> set[ExperimentId]:
    """Return those of these experiments that the person of the grant has starred."""
    if grant.user_id is None or not experiment_stars.exist(db):
        return set()
    ids = [each.experiment_id for each in experiments]
    return experiment_stars.find(db, grant.workspace_id, grant.user_id, ids)


def list_searches(db: Connection, grant: WorkspaceGrant) -> list[SavedSearch]:
    """Return the saved searches of the person of the grant, by name."""
    if grant.user_id is None or not experiment_stars.exist(db):
        return []
    return saved_searches.list_all(db, grant.workspace_id, grant.user_id)


def save_search(db: Connection, grant: WorkspaceGrant, saved: SavedSearch) -> None:
    """Save a search for the person of the grant, or replace the one of its name.

    Raises Invalid for a name or query over its limit, Conflict for too many.
    """
    user_id = _require_person(db, grant)
    name = " ".join(saved.name.split())
    check_text("the name of a search", name, SAVED_SEARCH_NAME_CHARS_MAX)
    if not name:
        raise Invalid("give the search a name")
    check_text("a search", saved.query, SAVED_SEARCH_QUERY_CHARS_MAX)
    saved_searches.put(db, grant.workspace_id, user_id, SavedSearch(name, saved.query))
    if len(saved_searches.list_all(db, grant.workspace_id, user_id)) > SAVED_SEARCHES_ITEMS_MAX:
        raise Conflict(f"you can save {SAVED_SEARCHES_ITEMS_MAX} searches: delete another one")


def delete_search(db: Connection, grant: WorkspaceGrant, name: str) -> None:
    """Delete a saved search of the person of the grant; a no-op if there is none of this name."""
    saved_searches.delete(db, grant.workspace_id, _require_person(db, grant), name)


def _require_person(db: Connection, grant: Grant) -> UserId:
    """Return the person of a grant. Raises Conflict as long as the schema lacks the tables."""
    if not experiment_stars.exist(db):
        raise Conflict("the database is being upgraded: try again later")
    if grant.user_id is None:
        raise Invalid("this is for people: a machine's token has no stars and saved searches")
    return grant.user_id
