"""Tells a person on stderr how an upload goes: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from typing import Final, NoReturn, TextIO

from tqdm import tqdm

from tbupload.sending.summary import size_text

LINE_SECONDS: Final = 10.0
"""Seconds between two plain lines, at least."""


@dataclass(frozen=True, slots=True)
class State:
    """How far an upload is: bytes of event files committed, of how many there are, and what they held."""

    done_bytes: int
    total_bytes: int
    scalars: int
    runs: int
    series: int

    def __str__(self) -> str:
        return f"{self.scalars:,} scalars, {self.series:,} series, {self.runs:,} runs"


class Progress:
    """Plain lines, and no more of them than are worth reading; `verbosity` is -1 (quiet), 0 or 1 (verbose).

    May be used from several threads.
    """

    def __init__(self, verbosity: int = 0, stream: TextIO | None = None) -> None:
        self._verbosity = verbosity
        self._stream = sys.stderr if stream is None else stream
        self._lock = threading.Lock()
        self._shown_at = time.monotonic()
        self._shown_bytes = -1

    @property
    def is_talkative(self) -> bool:
        """Whether a person wants to hear what is no warning."""
        return self._verbosity >= 0

    def warn(self, message: str) -> None:
        """Something a person has to know, even one who asked for quiet."""
        self._write(message)

    def say(self, message: str) -> None:
        """Something a person wants to know."""
        if self._verbosity >= 0:
            self._write(message)

    def detail(self, message: str) -> None:
        """Something for whoever looks closely."""
        if self._verbosity > 0:
            self._write(message)

    def show(self, state: State) -> None:
        """The upload has come this far."""
        now = time.monotonic()
        if self._verbosity < 0 or now - self._shown_at < LINE_SECONDS or state.done_bytes == self._shown_bytes:
            return
        rate = max(0, state.done_bytes - max(0, self._shown_bytes)) / (now - self._shown_at)
        self._shown_at, self._shown_bytes = now, state.done_bytes
        amounts = f"{size_text(state.done_bytes)} of {size_text(state.total_bytes)}"
        self._write(f"{amounts}, {size_text(rate)}/s, {state}")

    def close(self) -> None:
        """No more progress will be shown; sentences may still be said."""

    def _write(self, message: str) -> None:
        with self._lock:
            self._stream.write(f"{message}\n")
            self._stream.flush()


class Bar(Progress):
    """A bar that moves, with sentences above it; for terminals."""

    def __init__(self, verbosity: int = 0, stream: TextIO | None = None) -> None:
        super().__init__(verbosity, stream)
        tqdm.monitor_interval = 0  # its watching thread has nothing to do here
        self._bar: tqdm[NoReturn] | None = None

    def show(self, state: State) -> None:
        """Moves the bar."""
        if self._bar is None:
            self._bar = tqdm(
                initial=state.done_bytes,
                total=state.total_bytes,
                unit="B",
                unit_scale=True,
                file=self._stream,
                dynamic_ncols=True,
                disable=self._verbosity < 0,
                leave=False,
            )
        self._bar.total = state.total_bytes
        self._bar.set_postfix_str(str(state), refresh=False)
        self._bar.update(state.done_bytes - self._bar.n)

    def close(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _write(self, message: str) -> None:
        with self._lock:
            tqdm.write(message, file=self._stream)


def make_progress(verbosity: int) -> Progress:
    """The kind that suits stderr."""
    return Bar(verbosity) if sys.stderr.isatty() else Progress(verbosity)
