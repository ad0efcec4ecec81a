"""What ids and tokens are made of: 128 random bits in base62, and tokens that can be known by their looks.

A token is `tbh_`, 32 random base62 characters (190 bits), and 6 that are the CRC-32 of what stands before them: a
secret scanner can tell it, and a mistyped one is refused before anything is asked of the database.
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
_TOKEN_PREFIX: Final = "tbh_"  # noqa: S105 - how every token begins is no secret
_RANDOM_CHARS: Final = 32
_CHECKSUM_CHARS: Final = 6
_PREFIX_CHARS: Final = 8


def generate_experiment_id() -> ExperimentId:
    """A new experiment's id."""
    return ExperimentId(_base62(secrets.randbits(128), _ID_CHARS))


def generate_token_id() -> TokenId:
    """A new token's id: what names it, and opens nothing."""
    return TokenId(_base62(secrets.randbits(128), _ID_CHARS))


def is_experiment_id(candidate: str) -> bool:
    """Whether it looks like an experiment's id."""
    return len(candidate) == _ID_CHARS and candidate.isascii() and candidate.isalnum()


def generate_token() -> str:
    """A new token's secret."""
    body = _TOKEN_PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_CHARS))
    return body + _checksum(body)


def is_token(candidate: str) -> bool:
    """Whether it looks like a token and its checksum holds."""
    body, checksum = candidate[:-_CHECKSUM_CHARS], candidate[-_CHECKSUM_CHARS:]
    is_shaped = (
        len(body) == len(_TOKEN_PREFIX) + _RANDOM_CHARS
        and body.startswith(_TOKEN_PREFIX)
        and body.isascii()
    )
    return is_shaped and checksum == _checksum(body)


def token_digest(token: str) -> bytes:
    """What is kept of a token. A plain SHA-256 is enough: nobody guesses 190 random bits."""
    return hashlib.sha256(token.encode()).digest()


def get_display_prefix(token: str) -> str:
    """How a token begins, to tell it by in a list."""
    return token[:_PREFIX_CHARS]


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECKSUM_CHARS)


def _base62(number: int, chars: int) -> str:
    digits = []
    for _ in range(chars):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
