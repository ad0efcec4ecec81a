"""The plans of the statements that a program executes on a Citus cluster, read with EXPLAIN."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache

import psycopg
from sqlalchemy import Engine, event

from support.citus import APPLICATION
from tbservice.db.arrays import Array

_TASKS = re.compile(r"Task Count: (\d+)")
_DISTRIBUTED = re.compile(r"Custom Scan \(Citus ([^)]*)\)")
_EXPLAINED = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b")
_OF_TWO_EXPERIMENTS = re.compile(r"\s*INSERT .*\bSELECT %\(snapshot\)s", re.DOTALL)
"""Statements that Citus runs with parameters, but explains with constants alone."""


@dataclass
class Plans:
    """Worst plan of each statement (without runs of spaces), and how many tasks it had.

    0 tasks for a statement that reads no distributed table.
    """

    tasks: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def note(self, statement: str, plan: str) -> None:
        """Add a plan."""
        statement = " ".join(statement.split())
        counts = [int(count) for count in _TASKS.findall(plan)]
        kinds = _DISTRIBUTED.findall(plan)
        # What is fetched to the node of entry, to be sent on, is no single task.
        is_fetched = "INSERT ... SELECT" in kinds or "Distributed Subplan" in plan
        tasks = max(sum(counts), 2 if is_fetched else 0)
        if tasks >= self.tasks.get(statement, -1):
            self.tasks[statement], self.texts[statement] = tasks, plan

    def of_several_tasks(self) -> dict[str, str]:
        """Return the statements with more than one task, and their plans."""
        return {
            statement: self.texts[statement] for statement, count in self.tasks.items() if count > 1
        }


def _explain(connection: psycopg.Connection, statement: str, params) -> str:
    kind = psycopg.Cursor
    if _OF_TWO_EXPERIMENTS.match(statement):
        kind, params = psycopg.ClientCursor, dict(params)
        for name, value in params.items():
            if isinstance(value, Array):
                with psycopg.Cursor(connection) as decode:
                    (params[name],) = decode.execute("SELECT %s", [value]).fetchone()
    with kind(connection) as explain:
        explain.execute(f"EXPLAIN {statement}", params)
        return "\n".join(row[0] for row in explain.fetchall())


def _make_cursor(kind: type, plans: Plans, open_aside: Callable) -> type:
    class Explaining(kind):
        def execute(self, query, params=None, **options):
            statement = query.decode() if isinstance(query, bytes) else query
            is_of_service = self.connection.info.user == APPLICATION
            if is_of_service and isinstance(statement, str) and _EXPLAINED.match(statement):
                plans.note(statement, _explain(open_aside(), statement, params))
            return super().execute(query, params, **options)

    return Explaining


@contextmanager
def explained_statements() -> Iterator[Plans]:
    """Explain what the service executes on connections that are opened in the block, before it."""
    plans = Plans()

    def use_cursors(connection, _record):
        @cache
        def open_aside():
            # In a transaction, Citus explains some statements by executing a part, and rejects
            # others afterwards ("cannot switch local execution status").
            info = connection.info
            return stack.enter_context(
                psycopg.connect(
                    info.dsn, autocommit=True, context=connection, password=info.password
                )
            )

        connection.cursor_factory = _make_cursor(psycopg.Cursor, plans, open_aside)
        connection.server_cursor_factory = _make_cursor(psycopg.ServerCursor, plans, open_aside)

    with ExitStack() as stack:
        event.listen(Engine, "connect", use_cursors)
        try:
            yield plans
        finally:
            event.remove(Engine, "connect", use_cursors)
