"""Plain values about experiments: what is written about one, and which ones to list."""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExperimentNotes:
    """What is written about an experiment: Markdown, key-value pairs, and where it came from."""

    notes: str
    properties: dict[str, str]
    origin: dict[str, str]


class ExperimentOrder(enum.StrEnum):
    """What a list of experiments is sorted by."""

    CREATED = "created"
    UPDATED = "updated"
    NAME = "name"
    SIZE = "size"


@dataclass(frozen=True, slots=True)
class ExperimentQuery:
    """Which experiments of a workspace to list, and in what order.

    An experiment must have each of `words`, and for each of `prefixes` a word that begins with it.
    """

    words: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    order: ExperimentOrder = ExperimentOrder.CREATED
    is_descending: bool = True
