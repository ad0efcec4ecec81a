"""SQL conditions on `time_series` for a selection of series."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tbservice.types.sampling import Selection


def build_conditions(
    selection: Selection, run_ids: Iterable[int], tag_ids: Iterable[int]
) -> tuple[str, dict[str, Any]]:
    """Return conditions, each after an AND, and their parameters.

    Names are not joined in SQL: PostgreSQL has no statistics of a new experiment yet, estimates it
    as small, and would scan all tags for each series.

    Args:
        selection: The selection.
        run_ids: Ids of the selection's runs; ignored if it selects all runs.
        tag_ids: Ids of its tags; ignored if it selects all tags.
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
    # PostgreSQL treats NaN as equal to itself and greater than all numbers (manual, 8.1.3).
    if selection.last_value_min is not None:
        conditions += " AND last_value >= %(last_value_min)s AND last_value <> 'NaN'"
        parameters["last_value_min"] = selection.last_value_min
    if selection.last_value_max is not None:
        conditions += " AND last_value <= %(last_value_max)s AND last_value <> 'NaN'"
        parameters["last_value_max"] = selection.last_value_max
    return conditions, parameters
