"""Checksum of the bytes before an upload cursor: detects that a file was replaced.

A module of `tbwire`, although servers only compare the numbers: every client must compute the same.
"""

from __future__ import annotations

from typing import Final

import google_crc32c

PRECEDING_BYTES: Final = 1024
"""Bytes before an offset that its checksum covers, at most."""


def preceding_crc(before: bytes) -> int:
    """Return the CRC-32C of the last `PRECEDING_BYTES` bytes of `before`; 0 when it is empty.

    `before` are the bytes of a file that end at an offset. The checksum (Castagnoli, RFC 3720,
    section 12.1) is not masked, unlike those in event files (`tbupload.events.tf_record`).
    """
    # The last bytes alone: a file of gigabytes is resumed without reading it again, and event files
    # differ in their last records (wall times).
    return int(google_crc32c.value(before[-PRECEDING_BYTES:]))
