"""Compare chosen runs of a workspace: what differs between them, and what is the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice.errors import NotFound
from tbservice.experiments import lifecycle, uploads
from tbservice.runs.columns import RunColumn
from tbservice.runs.selected_runs import SelectedRuns, read_workspace_runs, select_runs
from tbservice.runs.use_cases import RUNS_COLUMN_ITEMS_MAX
from tbservice.runs.workspace_runs import WorkspaceRuns
from tbservice.series.tables.runs_tags import hash_name
from tbservice.types.experiments import Experiment
from tbservice.types.grants import ReadGrant, WorkspaceGrant
from tbservice.types.identifiers import ExperimentId
from tbwire.hparams import HparamValue

COMPARED_RUNS_ITEMS_MAX: Final = 1_000
"""Runs (items) of one comparison: as many as cards draw."""

COMPARED_EXPERIMENTS_ITEMS_MAX: Final = 25
"""Experiments (items) whose runs are compared: the page has a token for each."""

_DIGEST_CHARS: Final = 16
_OF_RUNS: Final = ("status", "training", "started", "duration", "tags")
_OF_UPLOADS: Final = (
    "command",
    "git_commit",
    "git_branch",
    "git_changes",
    "host",
    "gpus",
    "gpu_driver",
    "cpus",
    "user",
    "directory",
    "python",
    "platform",
)
"""Keys of an upload's origin that a comparison shows, in this order, before any others."""

Values = Sequence[HparamValue | None]


@dataclass(frozen=True, slots=True)
class ChosenRun:
    """A run of a comparison: its experiment and the beginning of the digest of its name."""

    experiment_id: ExperimentId
    digest: str


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run of a comparison that was found: `experiment` is the position of its experiment."""

    experiment: int
    name: str


@dataclass(frozen=True, slots=True)
class PropertyGroup:
    """Properties of one kind, each with its value in every run of the comparison."""

    name: str
    rows: dict[str, Values] = field(default_factory=dict)

    @property
    def different(self) -> dict[str, Values]:
        """Return the properties that are not the same in all runs."""
        return {name: values for name, values in self.rows.items() if not _is_same(values)}

    @property
    def equal(self) -> dict[str, HparamValue | None]:
        """Return the properties that are the same in all runs, with this value."""
        return {name: values[0] for name, values in self.rows.items() if _is_same(values)}


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Runs in the order in which they were chosen, their scalar tags, and their properties.

    `missing` counts chosen runs that are not there; `left_out` those beyond the limits.
    """

    experiments: list[Experiment]
    runs: list[ComparedRun]
    tags: list[str]
    groups: list[PropertyGroup]
    missing: int
    left_out: int


def choose_run(experiment_id: str, name: str) -> ChosenRun:
    """Return the short reference to a run, for addresses: names may have 10,000 characters."""
    return ChosenRun(ExperimentId(experiment_id), hash_name(name).hex()[:_DIGEST_CHARS])


def compare_runs(
    db: Connection, grant: WorkspaceGrant, chosen: Sequence[ChosenRun]
) -> RunComparison:
    """Return the comparison of runs; those that are gone, or of other workspaces, are missing.

    Of more than COMPARED_RUNS_ITEMS_MAX runs or COMPARED_EXPERIMENTS_ITEMS_MAX experiments, the
    first are compared. `db` is a snapshot. Raises TooLarge as `list_runs`.
    """
    unique = list(dict.fromkeys(chosen))
    kept = set(
        list(dict.fromkeys(each.experiment_id for each in unique))[:COMPARED_EXPERIMENTS_ITEMS_MAX]
    )
    within = [each for each in unique if each.experiment_id in kept][:COMPARED_RUNS_ITEMS_MAX]
    experiments = _find_experiments(db, grant, [each.experiment_id for each in within])
    runs, _ = read_workspace_runs(db, grant, experiments)
    found = _locate(runs, within)
    positions = [row for row, _ in found]
    compared = [run for _, run in found]
    groups = [
        PropertyGroup("Hyperparameters", _read(runs, positions, _list_hparams(runs, found))),
        PropertyGroup("Where and how", _read(runs, positions, _run_columns())),
        PropertyGroup("Packages"),
        PropertyGroup("Last values", _read(runs, positions, _list_metrics(runs, found))),
    ]
    recorded = [_read_upload(db, grant, experiment) for experiment in experiments]
    groups[1].rows.update(_spread([origin for origin, _ in recorded], compared, _OF_UPLOADS))
    groups[2].rows.update(_spread([packages for _, packages in recorded], compared))
    tags = [column.name for column in _list_metrics(runs, found, limit=None)]
    return RunComparison(
        experiments, compared, tags, groups, len(within) - len(found), len(unique) - len(within)
    )


