"""Where an upload comes from: host, user, command and git commit, which its experiment records.

Sent once, when the experiment is created, and listed before; `--no-origin` sends nothing of it.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tbupload.recording.masking import mask_secrets

GIT_SECONDS_MAX: Final = 5.0
"""Seconds that git may take to answer, for example on a slow file system."""

VALUE_CHARS_MAX: Final = 2_000
"""Characters of one value; a server accepts no more."""

COMMAND_VARIABLE: Final = "TBHUB_UPLOAD_COMMAND"
"""Environment variable with the command to record, as a JSON list: see `tbupload.follow`."""


def find_origin(directory: Path, arguments: Sequence[str] | None = None) -> dict[str, str]:
    """Return host, user, command, and the state of git in a directory, as far as they are known.

    Secrets in the command are masked: see `mask_secrets`.
    """
    command = _find_command() if arguments is None else arguments
    origin = {
        "host": socket.gethostname(),
        "user": _find_user(),
        "directory": str(Path.cwd()),
        "command": shlex.join(mask_secrets(command)),
        **_find_git(directory),
    }
    return {
        name: _clean(value)[:VALUE_CHARS_MAX] for name, value in origin.items() if _clean(value)
    }


def _find_command() -> list[str]:
    """Return the command of this process, or of the script that started it to upload."""
    argv: Any = sys.argv
    with contextlib.suppress(ValueError):
        argv = json.loads(os.environ.get(COMMAND_VARIABLE, ""))
    if not (isinstance(argv, list) and argv and all(isinstance(each, str) for each in argv)):
        argv = sys.argv
    program = Path(argv[0])  # of `python -m package`, that is a file of the package
    return [program.parent.name if program.name == "__main__.py" else program.name, *argv[1:]]


def _find_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return ""


def _find_git(directory: Path) -> dict[str, str]:
    """Return commit, branch and whether files were changed; empty outside of a repository."""
    commit = _run_git(directory, "rev-parse", "HEAD")
    if not re.fullmatch("[0-9a-f]{40,64}", commit):
        return {}
    branch = _run_git(directory, "rev-parse", "--abbrev-ref", "HEAD")
    changes = _run_git(directory, "status", "--porcelain", "--untracked-files=no")
    return {
        "git_commit": commit,
        "git_branch": "" if branch == "HEAD" else branch,
        "git_changes": "uncommitted changes" if changes else "",
    }


def _run_git(directory: Path, *arguments: str) -> str:
    """Return what git prints; "" if it fails, is missing, or takes too long."""
    try:
        ended = subprocess.run(
            # `status` would write the index otherwise, and run a program that the repository names.
            ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *arguments],  # noqa: S607 - the user's git
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=GIT_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return ""
    return ended.stdout.decode("utf-8", "replace").strip() if ended.returncode == 0 else ""


def _clean(value: str) -> str:
    """Return a value without what the server refuses: NUL and halves of characters."""
    return value.replace("\0", "").encode("utf-8", "replace").decode()
