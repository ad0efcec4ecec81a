"""The name of a blob's file in an export: the table of blobs has it, and the client writes it."""

from __future__ import annotations

from typing import Final

_SUFFIXES: Final = {
    "audio/flac": ".flac",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/wav": ".wav",
    "image/bmp": ".bmp",
    "image/gif": ".gif",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/webp": ".webp",
}


def blob_file(sha256: bytes, content_type: str) -> str:
    """Return the path of a blob's file in an export, by its bytes alone: equal ones are one file.

    It has lower-case hexadecimal digits only, so it is valid, and its own, on every file system.
    """
    digest = sha256.hex()
    return f"files/{digest[:2]}/{digest}{_SUFFIXES.get(content_type, '.bin')}"
