"""Parts of newer Pythons that the client's tests use, for Python 3.9, on which they run as well."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timezone
from typing import Final

import google.protobuf

UTC = timezone.utc

OLD_PROTOBUF: Final = int(google.protobuf.__version__.split(".")[0]) < 7
"""Several of these, 6.33 for one, accept lengths of over 5 bytes and make NaNs quiet."""


def zip_strict(*columns: Iterable) -> list[tuple]:
    """`zip(strict=True)` of Python 3.10, as a list."""
    lists = [list(column) for column in columns]
    assert len(set(map(len, lists))) <= 1, "of different lengths"
    return list(zip(*lists))


def pairwise(items: Iterable) -> list[tuple]:
    """`itertools.pairwise` of Python 3.10, as a list."""
    items = list(items)
    return list(zip(items, items[1:]))
