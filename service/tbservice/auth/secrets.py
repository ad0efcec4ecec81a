"""Generate ids and tokens: 128 random bits in base62, and tokens with a recognizable format.

A token is `tbh_`, 32 random base62 characters (190 bits), and 6 with the CRC-32 (RFC 1952, section
8) of all of these: secret scanners can recognize it, and a mistyped one is rejected without a
database query.
"""

from __future__ import annotations

import hashlib
import secrets
import string
import zlib
from typing import Final

from tbservice.types import ExperimentId, TokenId

_ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_ID_CHARS: Final = 22
_TOKEN_PREFIX: Final = "tbh_"  # noqa: S105 - the beginning of every token, not a secret
_RANDOM_CHARS: Final = 32
_CHECKSUM_CHARS: Final = 6
_PREFIX_CHARS: Final = 8


def generate_experiment_id() -> ExperimentId:
    """Return a new experiment id."""
    return ExperimentId(_base62(secrets.randbits(128), _ID_CHARS))


def generate_token_id() -> TokenId:
    """Return a new token id, which identifies the token and is not secret."""
    return TokenId(_base62(secrets.randbits(128), _ID_CHARS))


def is_experiment_id(candidate: str) -> bool:
    """Return whether this has the format of an experiment id."""
    return len(candidate) == _ID_CHARS and candidate.isascii() and candidate.isalnum()


def generate_token() -> str:
    """Return the secret of a new token."""
    body = _TOKEN_PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_CHARS))
    return body + _checksum(body)


def is_token(candidate: str) -> bool:
    """Return whether this has the format of a token and a valid checksum."""
    body, checksum = candidate[:-_CHECKSUM_CHARS], candidate[-_CHECKSUM_CHARS:]
    is_well_formed = (
        len(body) == len(_TOKEN_PREFIX) + _RANDOM_CHARS
        and body.startswith(_TOKEN_PREFIX)
        and body.isascii()
    )
    return is_well_formed and checksum == _checksum(body)


def token_digest(token: str) -> bytes:
    """Return the digest that is stored of a token.

    A plain SHA-256 suffices: 190 random bits cannot be guessed, unlike passwords.
    """
    return hashlib.sha256(token.encode()).digest()


def get_display_prefix(token: str) -> str:
    """Return the beginning of a token, to identify it in lists."""
    return token[:_PREFIX_CHARS]


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECKSUM_CHARS)


def _base62(number: int, chars: int) -> str:
    digits = []
    for _ in range(chars):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
