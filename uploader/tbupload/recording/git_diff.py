"""The difference between the files of a git repository and its last commit, as it is recorded."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from typing import Final

from tbupload.recording.console_tail import LINE_BYTES_MAX, bound_lines, clean_line
from tbupload.recording.masked_text import mask_lines
from tbupload.recording.origin import GIT_SECONDS_MAX

READ_BYTES_MAX: Final = 64 << 10
"""Bytes of the difference that are read: more than is recorded, since lines are shortened."""

_COMMAND: Final = (
    # Neither the repository nor its configuration names a program that is run: no pager, no
    # fsmonitor, no external diff, no text conversion.
    *("git", "--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false"),
    *("diff", "HEAD", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short"),
)


def find_git_diff(directories: Sequence[str]) -> str:
    """Return the difference of tracked files to HEAD in the first directory that has a repository.

    Secrets are masked; "" if there is no difference, no git, or no answer in GIT_SECONDS_MAX.
    """
    for directory in filter(None, dict.fromkeys(directories)):
        difference = _read_diff(directory)
        if difference is not None:
            lines = difference.rstrip(b"\n").split(b"\n")
            cleaned = [clean_line(line[:LINE_BYTES_MAX]) for line in lines]
            return bound_lines(list(mask_lines(cleaned)), is_tail=False)
    return ""


def _read_diff(directory: str) -> bytes | None:
    """Return the beginning of what git prints; None if it fails."""
    try:
        process = subprocess.Popen(
            _COMMAND,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, ValueError):
        return None
    timer = threading.Timer(GIT_SECONDS_MAX, process.kill)
    timer.start()
    with process:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        content = process.stdout.read(READ_BYTES_MAX)
        if len(content) == READ_BYTES_MAX:  # the rest is not waited for
            process.kill()
    timer.cancel()
    return content if process.returncode == 0 or len(content) == READ_BYTES_MAX else None
