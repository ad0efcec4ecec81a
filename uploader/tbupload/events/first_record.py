"""The first record of an event file: its digest identifies the file, also when it is renamed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

import google_crc32c
from google.protobuf.message import DecodeError

from tbupload.events import framing, tf_record
from tbupload.events.tf_record import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES
from tbwire import tensorboard_pb2 as pb
from tbwire.messages import parse

_READ_BYTES: Final = 1 << 20
"""Bytes of a long first record that are in memory at a time while it is hashed."""


@dataclass(frozen=True)
class FirstRecord:
    """Identity of an event file.

    Attributes:
        digest: SHA-256 of the first record, framing included.
        wall_time: Seconds since the epoch of its event; None when it has none that is finite.
    """

    digest: bytes
    wall_time: float | None


def read_first_record(file: BinaryIO, size: int) -> FirstRecord | None:
    """Return the first record of a file of `size` bytes.

    None while it is incomplete, or when it is damaged and the only one: it may still be written.
    """
    file.seek(0)
    header = file.read(HEADER_BYTES)
    length = framing.header_length(header) if len(header) == HEADER_BYTES else None
    if length is None or size < length + FRAME_BYTES:
        return None

    digest, checksum, payload = hashlib.sha256(header), 0, b""
    for read_bytes in _read_sizes(length):
        payload = file.read(read_bytes)
        digest.update(payload)
        checksum = google_crc32c.extend(checksum, payload)
    footer = file.read(FOOTER_BYTES)
    digest.update(footer)
    if footer != tf_record.footer(checksum) and not file.read(1):
        return None

    return FirstRecord(digest.digest(), _wall_time(payload) if length <= _READ_BYTES else None)


def _read_sizes(length: int) -> Iterator[int]:
    while length > 0:
        yield min(length, _READ_BYTES)
        length -= _READ_BYTES


def _wall_time(payload: bytes) -> float | None:
    try:
        wall_time = parse(pb.Event, payload).wall_time
    except (DecodeError, UnicodeDecodeError):
        return None
    return wall_time if wall_time and math.isfinite(wall_time) else None
