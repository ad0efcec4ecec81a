"""Progress on stderr: live lines on a terminal, otherwise an occasional plain line."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn, TextIO

from tbupload.console.columns import has_colors
from tbupload.console.terminal import escape, write_line
from tbupload.console.texts import (
    PROBLEMS_SHOWN,
    amounts_text,
    count_text,
    counted,
    size_text,
    skipped_text,
)

if TYPE_CHECKING:
    from tqdm import tqdm

LINE_SECONDS: Final = 30.0
"""Shortest time between plain lines: a log of days has to stay readable."""

REDRAW_SECONDS: Final = 0.2
"""Shortest time between updates of the live lines."""

BAR_COLUMNS_MIN: Final = 16
"""Width reserved for the bar and its percentage."""

CTRL_C_COLUMNS: Final = 3
"""Columns left free at the end of a line for the terminal's echo of Ctrl-C, which must not wrap."""

COLUMNS_UNKNOWN: Final = 80
"""Width assumed for a terminal that does not report it."""

_RATE_WINDOW_SECONDS: Final = 10.0
"""Time that rates are measured over, or that since the last sample if it is longer."""
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86400


@dataclass(frozen=True)
class ProgressState:
    """How far an upload is: bytes of event files committed, their total, and their content.

    `sent_bytes` (of event files) and `points` (scalars, tensors and blobs) are what this upload
    sent; `skipped` counts by reason what it left out. With `is_idle` all that can be sent was sent.
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

    def amounts(self) -> str:
        """Return how much of the files is committed, or that there are none."""
        if not self.total_bytes:
            return "no event files yet" if self.is_idle else "looking for event files"
        return amounts_text(self.done_bytes, self.total_bytes)

    def time_left(self, rates: Rates) -> str:
        """Return the time left at these rates in words; "" if it is unknown."""
        if self.is_idle:
            return "up to date" if self.total_bytes else ""
        left = rates.seconds_for(max(0, self.total_bytes - self.done_bytes))
        return "" if left is None else f"{duration_text(left)} left"


class ConsoleProgress:
    """Progress as plain lines; `verbosity` is -1 (quiet), 0 or 1 (verbose).

    May be used from several threads. Errors of the stream (no reader, a full disk) are ignored.
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
        """Return whether messages other than warnings are shown."""
        return self._verbosity >= 0

    @property
    def is_live(self) -> bool:
        """Return whether there are lines that are updated in place."""
        return False

    def start(self, url: str | None = None) -> None:
        """Start measuring rates; `url` is where to see the points."""
        self._url = url
        self._throughput = ThroughputMeter()
        self._shown_at = time.monotonic() - (self.interval_seconds if self.is_live else 0)

    def warn(self, message: str) -> None:
        """Show a message at every verbosity; yellow on a terminal."""
        self._write(message, is_warning=True)

    def report_problem(self, sentence: str) -> None:
        """Show what is wrong with a path, once; after PROBLEMS_SHOWN of them nothing more."""
        with self._lock:
            if sentence in self._problems or len(self._problems) > PROBLEMS_SHOWN:
                return
            self._problems.add(sentence)
            is_over_limit = len(self._problems) > PROBLEMS_SHOWN
        self.warn(
            "more paths have problems; from here on they are only counted"
            if is_over_limit
            else sentence
        )

    def has_reported(self, sentence: str) -> bool:
        """Return whether this problem was shown."""
        with self._lock:
            return sentence in self._problems and len(self._problems) <= PROBLEMS_SHOWN

    def info(self, message: str) -> None:
        """Show a message unless quiet."""
        if self._verbosity >= 0:
            self._write(message)

    def debug(self, message: str) -> None:
        """Show a message if verbose."""
        if self._verbosity > 0:
            self._write(message)

    def is_due(self) -> bool:
        """Return whether `show` would show anything now: a state takes time to make."""
        return self._verbosity >= 0 and time.monotonic() - self._shown_at >= self.interval_seconds

    def show(self, state: ProgressState) -> None:
        """Show the state if it is time to."""
        if not self.is_due() or (not self.is_live and state == self._shown):
            return
        self._shown_at, self._shown = time.monotonic(), state
        self._show(state, self._throughput.rates(state.sent_bytes, state.points))

    def close(self) -> None:
        """End the progress; messages may still be shown."""

    def _show(self, state: ProgressState, rates: Rates) -> None:
        texts = [
            state.amounts(),
            f"{size_text(rates.bytes_per_second)}/s",
            f"{counted(state.points, 'point')} ({rates.points_per_second:,.0f}/s)",
            _series_text(state),
            state.time_left(rates),
            skipped_text(state.skipped),
            self._url or "",
        ]
        self._write(", ".join(text for text in texts if text))

    def _write(self, message: str, *, is_warning: bool = False) -> None:
        with self._lock, contextlib.suppress(OSError):
            text = escape(message).join(self._find_color(is_warning=is_warning))
            write_line(self._stream, text, is_escaped=True)

    def _find_color(self, *, is_warning: bool) -> tuple[str, str]:
        """Return what is written before and after a message for its color."""
        return ("\x1b[33m", "\x1b[0m") if is_warning and has_colors(self._stream) else ("", "")


