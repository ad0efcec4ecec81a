"""Details of listed experiments beyond their own rows: who created them, and their counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from tbservice.auth.tables import users
from tbservice.experiments.tables import experiment_size
from tbservice.types.experiments import Experiment
from tbservice.types.grants import Grant, ReadGrant
from tbservice.types.identifiers import ExperimentId, UserId

COUNTED_ROWS_MAX: Final = 400_000
"""Rows of runs and series that are counted for one page of experiments: a fraction of a second."""


@dataclass(frozen=True, slots=True)
class ExperimentDetails:
    """The author's name, and the numbers of runs and of series.

    `author` is None for a machine, and for callers who may not know. Unless `is_exact`, there are
    more runs or series than that.
    """

    author: str | None
    runs: int
    series: int
    is_exact: bool


def read_details(
    db: Connection, grant: Grant, experiments: Sequence[Experiment]
) -> dict[ExperimentId, ExperimentDetails]:
    """Return the details of each of these experiments, which the grant is for.

    Counts at most COUNTED_ROWS_MAX rows of all of them. Readers of one experiment learn the author
    only as a person who acts by their own right: others were given a link.
    """
    if not experiments:
        return {}
    rows_max = COUNTED_ROWS_MAX // (2 * len(experiments))
    counts = experiment_size.count_runs_and_series(
        db, [each.experiment_id for each in experiments], rows_max + 1
    )
    is_told = not isinstance(grant, ReadGrant) or (grant.link is None and grant.user_id is not None)
    creators = {each.created_by for each in experiments if each.created_by} if is_told else set()
    names = {user_id: _find_name(db, grant, user_id) for user_id in creators}

    return {
        experiment.experiment_id: ExperimentDetails(
            names.get(experiment.created_by) if experiment.created_by else None,
            min(counted.runs, rows_max),
            min(counted.series, rows_max),
            is_exact=max(counted) <= rows_max,
        )
        for experiment in experiments
        for counted in (counts[experiment.experiment_id],)
    }


def _find_name(db: Connection, grant: Grant, user_id: UserId) -> str | None:
    """Return a person's name. E-mail addresses, for those without one, are not for machines."""
    user = users.find(db, user_id)
    if user is None:
        return None
    address = user.person.email if grant.user_id is not None else ""
    return user.person.name.strip() or address or None
