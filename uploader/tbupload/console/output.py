"""Lines on stdout for programs and people, and on stderr for people."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tbupload.console.terminal import write_json, write_line


def print_line(text: str) -> None:
    """A result, on stdout, at once: whoever reads it through a pipe sees it before the command has ended."""
    write_line(sys.stdout, text)


def print_json(content: dict[str, Any]) -> None:
    """A result as one line of JSON."""
    write_json(sys.stdout, content)


def print_message(text: str, *, end: str = "\n") -> None:
    """A sentence on stderr."""
    write_line(sys.stderr, text, end=end)


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """What is written in the block may find that its reader has gone, which is no reason to stop an upload."""
    try:
        yield
    except BrokenPipeError:
        discard_stdout()


def discard_stdout() -> None:
    """Whoever read stdout has gone: a later flush of it at exit would fail once more, so it goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
