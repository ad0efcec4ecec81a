"""Divide a sequence into groups of bounded weight."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_Item = TypeVar("_Item")


def group_by_weight(
    items: Iterable[_Item],
    weigh: Callable[[_Item], int],
    weight_max: int,
    items_max: int = sys.maxsize,
) -> Iterator[list[_Item]]:
    """Yield consecutive items in groups of at most this weight, and of at most so many items.

    A heavier item is a group of its own.
    """
    group: list[_Item] = []
    total = 0
    for item in items:
        weight = weigh(item)
        if group and (total + weight > weight_max or len(group) >= items_max):
            yield group
            group, total = [], 0
        group.append(item)
        total += weight
    if group:
        yield group
