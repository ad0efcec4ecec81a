"""Protobuf messages are parsed alike by all versions of the library."""

from __future__ import annotations

import warnings

import pytest
from google.protobuf.message import DecodeError

from support.wire_format import END_GROUP, key
from tbwire import tensorboard_pb2 as pb
from tbwire.messages import parse


def test_message_is_parsed():
    event = pb.Event(wall_time=1.5, step=7)
    assert parse(pb.Event, event.SerializeToString()) == event
    assert parse(pb.Event, b"") == pb.Event()


@pytest.mark.parametrize(
    "content", [key(1, END_GROUP) + b"\0", b"\x09", b"<html>", b"\x1a\x02\xff\xff"]
)
def test_what_is_no_message_is_refused(content):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of versions before 4.21
        with pytest.raises((DecodeError, UnicodeDecodeError)):
            parse(pb.Event, content)
