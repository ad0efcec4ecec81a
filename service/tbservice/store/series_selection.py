"""What a selection of series says in SQL: conditions on `time_series`, for every query that takes one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tbservice.types import Selection


def build_conditions(
    selection: Selection, run_ids: Iterable[int], tag_ids: Iterable[int]
) -> tuple[str, dict[str, Any]]:
    """Conditions, each behind an AND, and their parameters; the ids are those of the selection's runs and tags.

    The names are not joined in SQL: of an experiment that has just come in PostgreSQL has no statistics, takes it for
    a small one, and looks through all tags for each of its series. The ids are left aside where any will do.
    """
    conditions = ""
    parameters: dict[str, Any] = {}
    if selection.plugin is not None:
        conditions += " AND plugin = %(plugin)s"
        parameters["plugin"] = selection.plugin
    if selection.data_class is not None:
        conditions += " AND data_class = %(data_class)s"
        parameters["data_class"] = int(selection.data_class)
    if selection.runs is not None:
        conditions += " AND run_id = ANY (%(run_ids)s::bigint[])"
        parameters["run_ids"] = list(run_ids)
    if selection.tags is not None:
        conditions += " AND tag_id = ANY (%(tag_ids)s::bigint[])"
        parameters["tag_ids"] = list(tag_ids)
    # PostgreSQL takes NaN for greater than any number, and equal to itself.
    if selection.last_value_min is not None:
        conditions += " AND last_value >= %(last_value_min)s AND last_value <> 'NaN'"
        parameters["last_value_min"] = selection.last_value_min
    if selection.last_value_max is not None:
        conditions += " AND last_value <= %(last_value_max)s AND last_value <> 'NaN'"
        parameters["last_value_max"] = selection.last_value_max
    return conditions, parameters
