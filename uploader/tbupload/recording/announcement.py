"""Say what uploads record: once on each machine, and again when they record something else.

A file beside the config file has what was already said.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from tbupload.config import config_path, replace_file
from tbupload.errors import UsageError

FILE_BYTES_MAX: Final = 64 << 10
"""Size above which the file is not read: it was not written here."""

_MACHINE: Final = ("host", "user", "directory", "command without secrets", "git commit")
_ENVIRONMENT: Final = ("Python version", "packages")
_HARDWARE: Final = ("platform", "CPUs", "GPUs")


def announce(say: Callable[[str], None], *, is_script: bool, is_training: bool) -> None:
    """Call `say` with a sentence on what is recorded, before anything is sent.

    Nothing is said if this machine was told of all of it before. Where that cannot be kept, as
    without a home directory, it is said each time.
    """
    recorded = {*_fields(is_script=is_script), _times(is_training=is_training)}
    path = _find_path(os.environ)
    told = set() if path is None else _read(path)
    if recorded <= told:
        return
    say(sentence(is_script=is_script, is_training=is_training))
    if path is not None:
        with suppress(OSError):
            replace_file(path, [json.dumps(sorted(told | recorded)), "\n"])


def sentence(*, is_script: bool, is_training: bool) -> str:
    """Return what is recorded, and how to switch that off, in a line."""
    fields = ", ".join(_fields(is_script=is_script))
    option = "no_origin=True" if is_script else "--no-origin"
    return (
        f"this upload records where it comes from ({fields}), and {_times(is_training=is_training)}"
        f"; {option}, TBHUB_NO_ORIGIN=1, or no_origin = true in the config file records nothing. "
        "This is said once on this machine"
    )


def _times(*, is_training: bool) -> str:
    return f"start, end and status of the {'training' if is_training else 'upload'}"


def _fields(*, is_script: bool) -> tuple[str, ...]:
    return (*_MACHINE, *(_ENVIRONMENT if is_script else ()), *_HARDWARE)


def _find_path(environment: Mapping[str, str]) -> Path | None:
    with suppress(UsageError):
        return config_path(environment).with_name("announced.json")
    return None


def _read(path: Path) -> set[str]:
    """Return what was said before; nothing if the file is missing or damaged."""
    with suppress(OSError, ValueError, RecursionError):
        with path.open("rb") as file:
            content = json.loads(file.read(FILE_BYTES_MAX))
        if isinstance(content, list) and all(isinstance(each, str) for each in content):
            return set(content)
    return set()
