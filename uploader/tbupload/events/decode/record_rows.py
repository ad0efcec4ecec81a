"""Records of one length as rows of a matrix of 64-bit words, to compare eight bytes at a time."""

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
"""Bytes a buffer must have after its records: they fill the last row to complete words."""

_BLOCK_ROWS: Final = 64
"""Rows that are reduced as one long row: numpy's overhead per row dominates for short rows."""

Words = npt.NDArray[np.uint64]


def new_buffer(size: int) -> memoryview:
    """Return uninitialised room for `size` bytes of records, and `PADDING_BYTES` after them."""
    return np.empty(size + PADDING_BYTES, np.uint8).data


@dataclass(frozen=True)
class RecordMatrix:
    """Payloads of one length, one per row, in file order.

    Attributes:
        words: The rows, little-endian. After the payload a row has the record's masked checksum,
            then bytes without meaning up to the end of the word.
        length: Bytes of a payload.
        records: The index of the record in each row.
        difference: The bits of the payload that are not the same in all rows, in as many words.
    """

    words: Words
    length: int
    records: Indices
    difference: Words

    @cached_property
    def as_bytes(self) -> Bytes:
        """Return the rows as a matrix of bytes."""
        return self.words.view(np.uint8)

    def payload(self, row: int) -> bytes:
        """Return the payload in a row."""
        return bytes(self.words[row].tobytes()[: self.length])

    def column(self, start: int, dtype: str) -> npt.NDArray[Any]:
        """Return a copy of the numbers of this type that begin at byte `start` of each row."""
        # At any byte of the row: numpy's own views would have to be aligned to the type.
        shape, strides = (len(self.words),), (self.words.strides[0],)
        return np.ndarray(shape, dtype, self.words, start, strides).copy()

    def select(self, is_selected: npt.NDArray[np.bool_]) -> RecordMatrix:
        """Return the selected rows, at least one; adjacent ones as a view."""
        count, first = int(np.count_nonzero(is_selected)), int(np.argmax(is_selected))
        if count == len(is_selected):
            return self
        # Usually, as other records are at the ends of a chunk: no copy then.
        if is_selected[first : first + count].all():
            adjacent = slice(first, first + count)
            words, records = self.words[adjacent], self.records[adjacent]
        else:
            rows = is_selected.nonzero()[0]
            words, records = self.words.take(rows, axis=0), self.records.take(rows)
        return RecordMatrix(words, self.length, records, self.difference & differing_bits(words))


def gather_payloads(buffer: Buffer, starts: Indices, length: int, records: Indices) -> RecordMatrix:
    """Return the payloads that start at these bytes of the buffer; each has `length` bytes.

    The buffer must have `PADDING_BYTES` after the last record.
    """
    count = -(-(length + FOOTER_BYTES) // WORD_BYTES)
    dtype = np.dtype((np.void, count * WORD_BYTES))
    # A view with one (overlapping) row per byte offset; only the rows at `starts` are copied.
    overlapping: npt.NDArray[Any] = np.ndarray(
        (len(buffer) - dtype.itemsize + 1,), dtype, buffer, strides=(1,)
    )
    words = overlapping[starts].view("<u8").reshape(-1, count)
    difference = differing_bits(words) & byte_mask(count, [slice(0, length)])
    return RecordMatrix(words, length, records, difference)


def match_checksums(rows: RecordMatrix) -> npt.NDArray[np.bool_]:
    """Return for each row whether its payload matches its checksum."""
    columns = rows.difference.view(np.uint8).nonzero()[0]
    # Only columns in which rows differ are looked up; the rest is the same for all (CRC is linear).
    sums = linear_checksum.checksums(rows.as_bytes[:, : rows.length], columns)
    return np.asarray(linear_checksum.mask(sums) == rows.column(rows.length, "<u4"))


def byte_mask(word_count: int, spans: list[slice]) -> Words:
    """Return `word_count` words with ones for the bytes in these spans, zeros elsewhere."""
    mask = np.zeros(word_count * WORD_BYTES, np.uint8)
    for span in spans:
        mask[span] = 0xFF
    return mask.view("<u8")


def differing_bits(words: Words) -> Words:
    """Return for each column of an (n, count) matrix the bits that are not the same in all rows."""
    return (_reduce(np.bitwise_or, words) & ~_reduce(np.bitwise_and, words)).astype(
        "<u8", copy=False
    )


def _reduce(combine: np.ufunc, words: Words) -> Words:
    """Reduce the rows to one, by blocks of `_BLOCK_ROWS`."""
    count, block_count = words.shape[1], len(words) // _BLOCK_ROWS
    if not block_count or not words.flags.c_contiguous:
        return np.asarray(combine.reduce(words, axis=0))
    blocks = words[: block_count * _BLOCK_ROWS].reshape(block_count, _BLOCK_ROWS * count)
    first = combine.reduce(combine.reduce(blocks, axis=0).reshape(_BLOCK_ROWS, count), axis=0)
    rest = words[block_count * _BLOCK_ROWS :]
    return np.asarray(combine(first, combine.reduce(rest, axis=0)) if len(rest) else first)
