"""Names of the directories and event files of exported runs.

A run's directory has the run's name if that is a safe path within the export, otherwise a digest of
it. Control characters are percent-encoded ("a%0Ab"). No two runs have the same directory.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import Final

from tbupload.console.terminal import is_harmless

MANIFEST: Final = "tbhub-export.json"

NAME_BYTES_MAX: Final = 200
"""Bytes of one directory name; file systems allow 255."""

PATH_BYTES_MAX: Final = 1_000
"""Bytes of a run's path; systems allow 1,024 (macOS) or more, including the parent directories."""

_LATEST: Final = 10**12
"""Upper bound of seconds in a file name, since a wall time may be any float64."""

_RESERVED_NAMES: Final = re.compile(
    r"events\.out\.tfevents\..*\.tbhub-[0-9a-f]{16}|\.?tbhub-export.*", re.IGNORECASE
)
"""Names of files that an export writes, and which no directory may have."""

_NOT_ON_WINDOWS: Final = re.compile(
    r'[<>:"|?*\\\x00-\x1f]|[. ]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE
)

_LOOKS_ENCODED: Final = re.compile("%[0-9A-Fa-f]{2}")

_DIGEST: Final = re.compile("%[0-9a-f]{16}")


def run_directory(run: str) -> str:
    """Return the run's directory relative to the log directory, "" for the log directory itself.

    Components with control characters are percent-encoded. A name that would lead out of the log
    directory, or is not valid on every file system, is replaced by its digest.
    """
    if run == ".":
        return ""
    components = [_percent_encode(component) for component in run.split("/")]
    directory = "/".join(components)
    is_valid = all(map(_is_safe, components)) and len(os.fsencode(directory)) <= PATH_BYTES_MAX
    return directory if is_valid and not _DIGEST.fullmatch(directory) else f"%{_digest(run)}"


def is_renamed(run: str) -> bool:
    """Return whether the directory has another name than the run."""
    return (run_directory(run) or ".") != run


def event_file_name(run: str, start_time: float) -> str:
    """Return the name of the run's event file, unique even on case-insensitive file systems."""
    return f"events.out.tfevents.{int(min(max(start_time, 0), _LATEST)):010d}.tbhub-{_digest(run)}"


def _is_safe(component: str) -> bool:
    if (
        component in {"", ".", ".."}
        or "\0" in component
        or _RESERVED_NAMES.fullmatch(component)
        or len(os.fsencode(component)) > NAME_BYTES_MAX
    ):
        return False
    return os.sep == "/" or _NOT_ON_WINDOWS.search(component) is None


def _percent_encode(component: str) -> str:
    """Return the component with control characters percent-encoded.

    "%" is encoded too if something else is, or if the component already looks encoded: so the
    encoding is injective, and `urllib.parse.unquote` reverses it.
    """
    looks_encoded = _LOOKS_ENCODED.search(component) is not None
    if component.isprintable() and not looks_encoded:
        return component

    encodes_percent = looks_encoded or not all(map(is_harmless, component))
    return "".join(
        _percent_escape(char)
        if not is_harmless(char) or (encodes_percent and char == "%")
        else char
        for char in component
    )


def _percent_escape(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


def _digest(run: str) -> str:
    return hashlib.sha256(run.encode("utf-8", "surrogatepass")).hexdigest()[:16]
