"""Names of experiments: what one may not be, and the one of a log directory."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path
from typing import Final

from tbupload.remote_files import is_remote

NAME_CHARS_MAX: Final = 200
"""Characters of a name; a server accepts no more."""

_FORBIDDEN: Final = frozenset(["Cc", "Zl", "Zp"])
"""Categories of Unicode: control characters, and separators of lines and paragraphs."""

_PARTS_MAX: Final = 4
"""Directories in a name, at most."""

_COMMON: Final = re.compile(
    r"(tb_?|tensorboard_?|lightning_?|event_?)?(runs?|logs?|log_?dirs?|events?|summar(y|ies))"
    r"|tb|tensorboard|fit|train(ing)?|out(put)?s?|results?"
    r"|version_\d+|[\d_:.T-]+"  # of Lightning, and times
    r"|[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d.*",  # torch.utils.tensorboard: MonDD_HH-MM-SS_host
)
"""Names of directories that say nothing of what is trained there."""


def explain_name(name: str) -> str | None:
    """Return why a text cannot be the name of an experiment; None if it can."""
    for character in name:
        if unicodedata.category(character) in _FORBIDDEN:
            return f"a name is one line without control characters; it has {character!r}"
    return None


def name_of_logdir(logdir: Path, *, is_private: bool) -> str:
    """Return the name of an upload that was given none: that of its log directory.

    Where that is a common one, such as `runs`, the name of the directory above is put before it;
    if `is_private`, nothing but the directory's own name is used. Empty if there is none.
    """
    if is_remote(str(logdir)):
        parts = re.split("/+", str(logdir).partition("://")[2])
    else:
        parts = list(Path(os.path.abspath(logdir)).parts[1:])  # noqa: PTH100 - without ".."
    parts = [part for part in parts if part]
    count = 1
    while not is_private and count < min(len(parts), _PARTS_MAX):
        if not _COMMON.fullmatch(parts[-count]):
            break
        count += 1
    return _clean("/".join(parts[-count:]))


def _clean(name: str) -> str:
    """Return a name without what the server refuses, within its limit."""
    encodable = name.encode("utf-8", "replace").decode()
    return "".join(
        "?" if unicodedata.category(character) in _FORBIDDEN else character
        for character in encodable
    )[:NAME_CHARS_MAX]
