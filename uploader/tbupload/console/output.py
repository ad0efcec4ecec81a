"""Results on stdout, and messages on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tbupload.console.terminal import write_json, write_line


def print_line(text: str) -> None:
    """Print a result on stdout, flushed: a reader of the pipe gets it before the command ends."""
    write_line(sys.stdout, text)


def print_json(content: dict[str, Any]) -> None:
    """Print a result on stdout as one line of JSON."""
    write_json(sys.stdout, content)


def print_message(text: str, *, end: str = "\n") -> None:
    """Print a sentence on stderr."""
    write_line(sys.stderr, text, end=end)


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """Discard stdout if its reader has gone while the block writes to it: the upload continues."""
    try:
        yield
    except BrokenPipeError:
        discard_stdout()


def discard_stdout() -> None:
    """Redirect stdout to the null device: flushing it at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
