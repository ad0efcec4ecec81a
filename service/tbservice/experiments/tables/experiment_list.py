"""Lists of a workspace's experiments: sorted, searched and filtered by words, in pages."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import Connection, text

from tbservice.experiment_values import ExperimentOrder, ExperimentQuery, UploadStatus
from tbservice.experiments.tables.experiments import ARCHIVED, COLUMNS_OF_E, make_experiment
from tbservice.experiments.tables.search_plan import SearchPlan, is_read_by_number, plan_search
from tbservice.types.experiments import Experiment
from tbservice.types.identifiers import WorkspaceId


class Position(NamedTuple):
    """The place of an experiment in a list: what the list is sorted by, then the id."""

    key: datetime | str | int
    experiment_id: str


class ListedExperiment(NamedTuple):
    """An experiment and its position in the list."""

    experiment: Experiment
    position: Position


class _Section(NamedTuple):
    """Experiments that follow each other by one column, of an SQL type, then by id."""

    column: str
    sql_type: str
    condition: str = "true"


_BY_NUMBER: Final = _Section("number", "bigint")
_WITHOUT_DATA: Final = _BY_NUMBER._replace(condition="e.version = 0")

_SECTIONS: Final = {
    ExperimentOrder.CREATED: [_BY_NUMBER],
    # `data_at` is the time of creation before the first data. An index on `version`, or on another
    # column that says so, would rule out HOT updates by each batch.
    ExperimentOrder.UPDATED: [_Section("data_at", "timestamptz", "e.version > 0"), _WITHOUT_DATA],
    ExperimentOrder.NAME: [_Section("name_key", "text")],
    ExperimentOrder.SIZE: [_Section("listed_bytes", "bigint")],
}
"""The sections of each order, which follow each other in both directions."""

_STATUSES: Final = (
    UploadStatus.RUNNING,
    UploadStatus.SILENT,
    UploadStatus.FAILED,
    UploadStatus.KILLED,
    UploadStatus.UNKNOWN,
    UploadStatus.FINISHED,
)
"""The statuses in their order; experiments without one follow."""


def list_page(
    db: Connection,
    workspace_id: WorkspaceId,
    query: ExperimentQuery,
    after: Position | None,
    limit: int,
) -> list[ListedExperiment]:
    """Return one page of a workspace's experiments that match the query.

    Args:
        db: A transaction of the workspace.
        workspace_id: The workspace.
        query: Which experiments, and their order.
        after: The position of the previous page's last experiment; None for the first page.
        limit: Experiments at most.
    """
    if query.order is ExperimentOrder.STATUS:
        return _list_by_status(db, workspace_id, query, after, limit)
    plan = plan_search(db, workspace_id, query)
    if plan is None:
        return []
    sections = _SECTIONS[query.order]
    if after is not None and isinstance(after.key, int):
        sections = sections[-1:]
    listed: list[ListedExperiment] = []
    for section in sections:
        statement = _select(plan, query, section, after)
        parameters = {"workspace_id": workspace_id, "limit": limit - len(listed), **plan.parameters}
        if after is not None:
            parameters |= {"after_key": after.key, "after_id": after.experiment_id}
        listed += [
            ListedExperiment(make_experiment(row), Position(row.sort_key, row.experiment_id))
            for row in db.execute(text(statement), parameters)
        ]
        if len(listed) == limit:
            break
        after = None
    return listed


def _list_by_status(
    db: Connection,
    workspace_id: WorkspaceId,
    query: ExperimentQuery,
    after: Position | None,
    limit: int,
) -> list[ListedExperiment]:
    """Return one page in the order of statuses: for each, the page in the order of creation.

    The key of a position is the status, nothing for none, and the number.
    """
    chosen: list[UploadStatus | None] = [
        each for each in _STATUSES if not query.statuses or each in query.statuses
    ]
    if not query.statuses:
        chosen.append(None)
    if not query.is_descending:
        chosen.reverse()
    position = None
    if after is not None:
        name, number = str(after.key).split(" ")
        status = UploadStatus(name) if name else None
        chosen = chosen[chosen.index(status) :] if status in chosen else []
        position = Position(int(number), after.experiment_id)
    listed: list[ListedExperiment] = []
    for status in chosen:
        statuses = () if status is None else (status,)
        of_status = replace(
            query,
            order=ExperimentOrder.CREATED,
            statuses=statuses,
            has_no_status=status is None,
        )
        page = list_page(db, workspace_id, of_status, position, limit - len(listed))
        name = status.value if status else ""
        listed += [
            ListedExperiment(experiment, Position(f"{name} {place.key}", place.experiment_id))
            for experiment, place in page
        ]
        if len(listed) == limit:
            break
        position = None
    return listed


def count(db: Connection, workspace_id: WorkspaceId, query: ExperimentQuery, items_max: int) -> int:
    """Return the number of a workspace's experiments that match the query, at most `items_max`."""
    by_creation = replace(query, order=ExperimentOrder.CREATED)
    plan = plan_search(db, workspace_id, by_creation)
    if plan is None:
        return 0
    statement = f"SELECT count(*) FROM ({_select(plan, by_creation, _BY_NUMBER, None)}) AS found"  # noqa: S608 - constants and placeholders
    parameters = {"workspace_id": workspace_id, "limit": items_max, **plan.parameters}
    counted: int = db.execute(text(statement), parameters).scalar_one()
    return counted


