"""Count the fields of a serialized WriteBatch without building its messages.

Protobuf needs 80 bytes of memory for an empty message of 2 bytes, 30 for an empty packed block of
2, and 16 for a tensor dimension of 1: a small body could exhaust memory. Blocks and dimensions are
counted separately, as their limit is higher.
"""

from __future__ import annotations

from typing import Final

from tbservice.errors import MalformedRequest, TooLarge
from tbservice.ingest.field_counts import (
    FIELD_BYTES_MIN,
    CountedFields,
    MalformedMessage,
    count_fields,
)

BATCH_FIELDS_MAX: Final = 500_000
"""Fields in one WriteBatch: those of segments and series, and each tensor, sequence and blob."""

BATCH_ELEMENTS_MAX: Final = 2_000_000
"""Packed blocks and tensor dimensions in one WriteBatch, and the fields beside them."""

_SERIES: Final = CountedFields({4: CountedFields({}), 5: CountedFields({3: CountedFields({})})})
_FIELDS: Final = CountedFields({1: CountedFields({6: _SERIES})})
"""Repeated messages of wire.proto: segments, series, skip reasons, tensors, sequences, blobs."""

_POINTS: Final = CountedFields(
    {3: CountedFields({}), 4: CountedFields({3: CountedFields({}, packed_field=2)}, weight=0)},
    weight=0,
)
_ELEMENTS: Final = CountedFields({1: CountedFields({6: _POINTS}, weight=0)}, weight=0)
"""Repeated values that need more memory than bytes: packed blocks, tensor dimensions."""


def check_counts(body: bytes) -> None:
    """Raise TooLarge if a WriteBatch exceeds `BATCH_FIELDS_MAX` or `BATCH_ELEMENTS_MAX`.

    Raises MalformedRequest for some bodies that are not a WriteBatch; others pass, and fail in
    decoding. Bodies too short to exceed a limit are not read.
    """
    # A field takes two bytes at least, key and length:
    # https://protobuf.dev/programming-guides/encoding/
    if len(body) > FIELD_BYTES_MIN * BATCH_FIELDS_MAX:
        _check(body, _FIELDS, BATCH_FIELDS_MAX, "fields")
    if len(body) > BATCH_ELEMENTS_MAX:
        # An element takes a byte at least: a dimension in a packed repeated field has no key.
        what = "packed blocks and dimensions of tensors"
        _check(body, _ELEMENTS, BATCH_ELEMENTS_MAX, what)


def _check(body: bytes, counted: CountedFields, limit: int, what: str) -> None:
    try:
        count = count_fields(body, counted, limit)
    except MalformedMessage as error:
        raise MalformedRequest(f"the body is not a WriteBatch: {error}") from error
    if count > limit:
        raise TooLarge(f"a batch has at most {limit} {what}; send it in parts")
