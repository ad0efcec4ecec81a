"""Compare chosen runs of a workspace: what differs between them, and what is the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice.experiments import lifecycle, uploads
from tbservice.runs.columns import RunColumn
from tbservice.runs.selected_runs import (
    SelectedRuns,
    find_experiments,
    read_workspace_runs,
    select_runs,
)
from tbservice.runs.use_cases import (
    RUNS_COLUMN_ITEMS_MAX,
    RunsQuery,
    keep_known,
    resolve_sort,
)
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
class ChosenRuns:
    """The runs of a comparison: their rows among the selected ones, in the order of the comparison.

    `total` is the number of runs that were chosen, of which `missing` are not there. The rows are
    the first COMPARED_RUNS_ITEMS_MAX, of the first COMPARED_EXPERIMENTS_ITEMS_MAX experiments.
    `unknown` says which columns of the order were left out.
    """

    selected: SelectedRuns
    rows: list[int]
    total: int
    missing: int = 0
    unknown: Sequence[str] = ()

    @property
    def left_out(self) -> int:
        """Number of runs beyond the limits."""
        return self.total - self.missing - len(self.rows)

    def count_by_experiment(self) -> list[tuple[Experiment, int]]:
        """Return the experiments with selected runs, and how many."""
        runs = self.selected.runs
        split = runs.split(np.flatnonzero(self.selected.selected))
        return [(runs.experiments[index], len(rows)) for index, rows in split]

    def list_names(self) -> dict[ExperimentId, list[str]]:
        """Return the names of the runs, by experiment."""
        runs = self.selected.runs
        names: dict[ExperimentId, list[str]] = {}
        for index, place in runs.locate(self.rows):
            own = names.setdefault(runs.experiments[index].experiment_id, [])
            own.append(runs.parts[index].names[place])
        return names


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run of a comparison: `experiment` is the position of its experiment."""

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
    """Runs in the order in which they were chosen, their scalar tags, and their properties."""

    experiments: list[Experiment]
    runs: list[ComparedRun]
    tags: list[str]
    groups: list[PropertyGroup]


def choose_run(experiment_id: str, name: str) -> ChosenRun:
    """Return the short reference to a run, for addresses: names may have 10,000 characters."""
    return ChosenRun(ExperimentId(experiment_id), hash_name(name).hex()[:_DIGEST_CHARS])


def choose_named(db: Connection, grant: WorkspaceGrant, named: Sequence[ChosenRun]) -> ChosenRuns:
    """Return the named runs; those that are gone, or of other workspaces, are missing.

    `db` is a snapshot. Raises TooLarge as `list_runs`.
    """
    unique = list(dict.fromkeys(named))
    kept = set(
        list(dict.fromkeys(each.experiment_id for each in unique))[:COMPARED_EXPERIMENTS_ITEMS_MAX]
    )
    within = [each for each in unique if each.experiment_id in kept][:COMPARED_RUNS_ITEMS_MAX]
    experiments = find_experiments(db, grant, [each.experiment_id for each in within])
    runs, pending = read_workspace_runs(db, grant, experiments)
    rows = _locate(runs, within)
    selected = np.zeros(len(runs), bool)
    selected[rows] = True
    return ChosenRuns(
        SelectedRuns(runs, runs.list_known(), selected, left_out=False, pending_grants=pending),
        rows,
        len(unique),
        len(within) - len(rows),
    )


def choose_filtered(db: Connection, grant: WorkspaceGrant, query: RunsQuery) -> ChosenRuns:
    """Return the runs that the filter of a query selects, the first ones in its order.

    `db` is a snapshot. Raises as `list_runs`.
    """
    selected = select_runs(db, grant, query.where)
    runs = selected.runs
    query, unknown = keep_known(selected.known, query)
    ordered = runs.sort(selected.selected, resolve_sort(selected.known, query.sort))
    rows = ordered[:COMPARED_RUNS_ITEMS_MAX].tolist()
    indexes = [index for index, _ in runs.locate(rows)]
    kept = set(list(dict.fromkeys(indexes))[:COMPARED_EXPERIMENTS_ITEMS_MAX])
    within = [row for row, index in zip(rows, indexes, strict=True) if index in kept]
    return ChosenRuns(selected, within, len(ordered), unknown=unknown)


def compare_runs(db: Connection, grant: WorkspaceGrant, chosen: ChosenRuns) -> RunComparison:
    """Return what the runs have. `db` is the snapshot in which they were chosen."""
    runs = chosen.selected.runs
    places = runs.locate(chosen.rows)
    indexes = list(dict.fromkeys(index for index, _ in places))
    experiments = [runs.experiments[index] for index in indexes]
    compared = [
        ComparedRun(indexes.index(index), runs.parts[index].names[place]) for index, place in places
    ]
    metrics = _list_metrics(runs, places)
    groups = [
        PropertyGroup("Hyperparameters", _read(runs, chosen.rows, _list_hparams(runs, places))),
        PropertyGroup("Where and how", _read(runs, chosen.rows, _run_columns())),
        PropertyGroup("Packages"),
        PropertyGroup("Last values", _read(runs, chosen.rows, metrics[:RUNS_COLUMN_ITEMS_MAX])),
    ]
    recorded = [_read_upload(db, grant, experiment) for experiment in experiments]
    groups[1].rows.update(_spread([origin for origin, _ in recorded], compared, _OF_UPLOADS))
    groups[2].rows.update(_spread([packages for _, packages in recorded], compared))
    return RunComparison(experiments, compared, [column.name for column in metrics], groups)


def _locate(runs: WorkspaceRuns, named: Sequence[ChosenRun]) -> list[int]:
    """Return the rows of the named runs that are there, in their order."""
    wanted = set(named)
    rows: dict[ChosenRun, int] = {}
    first = 0
    for experiment, part in zip(runs.experiments, runs.parts, strict=True):
        for place, name in enumerate(part.names):
            run = choose_run(experiment.experiment_id, name)
            if run in wanted:
                rows[run] = first + place
        first += len(part)
    return [rows[run] for run in named if run in rows]


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


def _list_hparams(runs: WorkspaceRuns, places: Sequence[tuple[int, int]]) -> list[RunColumn]:
    names = {
        name
        for index, place in places
        if (start := runs.parts[index].starts[place]) is not None
        for name in start.names.names
    }
    return [RunColumn("hparam", name) for name in sorted(names)[:RUNS_COLUMN_ITEMS_MAX]]


def _list_metrics(runs: WorkspaceRuns, places: Sequence[tuple[int, int]]) -> list[RunColumn]:
    tags = {
        tag
        for index, place in places
        for tag, rows in runs.parts[index].series.items()
        if rows[place] >= 0
    }
    return [RunColumn("metric", tag, "last") for tag in sorted(tags)]


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
