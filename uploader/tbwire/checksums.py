"""CRC-32C of the bytes around a cursor: how a stream's file is known to be the same file still."""

from __future__ import annotations

from typing import Final

import google_crc32c

PRECEDING_BYTES: Final = 1024
"""How many bytes before an offset its checksum covers, at most."""


def preceding_crc(before: bytes) -> int:
    """CRC-32C of the last `PRECEDING_BYTES` bytes of `before`, the bytes that end at an offset; 0 for none."""
    return int(google_crc32c.value(before[-PRECEDING_BYTES:]))
