"""Where a run's files go: a directory named as the run, if that is a place within ours, and another one otherwise.

Characters that could steer a terminal are percent-encoded, as "a%0Ab". No two runs get the same directory.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import Final

from tbupload.console.terminal import is_harmless

MANIFEST: Final = "tbhub-export.json"

NAME_BYTES_MAX: Final = 200
"""Bytes of one directory's name, under what any file system takes."""

PATH_BYTES_MAX: Final = 1_000
"""Bytes of a run's name, under what any system takes as a path."""

_LATEST: Final = 10**12
"""Seconds since the epoch: a wall time may be any number, and a file's name has to be short."""

_RESERVED_NAMES: Final = re.compile(
    r"events\.out\.tfevents\..*\.tbhub-[0-9a-f]{16}|\.?tbhub-export.*", re.IGNORECASE
)
"""The files that an export writes: no directory may have their names."""

_NOT_ON_WINDOWS: Final = re.compile(
    r'[<>:"|?*\\\x00-\x1f]|[. ]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE
)

_LOOKS_ENCODED: Final = re.compile("%[0-9A-Fa-f]{2}")

_DIGEST: Final = re.compile("%[0-9a-f]{16}")


def run_directory(run: str) -> str:
    """The run's directory relative to the logdir, "" for the logdir itself.

    Each part is the run's own, or that percent-encoded. A name that would lead out of the logdir, or that no file
    system takes, becomes one of its digest.
    """
    if run == ".":
        return ""
    parts = [_percent_encode(part) for part in run.split("/")]
    directory = "/".join(parts)
    is_fit = all(map(_is_safe, parts)) and len(os.fsencode(directory)) <= PATH_BYTES_MAX
    return directory if is_fit and not _DIGEST.fullmatch(directory) else f"%{_digest(run)}"


def is_renamed(run: str) -> bool:
    """Whether a reader of the run's directory takes another name for the run's."""
    return (run_directory(run) or ".") != run


def event_file_name(run: str, start_time: float) -> str:
    """The name of the run's event file: of no other run, wherever names are taken for the same."""
    return f"events.out.tfevents.{int(min(max(start_time, 0), _LATEST)):010d}.tbhub-{_digest(run)}"


def _is_safe(part: str) -> bool:
    if (
        part in {"", ".", ".."}
        or "\0" in part
        or _RESERVED_NAMES.fullmatch(part)
        or len(os.fsencode(part)) > NAME_BYTES_MAX
    ):
        return False
    return os.sep == "/" or _NOT_ON_WINDOWS.search(part) is None


def _percent_encode(part: str) -> str:
    """The part with harmful characters percent-encoded; "%" too in a part that could be taken for an encoded one.

    So every part has a name of its own, and `urllib.parse.unquote` gives back those that look encoded.
    """
    looks_encoded = _LOOKS_ENCODED.search(part) is not None
    if part.isprintable() and not looks_encoded:
        return part
    has_harm = looks_encoded or not all(map(is_harmless, part))
    return "".join(
        _percent_escape(char) if not is_harmless(char) or (has_harm and char == "%") else char
        for char in part
    )


def _percent_escape(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


def _digest(run: str) -> str:
    return hashlib.sha256(run.encode("utf-8", "surrogatepass")).hexdigest()[:16]
