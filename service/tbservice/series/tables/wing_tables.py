"""Tables of the wings that have many rows of an experiment, by tag: each wing registers its own.

The core deletes their rows with an experiment, and no tag that they still refer to, without knowing
the wing. All lead their key with `experiment_id` and have a column `tag_id`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_TABLES: Final[list[str]] = []


def register(table: str) -> None:
    """Add a table; once per process for each one."""
    if table not in _TABLES:
        _TABLES.append(table)


def list_tables() -> Sequence[str]:
    """Return the registered tables."""
    return tuple(_TABLES)
