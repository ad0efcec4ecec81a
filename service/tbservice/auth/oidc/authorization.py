"""Values that tie an answer of a provider to one sign-in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Authorization:
    """Values that a sign-in sends to the provider and must get back."""

    state: str
    nonce: str
    code_verifier: str
    redirect_uri: str