def _select(
    plan: SearchPlan, query: ExperimentQuery, section: _Section, after: Position | None
) -> str:
    """Return the statement that reads a page of a section."""
    if is_read_by_number(query) and plan.numbers:
        return _select_by_number(plan, query, after)
    return _select_in_order(plan, query, section, after)


def _select_by_number(plan: SearchPlan, query: ExperimentQuery, after: Position | None) -> str:
    """Return a statement that reads experiments by their numbers, in the order of these."""
    descending = "DESC" if query.is_descending else ""
    comparison = "<" if query.is_descending else ">"
    numbers = (plan.numbers or "").format(
        after=f"AND number {comparison} :after_key" if after else ""
    )
    return f"""
        SELECT {COLUMNS_OF_E}, number AS sort_key
        FROM (
            SELECT DISTINCT number FROM (
                SELECT number FROM (
                    SELECT number FROM ({numbers}) AS matches ORDER BY number {descending}
                ) AS e
                WHERE {" AND ".join(["true", *plan.checks])}
                LIMIT :limit * {plan.copies}
            ) AS matches
            ORDER BY number {descending} LIMIT :limit
        ) AS found
        JOIN experiments AS e USING (number)
        WHERE e.workspace_id = :workspace_id AND {_listed(query)}
        ORDER BY number {descending}
    """  # noqa: S608 - constants and placeholders


def _select_in_order(
    plan: SearchPlan, query: ExperimentQuery, section: _Section, after: Position | None
) -> str:
    """Return a statement that reads experiments in order, or sorts those with some numbers."""
    column, sql_type, condition = section
    descending = "DESC" if query.is_descending else ""
    # A number is unique. With the id after it, no index has the order: PostgreSQL then checks all
    # experiments and sorts them, which takes half a second where 100,000 have a status.
    last = "" if column == _BY_NUMBER.column else f", experiment_id {descending}"
    conditions = ["e.workspace_id = :workspace_id", _listed(query), condition]
    if after is not None:
        comparison = "<" if query.is_descending else ">"
        key = f"CAST(:after_key AS {sql_type})"
        conditions.append(f"(e.{column}, e.experiment_id) {comparison} ({key}, :after_id)")
    order = f"{column} {descending}{last}"
    if plan.numbers is None:
        return f"""
            SELECT {COLUMNS_OF_E}, found.{column} AS sort_key
            FROM (
                SELECT experiment_id, {column} FROM experiments AS e
                WHERE {" AND ".join([*conditions, *plan.checks])}
                ORDER BY {order} LIMIT :limit
            ) AS found
            JOIN experiments AS e USING (experiment_id)
            ORDER BY found.{column} {descending}, found.experiment_id {descending}
        """  # noqa: S608 - constants and placeholders
    # Sorted before the checks, which are made until the page is full.
    return f"""
        SELECT {COLUMNS_OF_E}, e.{column} AS sort_key
        FROM (
            SELECT e.* FROM experiments AS e
            JOIN ({plan.numbers.format(after="")}) AS matches USING (number)
            WHERE {" AND ".join(conditions)}
            ORDER BY {order}
        ) AS e
        WHERE {" AND ".join(["true", *plan.checks])}
        ORDER BY {order} LIMIT :limit  -- sorted already, unless several nodes return them
    """  # noqa: S608 - constants and placeholders


def _listed(query: ExperimentQuery) -> str:
    return f"({ARCHIVED})" if query.is_archived else "e.is_listed"
