"""Where a run's files go: a directory named as the run, if that is a place within ours, and another one otherwise."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Final

MANIFEST: Final = "tbhub-export.json"

PART_BYTES_MAX: Final = 200
"""Bytes of one directory's name, under what any file system takes."""

PATH_BYTES_MAX: Final = 1_000
"""Bytes of a run's name, under what any system takes as a path."""

_OURS: Final = re.compile(r"events\.out\.tfevents\..*\.tbhub-[0-9a-f]{16}|\.?tbhub-export.*", re.IGNORECASE)
"""The files that an export writes: no directory may have their names."""

_NOT_ON_WINDOWS: Final = re.compile(r'[<>:"|?*\\\x00-\x1f]|[. ]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE)


def directory_of(run: str) -> str:
    """The run's directory relative to the logdir, "" for the logdir itself.

    A name that would lead out of the logdir, or that no file system takes, becomes one of its digest.
    """
    if run == ".":
        return ""
    return run if all(map(_is_safe, run.split("/"))) and len(os.fsencode(run)) <= PATH_BYTES_MAX else f"%{_digest(run)}"


def is_renamed(run: str) -> bool:
    """Whether a reader of the run's directory takes another name for the run's."""
    return (directory_of(run) or ".") != run


def event_file_of(run: str, start_time: float) -> str:
    """The name of the run's event file: of no other run, wherever names are taken for the same."""
    return f"events.out.tfevents.{max(0, int(start_time)):010d}.tbhub-{_digest(run)}"


def _is_safe(part: str) -> bool:
    if part in {"", ".", ".."} or "\0" in part or _OURS.fullmatch(part) or len(os.fsencode(part)) > PART_BYTES_MAX:
        return False
    return os.sep == "/" or _NOT_ON_WINDOWS.search(part) is None


def _digest(run: str) -> str:
    return hashlib.sha256(run.encode()).hexdigest()[:16]
