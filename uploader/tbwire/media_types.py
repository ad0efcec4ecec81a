"""The media types of blobs: how their bytes begin, and the suffix of their files in an export."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

HEAD_BYTES: Final = 16
"""Bytes at the start of a blob that its media type is found from."""


class MediaType(NamedTuple):
    """A type of blobs that browsers display without running anything.

    Attributes:
        name: As in a header `Content-Type`.
        suffix: Of the blob's file in an export.
        start: What the first bytes match.
    """

    name: str
    suffix: str
    start: re.Pattern[bytes]


def _media_type(name: str, suffix: str, start: bytes) -> MediaType:
    return MediaType(name, suffix, re.compile(start, re.DOTALL))


_MEDIA_TYPES: Final = (
    _media_type("image/png", ".png", rb"\x89PNG\r\n\x1a\n"),  # W3C, section 5.2
    _media_type("image/jpeg", ".jpg", rb"\xff\xd8\xff"),  # ITU-T T.81, B.1.1.3: SOI and a marker
    _media_type("image/gif", ".gif", rb"GIF8[79]a"),  # GIF89a, section 17
    _media_type("image/bmp", ".bmp", rb"BM"),  # BITMAPFILEHEADER
    _media_type("image/webp", ".webp", rb"RIFF.{4}WEBP"),  # RFC 9649, section 2.4
    _media_type("audio/wav", ".wav", rb"RIFF.{4}WAVE"),  # bytes 4 to 7 are a size
    _media_type("audio/ogg", ".ogg", rb"OggS"),  # RFC 3533, section 6
    _media_type("audio/flac", ".flac", rb"fLaC"),  # RFC 9639, section 6
    _media_type("audio/mpeg", ".mp3", rb"ID3"),  # id3.org, ID3v2, section 3.1
)
_OTHER: Final = _media_type("application/octet-stream", ".bin", b"")
_SUFFIXES: Final = {each.name: each.suffix for each in _MEDIA_TYPES}


def find_media_type(head: bytes) -> str:
    """Return the media type of a blob that begins with `head`; application/octet-stream for others.

    `head` has the first `HEAD_BYTES` bytes at least, or the whole blob.
    """
    return next((each for each in _MEDIA_TYPES if each.start.match(head)), _OTHER).name


def blob_file(sha256: bytes, media_type: str) -> str:
    """Return the path of a blob's file in an export, by its bytes alone: equal ones are one file.

    It has lower-case hexadecimal digits only, so it is valid, and its own, on every file system.
    """
    digest = sha256.hex()
    return f"files/{digest[:2]}/{digest}{_SUFFIXES.get(media_type, _OTHER.suffix)}"
