"""How a search reads the table of words: in which order, and what it checks for each experiment.

Row-level security allows only leakproof operators as conditions of an index, which the comparisons
of text are. The rows of one word are in the order in which experiments were created.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from tbservice.db.cluster.citus import Forms
from tbservice.experiment_values import ExperimentOrder, ExperimentQuery
from tbservice.experiments.tables import experiment_words
from tbservice.experiments.tables.experiment_words import WordRange, beginning, exactly
from tbservice.types.identifiers import WorkspaceId

RARE_ROWS_MAX: Final = 50_000
"""Rows of a condition up to which all of them are read: about 20 ms."""

SORTED_ROWS_MAX: Final = 3_000
"""Rows that are sorted when the experiment of each is read, to sort by one of its columns."""

HASHED_ROWS_MAX: Final = 100_000
"""Rows of a condition up to which they are put in a hash table, rather than looked up singly."""

_HASH: Final = "(e.number IN (SELECT number FROM experiment_words WHERE {words})) IS TRUE"
_LOOK_UP: Final = Forms(
    plain="(SELECT true FROM experiment_words WHERE {words} AND number = e.number LIMIT 1)",
    cluster=_HASH,  # words may be elsewhere than experiments
)

MERGED_WORDS_MAX: Final = 32
"""Different words with one beginning whose rows are merged in order."""


class _Condition(NamedTuple):
    """An experiment must have one of these words.

    `words` is None if they are many; `rows` counts their rows, up to a maximum.
    """

    word_range: WordRange
    words: Sequence[str] | None
    rows: int


@dataclass(slots=True)
class SearchPlan:
    """Parts of a statement, with their parameters.

    `numbers` is a query for the numbers of experiments to consider, None for all in the workspace;
    it returns each up to `copies` times. `checks` are the conditions that remain, on `e.number`.
    """

    numbers: str | None = None
    copies: int = 1
    checks: list[str] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)

    def add_parameter(self, value: str) -> str:
        """Return the placeholder of a new parameter."""
        name = f"word{len(self.parameters)}"
        self.parameters[name] = value
        return f":{name}"


def plan_search(
    db: Connection, workspace_id: WorkspaceId, query: ExperimentQuery
) -> SearchPlan | None:
    """Return how to search; None if nothing matches.

    Conditions with few rows are intersected. If there is one of them or none, and the order is that
    of creation, the rows of one condition are read in order until the page is full. The other
    conditions are checked for one experiment after the other.
    """
    is_by_creation = query.order is ExperimentOrder.CREATED
    conditions = _list_conditions(db, workspace_id, query)
    if conditions is None:
        return None

    plan = SearchPlan()
    used = [condition for condition in conditions if condition.rows < RARE_ROWS_MAX]
    if is_by_creation and len(used) <= 1:
        merged = [each for each in used or conditions if each.words is not None]
        used = merged[:1] or used
    elif not is_by_creation and all(each.rows >= SORTED_ROWS_MAX for each in used):
        used = []

    if is_by_creation and len(used) == 1 and used[0].words is not None:
        plan.numbers = _merge(plan, used[0].words, query.is_descending)
    elif used:
        plan.numbers = " INTERSECT ".join(_select(plan, each.word_range) for each in used)
    for condition in conditions:
        if condition not in used:
            plan.checks.append(
                _check(plan, condition, is_by_creation=is_by_creation, look_up=_LOOK_UP.of(db))
            )
    return plan


def _list_conditions(
    db: Connection, workspace_id: WorkspaceId, query: ExperimentQuery
) -> list[_Condition] | None:
    """Return the conditions of a query; None if no experiment meets one of them.

    Rows are counted only if the number matters: 50,000 take about 10 ms.
    """
    is_by_creation = query.order is ExperimentOrder.CREATED
    rows_max = RARE_ROWS_MAX if is_by_creation else HASHED_ROWS_MAX
    ranges: list[tuple[WordRange, list[str] | None]] = [
        (exactly(word), [word]) for word in query.words
    ]
    limit = MERGED_WORDS_MAX + 1
    for prefix in query.prefixes:
        words = experiment_words.list_words(db, workspace_id, beginning(prefix), limit)
        if not words:
            return None
        ranges.append((beginning(prefix), words if len(words) < limit else None))

    conditions = []
    for word_range, merged in ranges:
        rows = 1
        if not (is_by_creation and len(ranges) == 1 and merged is not None):
            rows = experiment_words.count_rows(db, workspace_id, word_range, rows_max)
        if not rows:
            return None
        conditions.append(_Condition(word_range, merged, rows))
    return conditions


def _merge(plan: SearchPlan, words: Collection[str], is_descending: bool) -> str:
    """Return a query for the experiments with one of the words, of which each part has the order.

    PostgreSQL merges them as far as the rows are read (a Merge Append).
    """
    order = "DESC" if is_descending else ""
    queries = [
        f"""
            (SELECT number FROM experiment_words
             WHERE workspace_id = :workspace_id AND word = {plan.add_parameter(word)} {{after}}
             ORDER BY number {order})
        """  # noqa: S608 - placeholders
        for word in words
    ]
    plan.copies = len(queries)
    return " UNION ALL ".join(queries)


def _select(plan: SearchPlan, word_range: WordRange) -> str:
    low, high = map(plan.add_parameter, word_range)
    return f"""
        SELECT DISTINCT number FROM experiment_words
        WHERE workspace_id = :workspace_id AND word >= {low} AND word < {high} {{after}}
    """  # noqa: S608 - placeholders


def _check(plan: SearchPlan, condition: _Condition, *, is_by_creation: bool, look_up: str) -> str:
    """Return a condition on `e.number`, which is not made part of a join.

    A scalar sub-select is one look-up for each experiment, until the page is full. That takes long
    if those with the word are the last in the order, which is likely only where the order is not
    that of the words: rows that are not too many become a hash table then.
    """
    low, high = map(plan.add_parameter, condition.word_range)
    words = f"workspace_id = :workspace_id AND word >= {low} AND word < {high}"
    is_hashed = condition.rows < HASHED_ROWS_MAX and not is_by_creation
    return (_HASH if is_hashed else look_up).format(words=words)
