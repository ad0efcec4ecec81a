"""Frames of `read.proto` as a stream of bytes: each behind its length, a varint as protobuf writes it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from google.protobuf.message import DecodeError

from tbwire.read_pb2 import Frame
from tbwire.wire_format import MalformedVarint, decode_varint, encode_varint

MEDIA_TYPE: Final = "application/vnd.tbhub.points"


def encode_frame(frame: Frame) -> bytes:
    """One frame with its length before it."""
    content = frame.SerializeToString()
    return encode_varint(len(content)) + content


def decode_frames(pieces: Iterable[bytes], frame_bytes_max: float = math.inf) -> Iterator[Frame]:
    """The frames in these bytes, cut into pieces anywhere; about one frame and one piece are held at a time.

    Raises ValueError when they are no frames, end within one, or one is over `frame_bytes_max`.
    """
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        place = 0
        while (found := _find_frame(buffer, place)) is not None:
            start, end = found
            try:
                yield Frame.FromString(bytes(memoryview(buffer)[start:end]))
            except DecodeError as error:
                raise ValueError("the bytes are no frames") from error
            place = end
        del buffer[:place]
        if len(buffer) > frame_bytes_max:
            raise ValueError(f"a frame is over the limit of {frame_bytes_max:,} bytes")
    if buffer:
        raise ValueError("the bytes end within a frame")


def _find_frame(buffer: bytearray, place: int) -> tuple[int, int] | None:
    """Where the content of the frame that begins at `place` starts and ends; None when it is not whole."""
    try:
        length, start = decode_varint(buffer, place)
    except IndexError:  # the varint is cut
        return None
    except MalformedVarint as error:
        raise ValueError("the bytes are no frames") from error
    return (start, start + length) if start + length <= len(buffer) else None
