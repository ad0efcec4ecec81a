"""Progress of an export on stderr: a bar on a terminal, otherwise a line at intervals."""

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
    """Counts points and bytes of completed jobs and of the current one, and shows them.

    `unit` says what is counted instead of points.
    """

    def __init__(self, progress: ConsoleProgress, title: str, unit: str = "points") -> None:
        self._progress = progress
        self._title = title
        self._unit = unit
        self._total = self._done = self._in_progress = self._bytes = 0
        self._began = self._shown_at = time.monotonic()
        self._bar: tqdm[NoReturn] | None = None

    def begin(self, total_points: int) -> None:
        """Start the display; `total_points` includes those that are exported already."""
        self._total = total_points
        self._began = self._shown_at = time.monotonic()
        if self._progress.is_live:
            form = "{percentage:3.0f}%|{bar}| {desc}"
            self._bar = tqdm(
                total=max(1, total_points), bar_format=form, file=sys.stderr, leave=False
            )

    def add_bytes(self, size: int) -> None:
        """Add received bytes of a table."""
        self._bytes += size
        self._show()

    def add_points(self, points: int) -> None:
        """Add received points of the current job."""
        self._in_progress += points
        self._show()

    def job_done(self, points: int) -> None:
        """Count the current job as complete, with its points."""
        self._done += points
        self._in_progress = 0
        self._show()

    def job_failed(self) -> None:
        """Discard the points of the current job."""
        self._in_progress = 0

    def info(self, message: str) -> None:
        """Print a message unless quiet."""
        self._progress.info(message)

    def warn(self, message: str) -> None:
        """Print a warning."""
        self._progress.warn(message)

    def close(self) -> None:
        """Remove the display."""
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
        texts = [f"{self._title}: {points:,} of {self._total:,} {self._unit}"]
        texts += [size_text(self._bytes)] if self._bytes else []
        texts.append(f"{points / max(now - self._began, 1e-9):,.0f} {self._unit}/s")
        if self._bar is None:
            self._progress.info(", ".join(texts))
            return

        self._bar.n = min(points, self._total)
        self._bar.set_description_str(escape(", ".join(texts)))
