"""List and search the experiments of a workspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection

from tbservice import limits
from tbservice.experiment_values import ExperimentOrder, ExperimentQuery, UploadStatus
from tbservice.experiments import search_words
from tbservice.experiments.metadata import check_text
from tbservice.experiments.tables import experiment_list, experiment_words
from tbservice.experiments.tables.experiment_list import Position
from tbservice.experiments.tables.experiment_words import beginning
from tbservice.pagination import decode_list_token, encode_list_token
from tbservice.types.experiments import Experiment, Visibility
from tbservice.types.grants import WorkspaceGrant
from tbservice.types.identifiers import UserId


@dataclass(frozen=True, slots=True)
class Search:
    """Search for experiments with each word of `text`, and each of the other properties.

    A word is found at the beginning of a word of name, tags, description, notes, properties, or of
    the person who created the experiment. With `statuses`, an experiment must have one of them.
    `starred_by` is a person who has starred it. Archived experiments are found with `is_archived`,
    and others are not.
    """

    text: str = ""
    tags: Sequence[str] = ()
    created_by: UserId | None = None
    visibility: Visibility | None = None
    order: ExperimentOrder = ExperimentOrder.CREATED
    is_descending: bool = True
    statuses: Sequence[UploadStatus] = ()
    starred_by: UserId | None = None
    is_archived: bool = False


class Page(NamedTuple):
    """A page of a list, and the page token of the next one, None on the last."""

    experiments: list[Experiment]
    next: str | None


def list_experiments(
    db: Connection, grant: WorkspaceGrant, search: Search, after: str | None, limit: int
) -> Page:
    """Return a page of the workspace's experiments.

    Raises MalformedRequest if `after` is not a page token of this order, Invalid for a text over
    its limit.
    """
    check_text("q", search.text, limits.EXPERIMENT_NAME_CHARS_MAX)
    after_key = decode_list_token(after, search.order) if after else None
    query = _make_query(search)
    if query is None:
        return Page([], None)
    position = Position(*after_key) if after_key else None
    rows = experiment_list.list_page(db, grant.workspace_id, query, position, limit + 1)
    page = [row.experiment for row in rows[:limit]]
    last = rows[limit - 1].position if len(rows) > limit else None
    return Page(page, encode_list_token(search.order, *last) if last else None)


def count_experiments(db: Connection, grant: WorkspaceGrant, search: Search, items_max: int) -> int:
    """Return how many of the workspace's experiments a search finds, at most `items_max`."""
    query = _make_query(search)
    return 0 if query is None else experiment_list.count(db, grant.workspace_id, query, items_max)


def list_tags(
    db: Connection,
    grant: WorkspaceGrant,
    limit: int,
    *,
    is_archived: bool = False,
    typed: str = "",
) -> list[str]:
    """Return the first `limit` tags of the workspace's experiments, case-folded and sorted.

    Only those that begin with what is `typed`.
    """
    prefix = search_words.TAG_PREFIX
    if is_archived:
        prefix = search_words.in_archive(prefix)
    words = beginning(prefix + typed.casefold())
    found = experiment_words.list_words(db, grant.workspace_id, words, limit)
    return [word.removeprefix(prefix) for word in found]


def list_creators(db: Connection, grant: WorkspaceGrant, limit: int) -> list[UserId]:
    """Return at most `limit` people who have created experiments of the workspace."""
    words = experiment_words.list_words(
        db, grant.workspace_id, beginning(search_words.PERSON_PREFIX), limit
    )
    return [UserId(word[1:]) for word in words]


def _make_query(search: Search) -> ExperimentQuery | None:
    """Return the query for a search; None if nothing can match."""
    prefixes = search_words.parse_search(search.text)
    if prefixes is None:
        return None
    marks = [search_words.mark_tag(tag) for tag in search.tags]
    if search.created_by is not None:
        marks.append(search_words.mark_person(search.created_by))
    if search.visibility is not None:
        marks.append(search_words.mark_visibility(search.visibility))
    if search.is_archived:
        marks = list(map(search_words.in_archive, marks))
        # In any case one condition: the indexes of lists do not have archived experiments.
        prefixes = tuple(map(search_words.in_archive, [*prefixes, search_words.VISIBILITY_PREFIX]))
    return ExperimentQuery(
        tuple(dict.fromkeys(marks)),
        prefixes,
        search.order,
        search.is_descending,
        tuple(dict.fromkeys(search.statuses)),
        starred_by=search.starred_by,
        is_archived=search.is_archived,
    )
