"""Batches that no uploader sends: refused with one sentence, or decoded as protobuf decodes them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from support import batches
from support.hostile_batches import check, write_batch
from support.wire_format import Choices, drawn

ORDINARY = batches.batch(
    batches.segment(
        batches.stream(),
        0,
        100,
        batches.scalars("loss", [1, 2, 3]),
        batches.texts("text", [1, 2], [b"one", b"two"]),
        batches.images("image", [1], [[b"1", b"2", b"png"]]),
        skipped={"a reason": 3},
    )
)


def test_without_any_oddity_batch_is_taken():
    assert check(ORDINARY)
    assert check(write_batch(Choices(b"")))


def test_batches_of_any_shape_are_refused_or_exact():
    taken = sum(check(write_batch(Choices(data))) is not None for data in drawn(2_000))
    assert 200 < taken < 1_800


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_batch_of_any_shape_is_refused_or_means_what_it_says(data):
    check(write_batch(Choices(data)))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_batch_with_changed_bytes_is_refused_or_exact(data):
    body = bytearray(ORDINARY)
    for _ in range(data.draw(st.integers(1, 3))):
        at, size = data.draw(st.integers(0, len(body))), data.draw(st.integers(0, 3))
        body[at : at + size] = data.draw(st.binary(max_size=4))
    check(bytes(body))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=100))
def test_any_bytes_are_refused_or_mean_what_they_say(body):
    check(body)
