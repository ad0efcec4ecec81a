"""URLs of the links that carry a secret: to sign in, and to accept an invitation."""

from __future__ import annotations

from typing import Final

INVITATION_PATH: Final = "/invitation"


def sign_in_url(public_url: str, secret: str) -> str:
    """Return the URL that signs a person in, once."""
    return f"{public_url.rstrip('/')}/sign-in/link?token={secret}"


def invitation_url(public_url: str, secret: str) -> str:
    """Return the URL of an invitation to a workspace."""
    return f"{public_url.rstrip('/')}{INVITATION_PATH}?token={secret}"
