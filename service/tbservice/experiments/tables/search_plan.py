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
from tbservice.experiment_values import ExperimentOrder, ExperimentQuery, UploadStatus
from tbservice.experiments.tables import experiment_stars, experiment_words, uploads
from tbservice.experiments.tables.experiment_words import WordRange, beginning, exactly
from tbservice.types.identifiers import UserId, WorkspaceId

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


class _WordCondition(NamedTuple):
    """An experiment must have one of these words.

    `words` is None if they are many; `rows` counts their rows, up to a maximum.
    """

    word_range: WordRange
    words: Sequence[str] | None
    rows: int

    def select(self, plan: SearchPlan) -> str:
        """Return a query for the numbers of the experiments that meet the condition."""
        low, high = map(plan.add_parameter, self.word_range)
        return f"""
            SELECT DISTINCT number FROM experiment_words
            WHERE workspace_id = :workspace_id AND word >= {low} AND word < {high} {{after}}
        """  # noqa: S608 - placeholders

    def check(self, plan: SearchPlan, *, is_by_creation: bool, look_up: str) -> str:
        """Return a condition on `e.number`, which is not made part of a join.

        A scalar sub-select is one look-up for each experiment, until the page is full. That takes
        long if those with the word are the last in the order, which is likely only where the order
        is not that of the words: rows that are not too many become a hash table then.
        """
        low, high = map(plan.add_parameter, self.word_range)
        words = f"workspace_id = :workspace_id AND word >= {low} AND word < {high}"
        is_hashed = self.rows < HASHED_ROWS_MAX and not is_by_creation
        return (_HASH if is_hashed else look_up).format(words=words)


class _StatusCondition(NamedTuple):
    """An experiment must have one of these statuses.

    It may be considered because of an upload that is not the one that counts: so the condition is
    always checked as well. `rows` counts such uploads, up to a maximum.
    """

    statuses: Sequence[UploadStatus]
    rows: int
    words: None = None

    def select(self, _plan: SearchPlan) -> str:
        """Return a query for the numbers of experiments that may meet the condition."""
        return f"""
            SELECT number FROM experiments WHERE workspace_id = :workspace_id
                AND experiment_id IN ({uploads.select_experiments(self.statuses)}) {{after}}
        """  # noqa: S608 - constants


class _StarCondition(NamedTuple):
    """A person must have starred an experiment. Few: `rows` is not counted."""

    user_id: UserId
    rows: int = 1
    words: None = None

    def select(self, plan: SearchPlan) -> str:
        """Return a query for the numbers of the experiments that meet the condition."""
        starred = experiment_stars.SELECT.format(user_id=plan.add_parameter(self.user_id))
        return f"""
            SELECT number FROM experiments WHERE workspace_id = :workspace_id
                AND experiment_id IN ({starred}) {{after}}
        """  # noqa: S608 - constants

    def check(self, plan: SearchPlan, **_how: object) -> str:
        """Return a condition on `e.number`."""
        return f"(e.number IN ({self.select(plan).format(after='')})) IS TRUE"


_Condition = _WordCondition | _StatusCondition | _StarCondition


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
    conditions = _list_conditions(db, workspace_id, query)
    if conditions is None:
        return None

    plan = SearchPlan()
    used = _choose(conditions, query)
    words = used[0].words if len(used) == 1 else None
    if is_read_by_number(query) and words is not None:
        plan.numbers = _merge(plan, words, query.is_descending)
    elif used:
        plan.numbers = " INTERSECT ".join(each.select(plan) for each in used)
    _add_checks(db, plan, query, [each for each in conditions if each not in used])
    return plan


def _choose(conditions: list[_Condition], query: ExperimentQuery) -> list[_Condition]:
    """Return the conditions whose rows are read, of those of a query."""
    used = [condition for condition in conditions if condition.rows < RARE_ROWS_MAX]
    if is_read_by_number(query) and len(used) <= 1:
        merged: list[_Condition] = [each for each in used or conditions if each.words is not None]
        used = merged[:1] or used
    elif not is_read_by_number(query) and all(each.rows >= SORTED_ROWS_MAX for each in used):
        used = []
    if query.is_archived and not used:  # no index has them in another order
        used = [min(conditions, key=lambda each: each.rows)]
    return used


def _add_checks(
    db: Connection, plan: SearchPlan, query: ExperimentQuery, unused: list[_Condition]
) -> None:
    """Let the plan check the conditions whose rows are not read, and the status in any case."""
    is_by_creation = is_read_by_number(query)
    is_hashed = False
    for condition in unused:
        if isinstance(condition, _StatusCondition):
            is_hashed = condition.rows < RARE_ROWS_MAX
        else:
            check = condition.check(plan, is_by_creation=is_by_creation, look_up=_LOOK_UP.of(db))
            plan.checks.append(check)
    if query.statuses:
        plan.checks.append(_check_status(query.statuses, is_hashed=is_hashed))
    if query.has_no_status:
        plan.checks.append(
            "NOT EXISTS (SELECT FROM uploads AS u WHERE u.experiment_id = e.experiment_id)"
        )


def is_read_by_number(query: ExperimentQuery) -> bool:
    """Return whether rows of words are read in the order of the list, that of creation.

    A status is checked by the experiment's id, which these rows do not have.
    """
    has_status = query.statuses or query.has_no_status
    return query.order is ExperimentOrder.CREATED and not has_status


def _list_conditions(
    db: Connection, workspace_id: WorkspaceId, query: ExperimentQuery
) -> list[_Condition] | None:
    """Return the conditions of a query; None if no experiment meets one of them.

    Rows are counted only if the number matters: 50,000 take about 10 ms.
    """
    is_by_creation = is_read_by_number(query)
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

    conditions: list[_Condition] = []
    if query.starred_by is not None:
        if not experiment_stars.exist(db):
            return None
        conditions.append(_StarCondition(query.starred_by))
    if query.statuses:
        rows = uploads.count_rows(db, workspace_id, query.statuses, RARE_ROWS_MAX)
        if not rows:
            return None
        conditions.append(_StatusCondition(query.statuses, rows))
    for word_range, merged in ranges:
        rows = 1
        if not (is_by_creation and len(ranges) == 1 and merged is not None):
            rows = experiment_words.count_rows(db, workspace_id, word_range, rows_max)
        if not rows:
            return None
        conditions.append(_WordCondition(word_range, merged, rows))
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


def _check_status(statuses: Sequence[UploadStatus], *, is_hashed: bool) -> str:
    """Return a condition on `e.experiment_id`; with a hash table, most others are no look-up."""
    names = ", ".join(f"'{status.value}'" for status in statuses)
    condition = f"{uploads.select_status('e.experiment_id')} IN ({names})"
    if not is_hashed:
        # In a CASE, PostgreSQL expects half of the experiments to have it, not one in 200, for
        # which it would check all of them rather than read the index of the order.
        return f"CASE WHEN {condition} THEN true ELSE false END"
    likely = f"e.experiment_id IN ({uploads.select_experiments(statuses)})"
    return f"CASE WHEN {likely} THEN {condition} ELSE false END"
