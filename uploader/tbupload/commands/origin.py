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
from urllib.parse import urlsplit, urlunsplit

GIT_SECONDS_MAX: Final = 5.0
"""Seconds that git may take to answer, for example on a slow file system."""

VALUE_CHARS_MAX: Final = 2_000
"""Characters of one value; a server accepts no more."""

COMMAND_VARIABLE: Final = "TBHUB_UPLOAD_COMMAND"
"""Environment variable with the command to record, as a JSON list: see `tbupload.follow`."""

MASK: Final = "***"

_SECRET_NAME: Final = re.compile(
    "token|secret|passw|pwd|api[-_]?key|access[-_]?key|private|credential|auth|session|signature",
    re.IGNORECASE,
)
_SECRET_VALUE: Final = re.compile(
    r"tb[a-z]_[0-9A-Za-z]{20,}|AKIA[0-9A-Z]{12,}|gh[a-z]_[0-9A-Za-z]{20,}|hf_[0-9A-Za-z]{20,}"
    r"|sk-[0-9A-Za-z_-]{16,}|eyJ[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_.-]+"
)
"""Tokens of this service, AWS, GitHub, Hugging Face and OpenAI, and JSON Web Tokens."""


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


def mask_secrets(arguments: Sequence[str]) -> list[str]:
    """Return a command's arguments without what looks like a secret.

    Those are values of options and variables whose names say so, passwords and queries in URLs, and
    tokens of known forms.
    """
    masked = []
    is_secret = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if is_secret and not argument.startswith("-"):
            masked.append(MASK)
            is_secret = False
            continue
        is_secret = False
        if _SECRET_NAME.search(name) and not _looks_like_path(name):
            if equals:
                masked.append(f"{name}={MASK}")
                continue
            is_secret = argument.startswith("-")
        masked.append(_SECRET_VALUE.sub(MASK, _mask_url(argument)))
    return masked


def _looks_like_path(text: str) -> bool:
    return "/" in text and not text.startswith("-")


def _mask_url(argument: str) -> str:
    """Return an argument without user, password, query and fragment, if it is a URL."""
    if "://" not in argument:
        return argument
    try:
        parts = urlsplit(argument)
    except ValueError:
        return MASK
    host = parts.netloc.rpartition("@")
    netloc = f"{MASK}@{host[2]}" if host[1] else parts.netloc
    query = MASK if parts.query else ""
    return urlunsplit((parts.scheme, netloc, parts.path, query, MASK if parts.fragment else ""))


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
