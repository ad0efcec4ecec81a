"""Number rows by the bytes in which they differ, as a categorical column (pandas: factorize)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tbupload.events.decode.record_rows import RecordMatrix, Words
from tbupload.events.decode.record_walk import Indices

_BYTE_BITS: Final = 8

_TABLE_ENTRIES_PER_KEY: Final = 16
"""A table of up to this many entries per key is cheaper than sorting the keys."""

_TABLE_ENTRIES_MIN: Final = 1 << 12
"""A table of this size is cheaper than sorting however few the keys are."""


@dataclass(frozen=True)
class RowLabels:
    """Each row's label, a number from 0 without gaps, and the first row of each label."""

    labels: Indices
    firsts: Indices


def label_rows(rows: RecordMatrix, bits: Words) -> RowLabels:
    """Label the rows, at least one, so that equal labels mean equal bits.

    Args:
        rows: The rows.
        bits: Mask of the bits to compare, in a row's first words.
    """
    mask = bits & rows.difference[: len(bits)]
    columns = mask.view(np.uint8).nonzero()[0].tolist()
    labels, count = np.zeros(len(rows.words), np.intp), 1

    # The first byte that differs, or a few, usually distinguish all names. So after 1, 2, 4, …
    # bytes, compare all bits at once: when rows of one label have the same bits, this is enough.
    compared = 1
    for number, column in enumerate(columns):
        if number == compared:
            if _are_labels_exact(rows.words, mask, labels, first_rows(labels, count)):
                break
            compared *= 2
        labels, count = renumber(
            labels << _BYTE_BITS | rows.as_bytes[:, column], count << _BYTE_BITS
        )
    return RowLabels(labels, first_rows(labels, count))


def renumber(keys: Indices, size: int) -> tuple[Indices, int]:
    """Number the distinct keys, all below `size`, from 0 in their order.

    Returns:
        The number of each key, and how many numbers there are.
    """
    if size == 1:
        # All keys are 0 already.
        return keys, 1
    if size > max(_TABLE_ENTRIES_MIN, _TABLE_ENTRIES_PER_KEY * len(keys)):
        distinct, labels = np.unique(keys, return_inverse=True)
        return labels, len(distinct)

    # A table in place of `np.unique`, which sorts: the keys are small and many.
    occurs = np.zeros(size, np.bool_)
    occurs[keys] = True
    distinct = occurs.nonzero()[0]
    numbers = np.empty(size, np.intp)
    numbers[distinct] = np.arange(len(distinct))
    return numbers.take(keys), len(distinct)


def first_rows(labels: Indices, count: int) -> Indices:
    """Return the first row of each label below `count`; each label occurs."""
    if count == 1:
        return np.zeros(1, np.intp)
    firsts = np.empty(count, np.intp)
    # Assigned from the last row to the first: the last assignment remains.
    firsts[labels[::-1]] = np.arange(len(labels) - 1, -1, -1)
    return firsts


def _are_labels_exact(words: Words, mask: Words, labels: Indices, firsts: Indices) -> bool:
    """Return whether all rows of one label have the same bits in the mask."""
    for word in mask.nonzero()[0].tolist():
        column = words[:, word] & mask[word]
        if (column[firsts][labels] != column).any():
            return False
    return True