def select_compared(
    db: Connection, grant: WorkspaceGrant, comparison: RunComparison
) -> SelectedRuns:
    """Return all runs of the compared experiments, of which the compared ones are selected.

    `db` is a snapshot. Raises TooLarge as `list_runs`.
    """
    ids = [experiment.experiment_id for experiment in comparison.experiments]
    runs, pending = read_workspace_runs(db, grant, _find_experiments(db, grant, ids))
    compared = [choose_run(ids[run.experiment], run.name) for run in comparison.runs]
    selected = np.zeros(len(runs), bool)
    selected[[row for row, _ in _locate(runs, compared)]] = True
    return SelectedRuns(runs, runs.list_known(), selected, left_out=False, pending_grants=pending)


def count_runs(db: Connection, grant: WorkspaceGrant, where: str) -> list[tuple[Experiment, int]]:
    """Return the experiments of which a filter selects runs, and how many.

    Raises as `list_runs`.
    """
    chosen = select_runs(db, grant, where)
    return [
        (chosen.runs.experiments[index], len(rows))
        for index, rows in chosen.runs.split(np.flatnonzero(chosen.selected))
    ]


def _find_experiments(
    db: Connection, grant: WorkspaceGrant, ids: Sequence[ExperimentId]
) -> list[Experiment]:
    found = []
    for id_ in dict.fromkeys(ids):
        try:
            found.append(lifecycle.get_experiment(db, ReadGrant(grant.workspace_id, id_)))
        except NotFound:
            continue
    return found


def _locate(runs: WorkspaceRuns, chosen: Sequence[ChosenRun]) -> list[tuple[int, ComparedRun]]:
    """Return the chosen runs that are there, each with its position in the table."""
    wanted = set(chosen)
    places: dict[ChosenRun, tuple[int, ComparedRun]] = {}
    first = 0
    for index, (experiment, part) in enumerate(zip(runs.experiments, runs.parts, strict=True)):
        for row, name in enumerate(part.names):
            run = choose_run(experiment.experiment_id, name)
            if run in wanted:
                places[run] = first + row, ComparedRun(index, name)
        first += len(part)
    return [places[run] for run in chosen if run in places]


def _read(
    runs: WorkspaceRuns, positions: Sequence[int], columns: Sequence[RunColumn]
) -> dict[str, Values]:
    rows = runs.read_rows(positions, columns)
    return {
        column.name: [row[index] for row in rows]
        for index, column in enumerate(columns)
        if any(row[index] is not None for row in rows)
    }


def _run_columns() -> list[RunColumn]:
    return [RunColumn("run", name) for name in _OF_RUNS]


def _list_hparams(runs: WorkspaceRuns, found: Sequence[tuple[int, ComparedRun]]) -> list[RunColumn]:
    names = {
        name
        for part, row in _list_rows(runs, found)
        if (start := runs.parts[part].starts[row]) is not None
        for name in start.names.names
    }
    return [RunColumn("hparam", name) for name in sorted(names)[:RUNS_COLUMN_ITEMS_MAX]]


def _list_metrics(
    runs: WorkspaceRuns,
    found: Sequence[tuple[int, ComparedRun]],
    limit: int | None = RUNS_COLUMN_ITEMS_MAX,
) -> list[RunColumn]:
    tags = {
        tag
        for part, row in _list_rows(runs, found)
        for tag, rows in runs.parts[part].series.items()
        if rows[row] >= 0
    }
    return [RunColumn("metric", tag, "last") for tag in sorted(tags)[:limit]]


def _list_rows(
    runs: WorkspaceRuns, found: Sequence[tuple[int, ComparedRun]]
) -> Iterator[tuple[int, int]]:
    """Yield the position of the experiment of each run, and the row of the run in it."""
    firsts = [0]
    for part in runs.parts:
        firsts.append(firsts[-1] + len(part))
    for position, run in found:
        yield run.experiment, position - firsts[run.experiment]


def _read_upload(
    db: Connection, grant: WorkspaceGrant, experiment: Experiment
) -> tuple[dict[str, str], dict[str, str]]:
    """Return origin and packages (name: version) of an experiment's newest upload."""
    read = ReadGrant(grant.workspace_id, experiment.experiment_id)
    found, _ = uploads.list_uploads(db, read, None, 1)
    if not found:
        return dict(lifecycle.get_notes(db, experiment).origin), {}
    pairs = (package.partition("==") for package in found[0].packages)
    return dict(found[0].origin), {name: version for name, _, version in pairs}


def _spread(
    of_experiments: Sequence[Mapping[str, str]],
    runs: Sequence[ComparedRun],
    first: Sequence[str] = (),
) -> dict[str, Values]:
    """Return properties of experiments as those of their runs, those of `first` first."""
    names = sorted({name for each in of_experiments for name in each})
    ordered = dict.fromkeys([*(name for name in first if name in names), *names])
    return {name: [of_experiments[run.experiment].get(name) for run in runs] for name in ordered}


def _is_same(values: Values) -> bool:
    return len({(type(value), repr(value)) for value in values}) <= 1
