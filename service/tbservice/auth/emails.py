"""E-mail addresses: which are accepted, and which are the same.

Two addresses are the same if they differ by the case of ASCII letters alone. No other folding: to
Unicode's rules of compatibility and case, addresses of different people can look the same, and an
account could be taken over by registering such a one (CVE-2019-19844). Addresses with other than
ASCII characters are therefore refused; their domains have an ASCII form (RFC 3492).
"""

from __future__ import annotations

import re
from typing import Final

from tbservice import limits
from tbservice.errors import Invalid

_ADDRESS: Final = re.compile(r"[!-?A-~]{1,64}@[0-9A-Za-z]([0-9A-Za-z.-]{0,251}[0-9A-Za-z])?")
"""Printable ASCII characters without spaces, one "@", and a domain: no more can be known."""


def email_key(email: str) -> str | None:
    """Return the key by which addresses are compared; None for one that is not accepted."""
    if len(email) > limits.EMAIL_CHARS_MAX or not _ADDRESS.fullmatch(email):
        return None
    return email.lower()


def require_email_key(email: str) -> str:
    """Return the key by which addresses are compared. Raises Invalid for one not accepted."""
    key = email_key(email)
    if key is None:
        raise Invalid(
            "this is not an e-mail address in ASCII characters; write a domain with other "
            "characters in its ASCII form (xn--…)"
        )
    return key
