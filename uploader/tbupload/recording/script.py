"""Facts that a script which calls `follow` hands to its uploader by an environment variable.

The uploader runs the same interpreter, but not the script: it learns here how that was called, and
where that looks for packages. Nothing is looked up in the training process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SCRIPT_VARIABLE: Final = "TBHUB_UPLOAD_SCRIPT"

DESCRIPTION_BYTES_MAX: Final = 100_000
"""Size of the variable, in bytes; Linux accepts 128 KiB of one."""


@dataclass(frozen=True)
class Script:
    """A script: its command, the places of its packages, its directory, and when it called."""

    argv: tuple[str, ...]
    path: tuple[str, ...]
    directory: str
    started_at: float


def describe_script() -> str:
    """Return the description of this process for its uploader; it is not longer than it may be."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return _encode(
        [each for each in sys.argv if isinstance(each, str)],
        [each or str(Path.cwd()) for each in sys.path if isinstance(each, str)],
        str(Path(main).absolute().parent) if isinstance(main, str) else "",
    )


def describe_command(command: Sequence[str]) -> str:
    """Return the description of a command that starts now; of its packages, nothing is known."""
    return _encode(list(command), [], str(Path.cwd()))


def _encode(argv: list[str], path: list[str], directory: str) -> str:
    description: dict[str, object] = {
        "argv": argv,
        "path": path,
        "directory": directory,
        "started_at": time.time(),
    }
    for dropped in (None, "argv", "path"):
        if dropped is not None:
            description[dropped] = []
        text = json.dumps(description)
        if len(text) <= DESCRIPTION_BYTES_MAX:
            break
    return text


def read_script(environment: Mapping[str, str]) -> Script | None:
    """Return the script that started this process as its uploader; None if none did."""
    try:
        fields = json.loads(environment.get(SCRIPT_VARIABLE, ""))
        argv, path = (tuple(map(str, fields[name])) for name in ("argv", "path"))
        return Script(argv, path, str(fields["directory"]), float(fields["started_at"]))
    except (ValueError, KeyError, TypeError):
        return None
