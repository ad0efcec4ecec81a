"""Results on stdout, and messages on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tbupload.console.columns import has_colors
from tbupload.console.terminal import escape, write_json, write_line
from tbupload.errors import OutputError


def print_line(text: str, *, is_escaped: bool = False) -> None:
    """Print a result on stdout, flushed: a reader of the pipe gets it before the command ends.

    With `is_escaped`, the text has been escaped already, and may have colors.

    Raises BrokenPipeError without a reader, and OutputError if it cannot be written.
    """
    with _output_errors():
        write_line(sys.stdout, text, is_escaped=is_escaped)


def print_json(content: dict[str, Any]) -> None:
    """Print a result on stdout as one line of JSON; raises as `print_line`."""
    with _output_errors():
        write_json(sys.stdout, content)


def print_result(content: dict[str, Any], text: str, *, is_json: bool) -> None:
    """Print a result on stdout, as JSON or as text; raises as `print_line`."""
    if is_json:
        print_json(content)
    else:
        print_line(text)


def print_bytes(chunks: Iterable[bytes]) -> None:
    """Print a result on stdout as it is; on a terminal as text, with control characters escaped.

    Raises as `print_line`.
    """
    with _output_errors():
        if sys.stdout.isatty():
            for line in b"".join(chunks).decode("utf-8", "replace").splitlines():
                write_line(sys.stdout, line)
            return
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


def print_message(text: str, *, end: str = "\n") -> None:
    """Print a sentence on stderr, if that can be written."""
    with suppress(OSError):
        write_line(sys.stderr, text, end=end)


def print_error(text: str) -> None:
    """Print on stderr why a command has failed, behind the program's name: red on a terminal."""
    name = "\x1b[31mtbupload:\x1b[0m" if has_colors(sys.stderr) else "tbupload:"
    with suppress(OSError):
        write_line(sys.stderr, f"{name} {escape(text)}", is_escaped=True)


def open_missing_streams() -> None:
    """Open the null device in place of each standard stream that was closed by the shell (`>&-`).

    Otherwise the next file or connection would get its number. Writing to stdout still fails, so
    that a command does not end well whose result nobody gets.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123 - for the process
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - the same


@contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_stdout()
        raise OutputError(f"the output cannot be written: {error.strerror}") from error


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """Discard stdout if the block cannot write to it: the upload continues."""
    try:
        yield
    except BrokenPipeError:
        discard_stdout()
    except OutputError as error:
        print_message(f"tbupload: {error}; the upload continues")


def discard_stdout() -> None:
    """Redirect stdout to the null device: flushing it at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
