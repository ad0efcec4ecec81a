"""Records of one length as rows of a matrix of 64-bit words: what they have in common is found eight bytes a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tbupload.events import linear_checksum
from tbupload.events.decode.record_walk import Buffer, Indices
from tbupload.events.linear_checksum import Bytes
from tbupload.events.tf_record import FOOTER_BYTES

WORD_BYTES: Final = 8

PADDING_BYTES: Final = WORD_BYTES
"""How much longer than its records a buffer has to be: the last row is filled up to whole words with what follows."""

_BLOCK_ROWS: Final = 64
"""Rows that are taken for one long row while words are combined, as numpy is slow with short ones."""

Words = npt.NDArray[np.uint64]


def new_buffer(size: int) -> memoryview:
    """Room for `size` bytes of records, and `PADDING_BYTES` after them; nobody has written to it yet."""
    return np.empty(size + PADDING_BYTES, np.uint8).data


@dataclass(frozen=True)
class RecordMatrix:
    """Payloads of `length` bytes, one a row, in file order, and the record each one is.

    In `words`, little-endian, a row goes on with its record's checksum, and ends with bytes that mean nothing.
    `difference` has the bits of a payload in which any two rows may differ, in as many words.
    """

    words: Words
    length: int
    records: Indices
    difference: Words

    @cached_property
    def as_bytes(self) -> Bytes:
        """The same as a matrix of bytes."""
        return self.words.view(np.uint8)

    def payload(self, row: int) -> bytes:
        """The payload in a row."""
        return bytes(self.words[row].tobytes()[: self.length])

    def column(self, start: int, dtype: str) -> npt.NDArray[Any]:
        """The numbers of this type that begin at byte `start` of each row."""
        shape, strides = (len(self.words),), (self.words.strides[0],)
        return np.ndarray(shape, dtype, self.words, start, strides).copy()

    def select(self, chosen: npt.NDArray[np.bool_]) -> RecordMatrix:
        """The chosen rows, at least one; without a copy when they are neighbours."""
        count, first = int(np.count_nonzero(chosen)), int(np.argmax(chosen))
        if count == len(chosen):
            return self
        if chosen[first : first + count].all():
            part = slice(first, first + count)
            words, records = self.words[part], self.records[part]
        else:
            rows = chosen.nonzero()[0]
            words, records = self.words.take(rows, axis=0), self.records.take(rows)
        return RecordMatrix(words, self.length, records, self.difference & differing_bits(words))


def gather_payloads(buffer: Buffer, starts: Indices, length: int, records: Indices) -> RecordMatrix:
    """The payloads of `length` bytes that start at these bytes of a buffer with `PADDING_BYTES` after the last."""
    count = -(-(length + FOOTER_BYTES) // WORD_BYTES)
    dtype = np.dtype((np.void, count * WORD_BYTES))
    everywhere: npt.NDArray[Any] = np.ndarray(
        (len(buffer) - dtype.itemsize + 1,), dtype, buffer, strides=(1,)
    )
    words = everywhere[starts].view("<u8").reshape(-1, count)
    difference = differing_bits(words) & byte_mask(count, [slice(0, length)])
    return RecordMatrix(words, length, records, difference)


def match_checksums(rows: RecordMatrix) -> npt.NDArray[np.bool_]:
    """Which rows have a payload that matches its checksum."""
    columns = rows.difference.view(np.uint8).nonzero()[0]
    sums = linear_checksum.checksums(rows.as_bytes[:, : rows.length], columns)
    return np.asarray(linear_checksum.mask(sums) == rows.column(rows.length, "<u4"))


def byte_mask(word_count: int, spans: list[slice]) -> Words:
    """Words of ones for the bytes in these spans, and zeros for others."""
    mask = np.zeros(word_count * WORD_BYTES, np.uint8)
    for span in spans:
        mask[span] = 0xFF
    return mask.view("<u8")


def differing_bits(words: Words) -> Words:
    """The bits of each column of an (n, count) matrix that are not the same in all rows."""
    return (_reduce(np.bitwise_or, words) & ~_reduce(np.bitwise_and, words)).astype(
        "<u8", copy=False
    )


def _reduce(combine: np.ufunc, words: Words) -> Words:
    """All rows combined; most of them by blocks."""
    count, block_count = words.shape[1], len(words) // _BLOCK_ROWS
    if not block_count or not words.flags.c_contiguous:
        return np.asarray(combine.reduce(words, axis=0))
    blocks = words[: block_count * _BLOCK_ROWS].reshape(block_count, _BLOCK_ROWS * count)
    first = combine.reduce(combine.reduce(blocks, axis=0).reshape(_BLOCK_ROWS, count), axis=0)
    rest = words[block_count * _BLOCK_ROWS :]
    return np.asarray(combine(first, combine.reduce(rest, axis=0)) if len(rest) else first)
