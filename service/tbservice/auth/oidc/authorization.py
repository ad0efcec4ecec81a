"""What one sign-in and its provider agree on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Authorization:
    """What a sign-in sends to the provider, and must get back."""

    state: str
    nonce: str
    code_verifier: str
    redirect_uri: str
