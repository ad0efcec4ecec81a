"""Origin of an upload: machine, user, command and git commit, and the environment.

It is recorded with the upload unless it is told not to, and listed before: see `announcement`.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tbupload.recording.masking import mask_secrets
from tbupload.recording.script import Script

GIT_SECONDS_MAX: Final = 5.0
"""Seconds that git may take to answer, for example on a slow file system."""

VALUE_CHARS_MAX: Final = 2_000
"""Characters of one value; a server accepts no more."""

COMMAND_BYTES_MAX: Final = 100_000
"""Bytes of another process's command that are read."""


@dataclass(frozen=True)
class Training:
    """The process that writes the files, as far as it is known.

    `script` is the one that called `follow`; `process_id` any other that is watched.
    """

    script: Script | None = None
    process_id: int | None = None

    @property
    def is_known(self) -> bool:
        """Return whether start and end of the training can be told, and not of the upload alone."""
        return self.script is not None or self.process_id is not None


def find_origin(logdir: Path, training: Training = Training()) -> dict[str, str]:
    """Return what can be found at once; GPUs and packages take longer: see `Recorder`.

    Secrets in the command are masked. The state of git is that of the first of these directories
    which is in a repository: the script's, the log directory, the process's.
    """
    script = training.script
    command, directory = _find_command(training)
    origin = {
        "host": socket.gethostname(),
        "user": _find_user(),
        "directory": directory,
        "command": shlex.join(mask_secrets(command)),
        **_find_git(find_directories(logdir, training)),
        "python": f"{platform.python_implementation()} {platform.python_version()}"
        if script is not None and script.path
        else "",
        "platform": platform.platform(),
        "cpus": _count_cpus(),
    }
    return clean_values(origin)


def find_directories(logdir: Path, training: Training) -> list[str]:
    """Return where to look for a repository, in this order; some may be empty."""
    directories = [str(logdir), _find_command(training)[1]]
    return directories if training.script is None else [training.script.directory, *directories]


def clean_values(values: dict[str, str]) -> dict[str, str]:
    """Return the values that are not empty, without what the server refuses, within its limit."""
    cleaned = {name: _clean(value)[:VALUE_CHARS_MAX] for name, value in values.items()}
    return {name: value for name, value in cleaned.items() if value}


def _find_command(training: Training) -> tuple[list[str], str]:
    """Return the command and the working directory of the training; of this process otherwise."""
    argv, directory = list(sys.argv), str(Path.cwd())
    if training.script is not None:
        argv = list(training.script.argv) or [""]
    elif training.process_id is not None:
        process = Path("/proc", str(training.process_id))
        with contextlib.suppress(OSError):  # of another user, or not on Linux
            with (process / "cmdline").open("rb") as file:
                content = file.read(COMMAND_BYTES_MAX)
            return os.fsdecode(content).rstrip("\0").split("\0"), str((process / "cwd").readlink())
        return [], ""
    program = Path(argv[0])  # of `python -m package`, that is a file of the package
    name = program.parent.name if program.name == "__main__.py" else program.name
    return [name, *argv[1:]], directory


def _find_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return ""


def _count_cpus() -> str:
    """Return how many CPUs there are, and of how many this process may use a part."""
    total = os.cpu_count() or 0
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else total
    return str(total) if usable == total else f"{usable} of {total}"


def _find_git(directories: Sequence[str]) -> dict[str, str]:
    """Return commit, branch and whether files were changed; empty outside of a repository."""
    for directory in filter(None, dict.fromkeys(directories)):
        commit = _run_git(directory, "rev-parse", "HEAD")
        if re.fullmatch("[0-9a-f]{40,64}", commit):
            break
    else:
        return {}
    branch = _run_git(directory, "rev-parse", "--abbrev-ref", "HEAD")
    changes = _run_git(directory, "status", "--porcelain", "--untracked-files=no")
    return {
        "git_commit": commit,
        "git_branch": "" if branch == "HEAD" else branch,
        "git_changes": "uncommitted changes" if changes else "",
    }


def _run_git(directory: str, *arguments: str) -> str:
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
