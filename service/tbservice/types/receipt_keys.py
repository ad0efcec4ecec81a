"""Keys that sign receipts, as a setting has them."""

from __future__ import annotations

import base64
import binascii
from typing import Final, NamedTuple

PUBLIC_PREFIX: Final = "public:"
"""Begins a public key, of which receipts are verified and none is signed."""

_KEY_BYTES: Final = 32
"""Bytes of an Ed25519 key, private or public (RFC 8032)."""


class ReceiptKey(NamedTuple):
    """An Ed25519 key: the 32 bytes of a private one, or of a public one."""

    content: bytes
    is_public: bool


def parse_keys(text: str) -> list[ReceiptKey]:
    """Return the keys of a list with commas or on lines, private ones or `public:` ones.

    Raises ValueError, without what the text has.
    """
    return [_parse(each) for each in text.replace(",", " ").split()]


def encode_base64url(content: bytes) -> str:
    """Return bytes as base64url without padding (RFC 7515, section 2)."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes:
    """Return the bytes of base64url without padding. Raises ValueError."""
    padded = text + "=" * (-len(text) % 4)
    return base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)


def _parse(text: str) -> ReceiptKey:
    try:
        content = decode_base64url(text.removeprefix(PUBLIC_PREFIX))
    except (ValueError, binascii.Error):
        content = b""
    if len(content) != _KEY_BYTES:
        raise ValueError(
            "each key is a line of 'tbservice receipt-key': 43 characters, or public:…"
        )
    return ReceiptKey(content, text.startswith(PUBLIC_PREFIX))
