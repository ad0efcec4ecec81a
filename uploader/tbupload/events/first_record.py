"""The first record of an event file, by which the file is known to be the same one whatever its name."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

import google_crc32c
from google.protobuf.message import DecodeError

from tbupload.events import framing
from tbupload.events.framing import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES
from tbwire import tensorboard_pb2 as pb

_PIECE_BYTES: Final = 1 << 20
"""How much of a long first record is held at a time while it is digested."""


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """SHA-256 of the record, framing included, and its event's wall time (seconds since the epoch) if it says one."""

    digest: bytes
    wall_time: float | None


def read_first_record(file: BinaryIO, size: int) -> FirstRecord | None:
    """The first record of a file of `size` bytes.

    None while it is not wholly there, or damaged and the last: it may still be being written.
    """
    file.seek(0)
    header = file.read(HEADER_BYTES)
    length = framing.header_length(header) if len(header) == HEADER_BYTES else None
    if length is None or size < length + FRAME_BYTES:
        return None
    digest, checksum, payload = hashlib.sha256(header), 0, b""
    for piece_bytes in _read_sizes(length):
        payload = file.read(piece_bytes)
        digest.update(payload)
        checksum = google_crc32c.extend(checksum, payload)
    footer = file.read(FOOTER_BYTES)
    digest.update(footer)
    if footer != framing.footer(checksum) and not file.read(1):
        return None
    return FirstRecord(digest.digest(), _wall_time(payload) if length <= _PIECE_BYTES else None)


def _read_sizes(length: int) -> Iterator[int]:
    while length > 0:
        yield min(length, _PIECE_BYTES)
        length -= _PIECE_BYTES


def _wall_time(payload: bytes) -> float | None:
    try:
        wall_time = pb.Event.FromString(payload).wall_time
    except (DecodeError, UnicodeDecodeError):
        return None
    return wall_time if wall_time and math.isfinite(wall_time) else None
