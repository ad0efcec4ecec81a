"""Tells a person on stderr how an upload goes: live lines on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn, TextIO

from tbupload.console.terminal import escape, write_line
from tbupload.console.texts import PROBLEMS_SHOWN, amounts_text, count_text, size_text, skipped_text
from tbupload.console.throughput import Rates, ThroughputMeter, duration_text

if TYPE_CHECKING:
    from tqdm import tqdm

LINE_SECONDS: Final = 30.0
"""Seconds between two plain lines, at least: a log of days has to stay readable."""

REDRAW_SECONDS: Final = 0.2
"""Seconds between two drawings of the live lines, at least."""

BAR_COLUMNS_MIN: Final = 16
"""Columns left to the bar and its percentage before words are left out."""

CTRL_C_COLUMNS: Final = 3
"""Columns left free at the end of a line: the terminal shows a Ctrl-C there, which must not begin another line."""

COLUMNS_UNKNOWN: Final = 80
"""The width of a terminal that does not tell its own."""


@dataclass(frozen=True, slots=True)
class ProgressState:
    """How far an upload is: bytes of event files committed, of how many there are, and what they held.

    `sent_bytes` (of event files) and `points` (scalars, tensors and blobs) are what this upload did itself, without
    what was there when it began; `skipped` counts by reason what it left out. `is_idle`: all that can be sent now is.
    """

    done_bytes: int
    total_bytes: int
    scalars: int
    runs: int
    series: int
    sent_bytes: int = 0
    points: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    is_idle: bool = False

    def time_left(self, rates: Rates) -> str:
        """In words, at the rate of the last seconds; nothing when that cannot be known."""
        if self.is_idle:
            return "up to date"
        left = rates.seconds_for(max(0, self.total_bytes - self.done_bytes))
        return "" if left is None else f"{duration_text(left)} left"


class ConsoleProgress:
    """Plain lines, and no more of them than are worth reading; `verbosity` is -1 (quiet), 0 or 1 (verbose).

    May be used from several threads. A stream that nobody reads any more, or a full disk, is no reason to fail.
    """

    interval_seconds = LINE_SECONDS

    def __init__(self, verbosity: int = 0, stream: TextIO | None = None) -> None:
        self._verbosity = verbosity
        self._stream = sys.stderr if stream is None else stream
        self._lock = threading.Lock()
        self._url: str | None = None
        self._throughput = ThroughputMeter()
        self._shown_at = time.monotonic()
        self._shown: ProgressState | None = None
        self._problems: set[str] = set()

    @property
    def shows_info(self) -> bool:
        """Whether a person wants to hear what is no warning."""
        return self._verbosity >= 0

    @property
    def is_live(self) -> bool:
        """Whether lines stand on the screen that are drawn again and again."""
        return False

    def start(self, url: str | None = None) -> None:
        """From now on points are sent, to be seen at `url`."""
        self._url = url
        self._throughput = ThroughputMeter()
        self._shown_at = time.monotonic() - (self.interval_seconds if self.is_live else 0)

    def warn(self, message: str) -> None:
        """Something a person has to know, even one who asked for quiet."""
        self._write(message)

    def report_problem(self, sentence: str) -> None:
        """What is wrong with a path: said when it is met, and once. After PROBLEMS_SHOWN of them, they are counted."""
        with self._lock:
            if sentence in self._problems or len(self._problems) > PROBLEMS_SHOWN:
                return
            self._problems.add(sentence)
            is_one_too_many = len(self._problems) > PROBLEMS_SHOWN
        self.warn(
            "more paths are in trouble; from here on they are only counted"
            if is_one_too_many
            else sentence
        )

    def has_reported(self, sentence: str) -> bool:
        """Whether this problem was said, in whole."""
        with self._lock:
            return sentence in self._problems and len(self._problems) <= PROBLEMS_SHOWN

    def info(self, message: str) -> None:
        """Something a person wants to know."""
        if self._verbosity >= 0:
            self._write(message)

    def debug(self, message: str) -> None:
        """Something for whoever looks closely."""
        if self._verbosity > 0:
            self._write(message)

    def is_due(self) -> bool:
        """Whether `show` would show anything now: a state takes time to make."""
        return self._verbosity >= 0 and time.monotonic() - self._shown_at >= self.interval_seconds

    def show(self, state: ProgressState) -> None:
        """The upload has come this far."""
        if not self.is_due() or (not self.is_live and state == self._shown):
            return
        self._shown_at, self._shown = time.monotonic(), state
        self._show(state, self._throughput.rates(state.sent_bytes, state.points))

    def close(self) -> None:
        """No more progress will be shown; sentences may still be said."""

    def _show(self, state: ProgressState, rates: Rates) -> None:
        parts = [
            f"{amounts_text(state.done_bytes, state.total_bytes)}, {size_text(rates.bytes_per_second)}/s",
            f"{state.points:,} points ({rates.points_per_second:,.0f}/s)",
            _series_text(state),
            state.time_left(rates),
            skipped_text(state.skipped),
            self._url or "",
        ]
        self._write(", ".join(part for part in parts if part))

    def _write(self, message: str) -> None:
        with self._lock, contextlib.suppress(OSError):
            write_line(self._stream, message)


class LiveProgress(ConsoleProgress):
    """Live lines: a bar with amounts, rates and time left; where to see it; what was skipped. Sentences go above."""

    interval_seconds = REDRAW_SECONDS

    def __init__(self, verbosity: int = 0, stream: TextIO | None = None) -> None:
        from tqdm import tqdm  # noqa: PLC0415 - it takes long to load, and only a terminal needs it

        super().__init__(verbosity, stream)
        tqdm.monitor_interval = 0  # its watching thread has nothing to do here
        self._tqdm = tqdm
        self._lines: list[tqdm[NoReturn]] = []

    @property
    def is_live(self) -> bool:
        """Yes, unless a person asked for quiet."""
        return self.shows_info

    def close(self) -> None:
        """Takes the lines away."""
        for line in reversed(self._lines):
            line.close()
        self._lines = []

    def _show(self, state: ProgressState, rates: Rates) -> None:
        columns = _terminal_columns(self._stream) - CTRL_C_COLUMNS
        below = [
            join_fitting([_series_text(state), escape(self._url or "")], columns),
            _truncated_skipped_text(state, columns),
        ]
        texts = [
            bar_text(state, rates, columns - BAR_COLUMNS_MIN),
            *(text for text in below if text),
        ]
        while len(self._lines) < len(texts):
            self._lines.append(self._make_line(len(self._lines), texts[len(self._lines)], columns))
        texts += [""] * (len(self._lines) - len(texts))
        bar = self._lines[0]
        bar.total = max(state.total_bytes, state.done_bytes, 1)
        bar.n = max(state.done_bytes, int(state.total_bytes == 0))
        for line, text in zip(self._lines, texts, strict=True):
            line.ncols = columns
            line.set_description_str(escape(text), refresh=False)
            line.refresh()

    def _make_line(self, position: int, text: str, columns: int) -> tqdm[NoReturn]:
        form = "{desc}" if position else "{percentage:3.0f}%|{bar}| {desc}"
        return self._tqdm(
            desc=escape(text),
            total=1,
            position=position,
            bar_format=form,
            file=self._stream,
            ncols=columns,
            leave=False,
        )

    def _write(self, message: str) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._tqdm.write(escape(message), file=self._stream)


def make_progress(verbosity: int) -> ConsoleProgress:
    """The kind that suits stderr."""
    return LiveProgress(verbosity) if sys.stderr.isatty() else ConsoleProgress(verbosity)


def bar_text(state: ProgressState, rates: Rates, columns: int) -> str:
    """Amounts, rates and time left, as many of them as have room; the amounts always."""
    amounts = amounts_text(state.done_bytes, state.total_bytes)
    left = state.time_left(rates)
    speed, points = f"{size_text(rates.bytes_per_second)}/s", f"{count_text(state.points)} points"
    points_speed = f"{count_text(rates.points_per_second)}/s"
    for parts in (
        [amounts, speed, f"{points}, {points_speed}", left],
        [amounts, speed, points, left],
        [amounts, speed, left],
        [amounts, left],
    ):
        text = ", ".join(part for part in parts if part)
        if len(text) <= columns:
            return text
    return amounts


def join_fitting(parts: list[str], columns: int) -> str:
    """The parts that fit into one line, the last one first; a part that does not fit is left out, never cut."""
    chosen: list[str] = []
    for part in reversed(parts):
        if part and len("  ".join([part, *chosen])) < columns:
            chosen.insert(0, part)
    return "  ".join(chosen)


def truncate(text: str, columns: int) -> str:
    """The text, or its beginning when the line is too short for it: a line that wraps could not be drawn again."""
    return text if len(text) < columns else f"{text[: max(0, columns - 4)]}..."


def _truncated_skipped_text(state: ProgressState, columns: int) -> str:
    return truncate(escape(skipped_text(state.skipped)), columns)


def _series_text(state: ProgressState) -> str:
    return f"{state.series:,} series in {state.runs:,} runs" if state.series else ""


def _terminal_columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or COLUMNS_UNKNOWN
    except (OSError, ValueError):
        return COLUMNS_UNKNOWN
