"""Statements of a test and of the requests that it makes."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest


def record_statements(patch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the statements of cursors are added until the patch is undone.

    Those of the test's thread and of routes: threads by which the service erases, compacts or
    counts meanwhile are not the test's.
    """
    execute = psycopg.Cursor.execute
    statements: list[str] = []

    def record(cursor: psycopg.Cursor[Any], statement: Any, *more: Any, **options: Any) -> Any:
        thread = threading.current_thread()
        if thread is threading.main_thread() or thread.name.startswith("AnyIO"):
            statements.append(str(statement))
        return execute(cursor, statement, *more, **options)

    patch.setattr(psycopg.Cursor, "execute", record)
    return statements
