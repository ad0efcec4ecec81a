"""Tells the names in many rows apart, byte by byte, and numbers them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tbupload.events.decode.record_rows import RecordMatrix, Words
from tbupload.events.decode.record_walk import Indices

_BYTE_BITS: Final = 8

_TABLE_ROWS: Final = 16
"""Keys are looked up in a table of up to so many places a row; with more, sorting them costs less."""

_TABLE_MIN: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class RowLabels:
    """Each row's number, counted from 0, and the first row of each number."""

    labels: Indices
    firsts: Indices


def label_rows(rows: RecordMatrix, bits: Words) -> RowLabels:
    """Numbers the rows, at least one, by what they hold in these bits of their first words."""
    mask = bits & rows.difference[: len(bits)]
    columns = mask.view(np.uint8).nonzero()[0].tolist()
    labels, count = np.zeros(len(rows.words), np.intp), 1
    # Mostly the first byte that differs, or few, tell all names apart: then nothing else differs in rows of one number.
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
    """Numbers, from 0 on and in their order, for keys below `size`; and how many there are."""
    if size == 1:
        return keys, 1
    if size > max(_TABLE_MIN, _TABLE_ROWS * len(keys)):
        found, labels = np.unique(keys, return_inverse=True)
        return labels, len(found)
    is_there = np.zeros(size, np.bool_)
    is_there[keys] = True
    found = is_there.nonzero()[0]
    numbers = np.empty(size, np.intp)
    numbers[found] = np.arange(len(found))
    return numbers.take(keys), len(found)


def first_rows(labels: Indices, count: int) -> Indices:
    """The first row of each number below `count`, all of which occur."""
    if count == 1:
        return np.zeros(1, np.intp)
    firsts = np.empty(count, np.intp)
    firsts[labels[::-1]] = np.arange(
        len(labels) - 1, -1, -1
    )  # of several rows of a number the last one stays
    return firsts


def _are_labels_exact(words: Words, mask: Words, labels: Indices, firsts: Indices) -> bool:
    """Whether all rows of one number have the same bits in this mask."""
    for word in mask.nonzero()[0].tolist():
        column = words[:, word] & mask[word]
        if (column[firsts][labels] != column).any():
            return False
    return True
