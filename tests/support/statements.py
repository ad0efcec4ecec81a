"""Statements of a test and of the requests that it makes."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

BACKGROUND = {"compactor", "eraser", "summaries", "sweeper", "traffic"}
"""Names of the service's own threads that execute statements."""


def record_statements(patch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the statements of cursors are added until the patch is undone.

    Not those of the threads by which the service erases, compacts or counts meanwhile.
    """
    execute = psycopg.Cursor.execute
    statements: list[str] = []

    def record(cursor: psycopg.Cursor[Any], statement: Any, *more: Any, **options: Any) -> Any:
        if threading.current_thread().name not in BACKGROUND:
            statements.append(str(statement))
        return execute(cursor, statement, *more, **options)

    patch.setattr(psycopg.Cursor, "execute", record)
    return statements
