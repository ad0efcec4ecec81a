"""Media types of blobs: found from their first bytes, and each with a suffix of its own."""

from __future__ import annotations

import pytest

from tbwire.media_types import HEAD_BYTES, blob_file, find_media_type

STARTS = {
    b"\x89PNG\r\n\x1a\n": ("image/png", ".png"),
    b"\xff\xd8\xff\xe0": ("image/jpeg", ".jpg"),
    b"GIF87a": ("image/gif", ".gif"),
    b"GIF89a": ("image/gif", ".gif"),
    b"BM": ("image/bmp", ".bmp"),
    b"RIFF\n\0\n\0WEBP": ("image/webp", ".webp"),
    b"RIFF\n\0\n\0WAVE": ("audio/wav", ".wav"),
    b"OggS": ("audio/ogg", ".ogg"),
    b"fLaC": ("audio/flac", ".flac"),
    b"ID3": ("audio/mpeg", ".mp3"),
    b"": ("application/octet-stream", ".bin"),
    b"GIF88a": ("application/octet-stream", ".bin"),
    b"RIFF\0\0\0\0AVI ": ("application/octet-stream", ".bin"),
    b"RIFF": ("application/octet-stream", ".bin"),
    b" \x89PNG\r\n\x1a\n": ("application/octet-stream", ".bin"),
    b"<svg onload=alert(1)>": ("application/octet-stream", ".bin"),
    b"<!doctype html>": ("application/octet-stream", ".bin"),
}


@pytest.mark.parametrize(("start", "name_and_suffix"), STARTS.items())
def test_media_type_and_suffix_follow_from_first_bytes(start, name_and_suffix):
    name, suffix = name_and_suffix
    assert find_media_type(start) == name
    assert find_media_type((start + bytes(HEAD_BYTES))[:HEAD_BYTES]) == name
    assert blob_file(b"\xab" * 32, name) == f"files/ab/{'ab' * 32}{suffix}"


def test_media_type_that_is_unknown_has_suffix_bin():
    assert blob_file(bytes(32), "text/html").endswith(".bin")
