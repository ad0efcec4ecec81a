"""The first runs of one experiment, with hyperparameters and last values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection

from tbservice.db.clock import read_now
from tbservice.experiments import uploads
from tbservice.runs.experiment_runs import read_runs
from tbservice.runs.workspace_runs import WorkspaceRuns
from tbservice.types.experiments import Experiment
from tbservice.types.grants import ReadGrant
from tbwire.hparams import HparamValue

_SAME_FOR_ALL: Final = frozenset({"experiment", "experiment_name", "started", "run"})
"""Default columns of a table that say nothing of one run among those of its experiment, or name
it.
"""


class ExperimentTable(NamedTuple):
    """Runs in the order of their creation: the name of each, then the value of each column.

    `total` counts all runs. Columns without a value in any of these runs are left out.
    """

    columns: list[str]
    rows: list[tuple[str, Sequence[HparamValue | None]]]
    total: int


def list_first_runs(
    db: Connection, grant: ReadGrant, experiment: Experiment, limit: int
) -> ExperimentTable:
    """Return the first runs of an experiment: those, and of those what, the grant shows.

    Last values need no summaries. `db` is a snapshot.
    """
    part = read_runs(db, grant, str(experiment.version), points_max=0)
    statuses = uploads.find_statuses(db, grant, [experiment])
    runs = WorkspaceRuns([experiment], [part], statuses, {}, read_now(db).timestamp())
    known = runs.list_known()
    names = [name for name in known.list_default() if name not in _SAME_FOR_ALL]
    shown = range(min(limit, len(part)))
    rows = runs.read_rows(shown, [known.resolve(name, "columns") for name in names])
    kept = [index for index in range(len(names)) if any(row[index] is not None for row in rows)]
    named = zip((part.names[place] for place in shown), rows, strict=True)
    return ExperimentTable(
        [names[index] for index in kept],
        [(name, [row[index] for index in kept]) for name, row in named],
        len(part),
    )
