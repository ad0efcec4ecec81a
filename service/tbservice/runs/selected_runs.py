"""Read the runs of a workspace, and select some by a filter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from tbservice.db.clock import read_now
from tbservice.errors import NotFound, TooLarge
from tbservice.experiment_values import UploadStatus
from tbservice.experiments import lifecycle, listing, uploads
from tbservice.experiments.listing import Search
from tbservice.reading.source import ExperimentReader
from tbservice.runs.columns import KnownColumns
from tbservice.runs.experiment_runs import SUMMARY_POINTS_MAX, ExperimentRuns, read_runs
from tbservice.runs.filters import Filter, find_equal_texts, list_columns, parse_filter
from tbservice.runs.origins import RunOrigin, read_origins
from tbservice.runs.run_values import Bools
from tbservice.runs.workspace_runs import WorkspaceRuns
from tbservice.types.experiments import Experiment
from tbservice.types.grants import ReadGrant, WorkspaceGrant
from tbservice.types.identifiers import ExperimentId

RUNS_EXPERIMENT_ITEMS_MAX: Final = 2_000
"""Experiments (items), the newest, whose runs are in the table of a workspace."""

RUNS_ITEMS_MAX: Final = 250_000
"""Runs (items) of these experiments."""


@dataclass(frozen=True, slots=True)
class SelectedRuns:
    """The runs of a workspace, and which of them a filter selects.

    `left_out` says that there are more experiments than RUNS_EXPERIMENT_ITEMS_MAX;
    `pending_grants` names those with series whose minimum and maximum are still computed.
    """

    runs: WorkspaceRuns
    known: KnownColumns
    selected: Bools
    left_out: bool
    pending_grants: list[ReadGrant]


def select_runs(db: Connection, grant: WorkspaceGrant, where: str) -> SelectedRuns:
    """Return the runs of a workspace, and which of them a filter selects.

    Args:
        db: A snapshot of the workspace.
        grant: Grant to read all of the workspace.
        where: The filter; "" for all.

    Raises:
        FilterError: The filter cannot be parsed.
        UnknownColumn: No run has a column of the filter.
        TooLarge: There are too many runs, or regular expressions take too many steps.
    """
    tree = parse_filter(where)
    experiments, left_out = _list_experiments(db, grant, tree)
    runs, pending = read_workspace_runs(db, grant, experiments)
    return _select(runs, tree, left_out, pending)


def select_in_experiment(db: Connection, grant: ReadGrant, where: str) -> SelectedRuns:
    """Return the runs of an experiment as its grant shows them, and which a filter selects.

    Raises as `select_runs`.
    """
    tree = parse_filter(where)
    own = _read_own(db, grant, SUMMARY_POINTS_MAX)
    return _select(own, tree, left_out=False, pending=[grant] if own.pending else [])


def select_of_readers(readers: Sequence[ExperimentReader], where: str) -> SelectedRuns:
    """Return the runs of experiments, each as its reader sees it, and which a filter selects.

    Runs and tags that a share link hides are not there. Its readers, and strangers, do not learn
    the origin. Raises as `select_runs`.
    """
    tree = parse_filter(where)
    experiments: list[Experiment] = []
    parts: list[ExperimentRuns] = []
    trainings: dict[ExperimentId, UploadStatus] = {}
    origins: dict[ExperimentId, RunOrigin] = {}
    pending: list[ReadGrant] = []
    now = 0.0
    for reader in readers:
        own = reader.read(_read_own, SUMMARY_POINTS_MAX if not pending else 0)
        experiments.append(own.experiments[0])
        parts.append(own.parts[0])
        trainings.update(own.trainings)
        origins.update(own.origins)
        now = max(now, own.now)
        if own.pending:
            pending.append(reader.grant)
    _check_count(sum(map(len, parts)))
    runs = WorkspaceRuns(experiments, parts, trainings, origins, now)
    return _select(runs, tree, left_out=False, pending=pending)


def _read_own(db: Connection, grant: ReadGrant, points_max: int) -> WorkspaceRuns:
    """Return the runs of one experiment as a grant on it shows them."""
    experiment = lifecycle.get_experiment(db, grant)
    is_members = grant.link is None and not grant.is_stranger
    return WorkspaceRuns(
        [experiment],
        [read_runs(db, grant, str(experiment.version), points_max)],
        uploads.find_statuses(db, grant, [experiment]),
        read_origins(db, [grant.experiment_id]) if is_members else {},
        read_now(db).timestamp(),
    )


def _select(
    runs: WorkspaceRuns, tree: Filter | None, left_out: bool, pending: list[ReadGrant]
) -> SelectedRuns:
    known = runs.list_known()
    resolved = {
        column.name: known.resolve(column.name, f"the filter, character {column.position}")
        for column in list_columns(tree)
    }
    return SelectedRuns(runs, known, runs.select(tree, resolved), left_out, pending)


def _check_count(count: int) -> None:
    if count > RUNS_ITEMS_MAX:
        limit = f"the limit of {RUNS_ITEMS_MAX} (runs_items_max)"
        raise TooLarge(
            f"the table has more runs than {limit}: select experiments, as in "
            'experiment = "ID" or experiment = "ID"'
        )


def _list_experiments(
    db: Connection, grant: WorkspaceGrant, tree: Filter | None
) -> tuple[list[Experiment], bool]:
    """Return the experiments whose runs a filter may select, newest first.

    Also return whether some are left out.
    """
    ids = find_equal_texts(tree, "experiment")
    if ids is None:
        page = listing.list_experiments(db, grant, Search(), None, RUNS_EXPERIMENT_ITEMS_MAX)
        return page.experiments, page.next is not None
    return sorted(find_experiments(db, grant, ids), key=lambda each: -each.number), False


def find_experiments(db: Connection, grant: WorkspaceGrant, ids: Iterable[str]) -> list[Experiment]:
    """Return those of the experiments that there are in a workspace, each once."""
    found = []
    for id_ in dict.fromkeys(ids):
        with suppress(NotFound):
            read = ReadGrant(grant.workspace_id, ExperimentId(id_))
            found.append(lifecycle.get_experiment(db, read))
    return found


def read_workspace_runs(
    db: Connection, grant: WorkspaceGrant, experiments: Sequence[Experiment]
) -> tuple[WorkspaceRuns, list[ReadGrant]]:
    """Return the runs of the experiments, and the grants on those with unknown summaries."""
    parts: list[ExperimentRuns] = []
    pending: list[ReadGrant] = []
    points_left = SUMMARY_POINTS_MAX
    count = 0
    for experiment in experiments:
        read = ReadGrant(grant.workspace_id, experiment.experiment_id)
        part = read_runs(db, read, str(experiment.version), points_left)
        if part.pending:
            pending.append(read)
            points_left = 0
        count += len(part)
        _check_count(count)
        parts.append(part)
    ids = [experiment.experiment_id for experiment in experiments]
    runs = WorkspaceRuns(
        experiments,
        parts,
        uploads.find_statuses(db, grant, experiments),
        read_origins(db, ids),
        read_now(db).timestamp(),
    )
    return runs, pending
