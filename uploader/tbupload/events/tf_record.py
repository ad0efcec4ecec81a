"""TFRecord layout: the bytes around a payload, and the masked CRC-32C that protects them.

A record is, all little-endian: uint64 length of the payload; uint32 masked CRC-32C of these eight
bytes; the payload; uint32 masked CRC-32C of the payload. Records follow each other without gaps.
Source: `tensorflow/core/lib/io/record_writer.h` ("Format of a single record"); TensorBoard's writer
of the same bytes is `tensorboard/summary/writer/record_writer.py`.
"""

from __future__ import annotations

import struct
from typing import Final

import google_crc32c

LENGTH: Final = struct.Struct("<Q")
CHECKSUM: Final = struct.Struct("<I")

HEADER_BYTES: Final = LENGTH.size + CHECKSUM.size
FOOTER_BYTES: Final = CHECKSUM.size
FRAME_BYTES: Final = HEADER_BYTES + FOOTER_BYTES

MASK_DELTA: Final = 0xA282EAD8
"""Constant of the mask: the CRC of bytes that contain CRCs would detect errors badly without it.

Source: `Mask` in `lib/hash/crc32c.h` of TensorFlow; `masked_crc32c` in TensorBoard's
`tensorboard/compat/tensorflow_stub/pywrap_tensorflow.py`.
"""


def header(length: int) -> bytes:
    """Return the first 12 bytes of a record with a payload of `length` bytes."""
    encoded = LENGTH.pack(length)
    return encoded + footer(google_crc32c.value(encoded))


def footer(checksum: int) -> bytes:
    """Return the last 4 bytes of a record with a payload of this CRC-32C."""
    return CHECKSUM.pack(mask_checksum(checksum))


def masked_checksum(content: bytes) -> int:
    """Return the masked CRC-32C of the bytes."""
    return mask_checksum(google_crc32c.value(content))


def mask_checksum(checksum: int) -> int:
    """Return a CRC-32C rotated right by 15 bits, plus MASK_DELTA modulo 2^32."""
    return (((checksum >> 15) | (checksum << 17)) + MASK_DELTA) & 0xFFFFFFFF
