"""Session that a run belongs to: the nearest directory above it, or itself, with a session."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

HPARAMS_LEVEL_ITEMS_MAX: Final = 100
"""Levels of directories between a run and the session that it belongs to."""

ROOT_RUNS: Final = (".", "")
"""Names of the run of files directly in the log directory: all other runs are below it."""


def find_root(sessions: Container[str]) -> str | None:
    """Return the session that is the root run; None if the root run is no session."""
    return next((run for run in ROOT_RUNS if run in sessions), None)


def find_owner(run: str, sessions: Container[str], root: str | None) -> str | None:
    """Return the session of a run; None if it belongs to none.

    Looks at `HPARAMS_LEVEL_ITEMS_MAX` directories at most: a name may have thousands of slashes.
    """
    path = run
    for _ in range(HPARAMS_LEVEL_ITEMS_MAX):
        if path in sessions:
            return path
        path, slash, _ = path.rpartition("/")
        if not slash:
            return root
    return root


def metric_group(run: str, session: str) -> str:
    """Return the group of the metrics of a run: its path below its session, "" for its own run."""
    if run == session:
        return ""
    return run if session in ROOT_RUNS else run[len(session) + 1 :]


def metric_run(session: str, group: str) -> str:
    """Return the run with the metrics of this group: the reverse of `metric_group`."""
    if not group:
        return session
    return group if session in ROOT_RUNS else f"{session}/{group}"
