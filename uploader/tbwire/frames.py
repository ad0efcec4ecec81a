"""Encode and decode frames of `read.proto` as a stream of bytes.

Each frame is preceded by its length as a varint, the usual framing of a sequence of protobuf
messages ("Streaming Multiple Messages" in the Protocol Buffers documentation; Java's
`writeDelimitedTo` writes the same).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from google.protobuf.message import DecodeError

from tbwire.messages import parse
from tbwire.read_pb2 import Frame
from tbwire.wire_format import MalformedVarint, decode_varint, encode_varint

MEDIA_TYPE: Final = "application/vnd.tbhub.points"


def encode_frame(frame: Frame) -> bytes:
    """Return one frame with its length before it."""
    content = frame.SerializeToString()
    return encode_varint(len(content)) + content


def decode_frames(chunks: Iterable[bytes], frame_bytes_max: float = math.inf) -> Iterator[Frame]:
    """Yield the frames in a stream of bytes; about one frame and one chunk are in memory.

    Args:
        chunks: The bytes, divided anywhere.
        frame_bytes_max: The size of the largest frame, with its length.

    Raises:
        ValueError: The bytes are not frames, end within a frame, or a frame is too large.
    """
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        position = 0
        while (span := _find_frame(buffer, position)) is not None:
            start, end = span
            try:
                yield parse(Frame, bytes(memoryview(buffer)[start:end]))
            except DecodeError as error:
                raise ValueError("the bytes are not frames") from error
            position = end

        del buffer[:position]
        if len(buffer) > frame_bytes_max:
            raise ValueError(f"a frame is over the limit of {frame_bytes_max:,} bytes")
    if buffer:
        raise ValueError("the bytes end within a frame")


def _find_frame(buffer: bytearray, position: int) -> tuple[int, int] | None:
    """Return start and end of the frame with its length at `position`; None while incomplete."""
    try:
        length, start = decode_varint(buffer, position)
    except IndexError:  # the length itself is incomplete
        return None
    except MalformedVarint as error:
        raise ValueError("the bytes are not frames") from error
    return (start, start + length) if start + length <= len(buffer) else None
