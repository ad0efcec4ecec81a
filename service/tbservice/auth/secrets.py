"""Generate ids and secrets: 128 random bits in base62, and secrets with a recognizable format.

A token is `tbh_`, 32 random base62 characters (190 bits), and 6 with the CRC-32 (RFC 1952, section
8) of all of these: secret scanners can recognize it, and a mistyped one is rejected without a
database query. Other secrets differ in their prefix, so that none is taken for one of another kind.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import secrets
import string
import zlib
from typing import Final

from tbservice.types.identifiers import ExperimentId

_ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_ID_CHARS: Final = 22
_RANDOM_CHARS: Final = 32
_CHECKSUM_CHARS: Final = 6
_PREFIX_CHARS: Final = 8


class SecretKind(enum.StrEnum):
    """The kinds of secrets, by the prefix that they begin with."""

    TOKEN = "tbh_"  # noqa: S105 - the beginning of every token, not a secret
    SESSION = "tbs_"
    SIGN_IN_LINK = "tbl_"
    INVITATION = "tbi_"


def generate_experiment_id() -> ExperimentId:
    """Return a new experiment id."""
    return ExperimentId(generate_public_id())


def is_experiment_id(candidate: str) -> bool:
    """Return whether this has the format of an experiment id."""
    return len(candidate) == _ID_CHARS and candidate.isascii() and candidate.isalnum()


def generate_public_id() -> str:
    """Return a new id of a token, a person, a browser session or another thing; it is no secret."""
    return _base62(secrets.randbits(128), _ID_CHARS)


def generate_secret(kind: SecretKind) -> str:
    """Return a new secret."""
    body = kind + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_CHARS))
    return body + _checksum(body)


def is_secret(candidate: str, kind: SecretKind) -> bool:
    """Return whether this has the format of a secret of the kind, and a valid checksum."""
    body, checksum = candidate[:-_CHECKSUM_CHARS], candidate[-_CHECKSUM_CHARS:]
    is_well_formed = (
        len(body) == len(kind) + _RANDOM_CHARS and body.startswith(kind) and body.isascii()
    )
    return is_well_formed and checksum == _checksum(body)


def generate_token() -> str:
    """Return the secret of a new token."""
    return generate_secret(SecretKind.TOKEN)


def derive_token(secret: str, purpose: str) -> str:
    """Return the token that a secret has for a purpose: always the same one.

    Nobody can compute it, or the secret, from the other tokens (HMAC-SHA-256, RFC 2104).
    """
    number = int.from_bytes(hmac.digest(secret.encode(), purpose.encode(), "sha256"), "big")
    body = SecretKind.TOKEN + _base62(number, _RANDOM_CHARS)
    return body + _checksum(body)


def is_session(candidate: str) -> bool:
    """Return whether this has the format of a browser session's secret and a valid checksum."""
    return is_secret(candidate, SecretKind.SESSION)


def secret_digest(secret: str) -> bytes:
    """Return the digest that is stored of a secret.

    A plain SHA-256 suffices: 190 random bits cannot be guessed, unlike passwords.
    """
    return hashlib.sha256(secret.encode()).digest()


def parse_digest(candidate: str, kind: SecretKind) -> bytes | None:
    """Return the digest of a secret of the kind; None for anything else."""
    return secret_digest(candidate) if is_secret(candidate, kind) else None


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
