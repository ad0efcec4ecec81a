"""Tells a person on stderr how an export goes: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Final, NoReturn

from tqdm import tqdm

from tbupload.console.progress import LINE_SECONDS, ConsoleProgress
from tbupload.console.terminal import escape
from tbupload.console.texts import size_text

REDRAW_SECONDS: Final = 0.2


class ExportProgress:
    """Counts the points and bytes that have come, of jobs that are done and of the one under way."""

    def __init__(self, progress: ConsoleProgress, title: str) -> None:
        self._progress = progress
        self._title = title
        self._total = self._done = self._in_progress = self._bytes = 0
        self._began = self._shown_at = time.monotonic()
        self._bar: tqdm[NoReturn] | None = None

    def begin(self, total_points: int) -> None:
        """So many points are to come, or are there already."""
        self._total = total_points
        self._began = self._shown_at = time.monotonic()
        if self._progress.is_live:
            form = "{percentage:3.0f}%|{bar}| {desc}"
            self._bar = tqdm(
                total=max(1, total_points), bar_format=form, file=sys.stderr, leave=False
            )

    def add_bytes(self, size: int) -> None:
        """So many bytes of a table."""
        self._bytes += size
        self._show()

    def add_points(self, points: int, _series: int) -> None:
        """So many points of the job under way."""
        self._in_progress += points
        self._show()

    def job_done(self, points: int) -> None:
        """A job of so many points is there."""
        self._done += points
        self._in_progress = 0
        self._show()

    def job_failed(self) -> None:
        """The job under way was broken off."""
        self._in_progress = 0

    def warn(self, message: str) -> None:
        """Something a person has to know."""
        self._progress.warn(message)

    def close(self) -> None:
        """No more is shown."""
        if self._bar is not None:
            self._bar.close()

    def _show(self) -> None:
        now = time.monotonic()
        if not self._progress.shows_info or now - self._shown_at < (
            REDRAW_SECONDS if self._bar else LINE_SECONDS
        ):
            return
        self._shown_at = now
        points = self._done + self._in_progress
        parts = [f"{self._title}: {points:,} of {self._total:,} points"]
        parts += [size_text(self._bytes)] if self._bytes else []
        parts.append(f"{points / max(now - self._began, 1e-9):,.0f} points/s")
        if self._bar is None:
            self._progress.info(", ".join(parts))
            return
        self._bar.n = min(points, self._total)
        self._bar.set_description_str(escape(", ".join(parts)))
