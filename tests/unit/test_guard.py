"""A batch of millions of tiny messages is refused before any of them is built."""

from __future__ import annotations

import contextvars
import resource
from contextlib import suppress

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from support import batches
from support.hostile_batches import write_batch
from support.wire_format import LENGTH, Choices, key, varint
from tbservice import limits
from tbservice.errors import MalformedRequest, TooLarge
from tbservice.ingest import decode, field_counts
from tbservice.ingest.decode import BATCH_ELEMENTS_MAX, BATCH_FIELDS_MAX
from tbservice.ingest.field_counts import MalformedMessage
from tbservice.waits import Waits, count_in
from tbwire import wire_pb2

SEGMENT, SERIES, SKIPPED, SCALARS, TENSORS, SEQUENCES, ELEMENTS, BLOBS, BLOCKS, SHAPE = (
    1,
    6,
    7,
    3,
    4,
    5,
    3,
    1,
    5,
    2,
)
PLACES = [(SEGMENT,), (SEGMENT, SERIES), (SEGMENT, SKIPPED)]
PLACES += [(SEGMENT, SERIES, TENSORS, ELEMENTS), (SEGMENT, SERIES, SEQUENCES, ELEMENTS)]
PLACES += [(SEGMENT, SERIES, SEQUENCES, ELEMENTS, BLOBS)]


def nested(place, count, padding=0):
    """Return a WriteBatch with `count` empty messages at a place; padding makes each key longer
    than necessary.
    """
    *outer, number = place
    return within(outer, (key(number, LENGTH, padding) + b"\0") * count)


def within(place, content):
    """Return a WriteBatch in which the message at a place has this content."""
    for field in reversed(place):
        content = key(field, LENGTH) + varint(len(content)) + content
    return content


def count_of(body):
    return field_counts.count_fields(body, decode._FIELDS, BATCH_FIELDS_MAX)


def elements_of(body):
    return field_counts.count_fields(body, decode._ELEMENTS, BATCH_ELEMENTS_MAX)


def elements_built_of(body):
    """Return the number of blocks and dimensions for which protobuf allocates memory."""
    series = [
        series
        for segment in wire_pb2.WriteBatch.FromString(body).segments
        for series in segment.series
    ]
    tensors = [tensor for each in series for tensor in each.tensors.tensors]
    return sum(len(each.scalars.blocks) for each in series) + sum(
        len(tensor.shape) for tensor in tensors
    )


def peak_memory():
    """Return the peak resident memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * limits.KIB


def messages_of(body):
    """Return the number of repeated messages that protobuf builds from a body."""
    segments = wire_pb2.WriteBatch.FromString(body).segments
    series = [series for segment in segments for series in segment.series]
    sequences = [sequence for each in series for sequence in each.blob_sequences.sequences]
    return (
        len(segments)
        + len(series)
        + sum(len(segment.skipped) for segment in segments)
        + sum(len(each.tensors.tensors) for each in series)
        + len(sequences)
        + sum(len(sequence.blobs) for sequence in sequences)
    )


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr("tbservice.ingest.decode.BATCH_FIELDS_MAX", 1_000)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.parametrize("place", PLACES)
def test_empty_messages_are_refused_wherever_they_are(place, padding):
    assert messages_of(nested(place, 10, padding)) >= 10
    with pytest.raises(TooLarge, match="a batch has at most 1000 fields; send it in parts"):
        decode.decode_batch(nested(place, 1_001, padding))


@pytest.mark.usefixtures("few")
def test_as_many_fields_as_limit_are_let_through():
    body = nested((SEGMENT, SERIES), 999, padding=1)
    assert count_of(body) == 1_000
    decode.check_counts(body)


@pytest.mark.parametrize("place", [(SEGMENT,), (SEGMENT, SERIES)])
def test_count_of_many_fields_gives_way_to_others(place):
    def check():
        count_in(Waits(), "caller", lambda: given.append(1), lambda: None)
        decode.check_counts(nested(place, 400_000, padding=1))

    given = []
    contextvars.copy_context().run(check)
    assert len(given) == 19  # after each 20,000, but not at the end


def test_batch_of_largest_size_is_refused_before_it_is_built():
    with pytest.raises(TooLarge, match="fields"):
        decode.decode_batch(nested((SEGMENT, SERIES), limits.BATCH_BYTES_MAX // 2 - 8))


ELEMENTS_OF_TWO_BYTES = [
    within((SEGMENT, SERIES, SCALARS), (key(BLOCKS, LENGTH) + b"\0") * 1_001),
    within((SEGMENT, SERIES, TENSORS, ELEMENTS), (key(SHAPE, 0) + b"\1") * 1_001),
    within((SEGMENT, SERIES, TENSORS), within((ELEMENTS, SHAPE), b"\1" * 26) * 39),
    within((SEGMENT, SERIES, TENSORS, ELEMENTS, SHAPE), b"\xff\1" * 1_001),
]


@pytest.mark.parametrize("body", ELEMENTS_OF_TWO_BYTES)
def test_blocks_and_dimensions_are_counted_before_any_is_built(monkeypatch, body):
    monkeypatch.setattr("tbservice.ingest.decode.BATCH_ELEMENTS_MAX", 1_000)
    assert elements_built_of(body) > 1_000
    with pytest.raises(
        TooLarge, match="at most 1000 packed blocks and dimensions of tensors; send it in parts"
    ):
        decode.check_counts(body)


@pytest.mark.parametrize("place", [(SCALARS, BLOCKS), (TENSORS, ELEMENTS, SHAPE)])
def test_batch_of_largest_size_is_refused_in_little_memory(place):
    size = limits.BATCH_BYTES_MAX - 64
    content = bytes(size) if place[-1] == SHAPE else (key(BLOCKS, LENGTH) + b"\0") * (size // 2)
    body = within((SEGMENT, SERIES, *(place if place[-1] == SHAPE else place[:-1])), content)
    before = peak_memory()
    with pytest.raises(TooLarge, match="packed blocks and dimensions"):
        decode.decode_batch(body)
    assert peak_memory() < before + 2 * limits.BATCH_BYTES_MAX


@pytest.mark.usefixtures("few")
def test_fields_that_nobody_knows_count_as_well():
    with pytest.raises(TooLarge):
        decode.decode_batch((key(15, 0) + b"\1") * 1_001)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    "end", [b"\x0b", b"\x0c", b"\x0e", b"\x0f", b"\x0a", b"\x0a\xff", b"\x0a\x05", b"\xff" * 11]
)
def test_what_is_no_batch_is_malformed(end):
    unknown = key(15, LENGTH) + varint(5_000) + bytes(5_000)
    assert decode.decode_batch(unknown) == []
    with pytest.raises(MalformedRequest):
        decode.decode_batch(unknown + end)


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_no_fewer_fields_are_counted_than_messages_are_built(data):
    body = write_batch(Choices(data))
    with suppress(
        DecodeError, MalformedMessage
    ):  # protobuf passes over groups, which the count refuses
        assert count_of(body) >= messages_of(body)
        assert elements_of(body) >= elements_built_of(body)


def test_scalars_cost_few_fields_series_whatever_their_points():
    body = batches.batch(
        *(
            batches.segment(batches.stream(), 0, 1, batches.scalars("t", range(n)))
            for n in (1, 5000)
        )
    )
    assert count_of(body) < 2 * 12
