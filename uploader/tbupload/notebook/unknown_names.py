"""Warnings about names of runs and tags that an experiment does not have."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

from tbupload.errors import ServerError

NAMES_SHOWN: Final = 3
"""Names that one warning suggests, at most."""

NAMES_COMPARED: Final = 10_000
"""Names that are compared with an unknown one, at most: comparing takes long."""

CALLER_LEVEL: Final = 4
"""How far above `warn_of_unknown` the caller's own code is: `scalars` and such are between."""


def warn_of_unknown(
    selection: Mapping[str, Sequence[str]],
    received: Mapping[str, Collection[str]],
    read_names: Callable[[], Mapping[str, Sequence[str]]],
) -> None:
    """Warn of each name that was asked for and that the experiment does not have.

    Args:
        selection: The names that were asked for, by "run" and "tag".
        received: Names that were answered. If they are all of them, nothing is read.
        read_names: Reads the tags of all runs.
    """
    missing = {
        kind: [name for name in names if name not in received[kind]]
        for kind, names in selection.items()
    }
    if not any(missing.values()):
        return
    with suppress(ServerError):  # the data was read: without advice, it is an answer as well
        tags = read_names()
        known = {"run": list(tags), "tag": sorted({tag for each in tags.values() for tag in each})}
        for kind, names in missing.items():
            for name in names:
                if name not in known[kind]:
                    warnings.warn(_advice(kind, name, known[kind]), stacklevel=CALLER_LEVEL)


def _advice(kind: str, name: str, known: Sequence[str]) -> str:
    text = f"the experiment has no {kind} {name!r}"
    if not known:
        return f"{text}: it has no {kind}s at all"
    folded, compared = name.casefold(), known[:NAMES_COMPARED]
    near = [each for each in compared if f"/{each}".casefold().endswith(f"/{folded}")]
    near = near or difflib.get_close_matches(name, compared, n=NAMES_SHOWN)
    if near:
        return f"{text}: did you mean {' or '.join(map(repr, near[:NAMES_SHOWN]))}?"
    more = ", …" if len(known) > NAMES_SHOWN else ""
    return f"{text}: it has {', '.join(map(repr, known[:NAMES_SHOWN]))}{more}"
