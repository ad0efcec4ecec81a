"""Our varints compared with protobuf's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbwire import tensorboard_pb2 as pb
from tbwire.wire_format import MalformedVarint, decode_varint, encode_varint

int64s = st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300)


@given(int64s.filter(bool))
def test_encoded_varint_equals_one_of_protobuf(number):
    assert b"\x10" + encode_varint(number) == pb.Event(step=number).SerializeToString()


@given(int64s, st.binary(), st.binary())
def test_decoded_varint_has_its_value_and_end(number, before, after):
    encoded = encode_varint(number)
    content = before + encoded + after
    assert decode_varint(content, len(before)) == (number % 2**64, len(before + encoded))


@given(int64s, st.data())
def test_cut_varint_raises_index_error(number, data):
    encoded = encode_varint(number)
    with pytest.raises(IndexError):
        decode_varint(encoded[: data.draw(st.integers(0, len(encoded) - 1))], 0)


@given(st.integers(0, 20))
def test_varint_of_more_than_ten_bytes_is_malformed(more):
    assert decode_varint(b"\x80" * 9 + b"\x01", 0) == (1 << 63, 10)
    with pytest.raises(MalformedVarint):
        decode_varint(b"\x80" * 10 + bytes(more), 0)
