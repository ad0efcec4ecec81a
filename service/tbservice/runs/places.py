"""Places of a workspace that a person goes to by a name, found while it is typed.

Each look is bounded, whatever there is, so that an answer takes at most 50 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection

from tbservice.experiment_values import ExperimentOrder, SavedSearch
from tbservice.experiments import bookmarks, listing
from tbservice.experiments.listing import Search
from tbservice.experiments.tables import experiments
from tbservice.runs.views import ViewVersion, list_views
from tbservice.series.tables import runs_tags
from tbservice.types.experiments import Experiment
from tbservice.types.grants import WorkspaceGrant
from tbservice.types.identifiers import ExperimentId

PLACE_ITEMS_MAX: Final = 6
"""Places (items) of a kind that are found."""

PLACE_WORD_ITEMS_MAX: Final = 8
"""Words (items) that are looked for; further ones are ignored."""

_ID_CHARS: Final = 22
_NAMED_ITEMS: Final = 30
"""Experiments with the words, among which those are preferred that have them in the name."""

_RUN_EXPERIMENTS: Final = 20
"""Experiments whose runs are looked at: those with the newest data."""

_RUNS_EACH: Final = 500
_NAMES_HERE: Final = 5_000
"""Runs, or tags, of the experiment whose page is open."""


@dataclass(frozen=True, slots=True)
class RunPlace:
    """A run, or with `tag` a tag, of an experiment."""

    experiment: Experiment
    name: str


@dataclass(slots=True)
class Places:
    """Places that were found; `labels` are tags of experiments, `tags` of the open one's series."""

    experiments: list[Experiment] = field(default_factory=list)
    runs: list[RunPlace] = field(default_factory=list)
    tags: list[RunPlace] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    searches: list[SavedSearch] = field(default_factory=list)
    views: list[ViewVersion] = field(default_factory=list)


def contains_words(name: str, words: Sequence[str]) -> bool:
    """Return whether a name contains all words, which are in lower case."""
    lowered = name.lower()
    return all(word in lowered for word in words)


def split_words(typed: str) -> list[str]:
    """Return the words that are looked for, in lower case."""
    return typed.lower().split()[:PLACE_WORD_ITEMS_MAX]


def find_places(db: Connection, grant: WorkspaceGrant, typed: str, open_id: str) -> Places:
    """Return the places of a workspace that match a text.

    Args:
        db: A snapshot of the workspace.
        grant: The right to read all of it.
        typed: What the person typed, or the id of an experiment.
        open_id: The experiment whose page is open: its tags are found, and its runs first. "" or
            that of another workspace for none.
    """
    words = split_words(typed)
    if not words:
        return Places()
    here = _find_experiment(db, open_id)
    return Places(
        _find_experiments(db, grant, typed, words),
        _find_runs(db, grant, words, here),
        [] if here is None else _find_names(db, "tags", [here], words, _NAMES_HERE),
        listing.list_tags(db, grant, PLACE_ITEMS_MAX, typed=typed),
        [each for each in bookmarks.list_searches(db, grant) if contains_words(each.name, words)][
            :PLACE_ITEMS_MAX
        ],
        [each for each in list_views(db, grant) if contains_words(each.name, words)][
            :PLACE_ITEMS_MAX
        ],
    )


def _find_experiment(db: Connection, experiment_id: str) -> Experiment | None:
    if len(experiment_id) != _ID_CHARS:
        return None
    experiment = experiments.find(db, ExperimentId(experiment_id))
    return None if experiment is None or experiment.deleted_at else experiment


def _find_experiments(
    db: Connection, grant: WorkspaceGrant, typed: str, words: Sequence[str]
) -> list[Experiment]:
    """Return experiments as the list finds them: first of that name, then with it in the name."""
    by_id = _find_experiment(db, typed)
    listed = listing.list_experiments(db, grant, Search(typed), None, _NAMED_ITEMS).experiments

    def rank(experiment: Experiment) -> int:
        name = experiment.name.strip().casefold()
        if name == typed.casefold():
            return 0
        return 1 if name.startswith(typed.casefold()) else 2 if contains_words(name, words) else 3

    return [*([by_id] if by_id else []), *sorted(listed, key=rank)][:PLACE_ITEMS_MAX]


def _find_runs(
    db: Connection, grant: WorkspaceGrant, words: Sequence[str], here: Experiment | None
) -> list[RunPlace]:
    """Return runs of the open experiment, then of those with the newest data."""
    found = [] if here is None else _find_names(db, "runs", [here], words, _NAMES_HERE)
    if len(found) < PLACE_ITEMS_MAX:
        newest = Search(order=ExperimentOrder.UPDATED)
        page = listing.list_experiments(db, grant, newest, None, _RUN_EXPERIMENTS)
        others = [each for each in page.experiments if here is None or each != here]
        found += _find_names(db, "runs", others, words, _RUNS_EACH)
    return found[:PLACE_ITEMS_MAX]


def _find_names(
    db: Connection, table: str, where: Sequence[Experiment], words: Sequence[str], rows_max: int
) -> list[RunPlace]:
    by_id = {each.experiment_id: each for each in where}
    rows = runs_tags.search_names(db, table, list(by_id), words, rows_max, PLACE_ITEMS_MAX)
    return [RunPlace(by_id[experiment_id], name) for experiment_id, name in rows]