class LiveProgress(ConsoleProgress):
    """Progress as lines updated in place, with messages above them.

    They are a bar with amounts, rates and time left; the series and the URL; what was skipped.
    """

    interval_seconds = REDRAW_SECONDS

    def __init__(self, verbosity: int = 0, stream: TextIO | None = None) -> None:
        from tqdm import tqdm  # noqa: PLC0415 - slow to import, and needed on terminals only

        super().__init__(verbosity, stream)
        tqdm.monitor_interval = 0  # no monitor thread: each update is explicit here
        self._tqdm = tqdm
        self._lines: list[tqdm[NoReturn]] = []

    @property
    def is_live(self) -> bool:
        """Return whether there are lines updated in place: not if quiet."""
        return self.shows_info

    def close(self) -> None:
        """Remove the lines."""
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
        bar.n = state.done_bytes
        for line, text in zip(self._lines, texts):
            line.ncols = columns
            line.set_description_str(escape(text), refresh=False)
            line.refresh()

    def _make_line(self, position: int, text: str, columns: int) -> tqdm[NoReturn]:
        bar_format = "{desc}" if position else "{percentage:3.0f}%|{bar}| {desc}"
        return self._tqdm(
            desc=escape(text),
            total=1,
            position=position,
            bar_format=bar_format,
            file=self._stream,
            ncols=columns,
            leave=False,
        )

    def _write(self, message: str, *, is_warning: bool = False) -> None:
        with self._lock, contextlib.suppress(OSError):
            color = self._find_color(is_warning=is_warning)
            self._tqdm.write(escape(message).join(color), file=self._stream)


def make_progress(verbosity: int) -> ConsoleProgress:
    """Return live progress if stderr is a terminal, otherwise plain lines."""
    return LiveProgress(verbosity) if sys.stderr.isatty() else ConsoleProgress(verbosity)


def bar_text(state: ProgressState, rates: Rates, columns: int) -> str:
    """Return the amounts and, as far as they fit into `columns`, rates and time left."""
    amounts = state.amounts()
    left = state.time_left(rates)
    speed = f"{size_text(rates.bytes_per_second)}/s"
    points = f"{count_text(state.points)} {'point' if state.points == 1 else 'points'}"
    points_speed = f"{count_text(rates.points_per_second)}/s"
    for texts in (
        [amounts, speed, f"{points}, {points_speed}", left],
        [amounts, speed, points, left],
        [amounts, speed, left],
        [amounts, left],
    ):
        line = ", ".join(text for text in texts if text)
        if len(line) <= columns:
            return line
    return amounts


def join_fitting(texts: list[str], columns: int) -> str:
    """Return the texts that fit into one line, in order; the last ones take precedence."""
    fitting: list[str] = []
    for text in reversed(texts):
        if text and len("  ".join([text, *fitting])) < columns:
            fitting.insert(0, text)
    return "  ".join(fitting)


def truncate(text: str, columns: int) -> str:
    """Return the text, or its beginning: a line that wraps cannot be updated in place."""
    return text if len(text) < columns else f"{text[: max(0, columns - 4)]}..."


def _truncated_skipped_text(state: ProgressState, columns: int) -> str:
    return truncate(escape(skipped_text(state.skipped)), columns)


def _series_text(state: ProgressState) -> str:
    if not state.series:
        return ""
    return f"{counted(state.series, 'series')} in {counted(state.runs, 'run')}"


def _terminal_columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or COLUMNS_UNKNOWN
    except (OSError, ValueError):
        return COLUMNS_UNKNOWN


@dataclass(frozen=True)
class Rates:
    """Bytes of event files and points per second."""

    bytes_per_second: float
    points_per_second: float

    def seconds_for(self, size: int) -> float | None:
        """Return how long `size` bytes take; None at a rate of zero."""
        return size / self.bytes_per_second if self.bytes_per_second > 0 else None


class ThroughputMeter:
    """Measures rates from samples of the last _RATE_WINDOW_SECONDS; starts at zero, now."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, int]] = deque([(time.monotonic(), 0, 0)])

    def rates(self, sent_bytes: int, points: int) -> Rates:
        """Add a sample of what has been sent so far, and return the rates."""
        now = time.monotonic()
        while len(self._samples) > 1 and self._samples[1][0] <= now - _RATE_WINDOW_SECONDS:
            self._samples.popleft()
        then, bytes_then, points_then = self._samples[0]
        self._samples.append((now, sent_bytes, points))
        seconds = max(now - then, 1e-3)
        return Rates((sent_bytes - bytes_then) / seconds, (points - points_then) / seconds)


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units."""
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"
