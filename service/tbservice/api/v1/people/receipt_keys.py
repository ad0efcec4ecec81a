"""Route for the public keys by which anybody verifies receipts of deletion."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from tbservice.api.http.dependencies import UsesSettings
from tbservice.api.http.routers import make_router
from tbservice.audit.signatures import list_public_keys

router = make_router(prefix="/api/v1/receipt-keys", tags=["workspaces"])


class PublicReceiptKey(BaseModel):
    """A public Ed25519 key as a JSON Web Key (RFC 7517, RFC 8037)."""

    kty: Literal["OKP"]
    crv: Literal["Ed25519"]
    x: str = Field(description="Its 32 bytes, in base64url")
    kid: str = Field(description="Its thumbprint (RFC 7638), which signatures name")
    use: Literal["sig"]
    alg: Literal["EdDSA"]


class ReceiptKeySet(BaseModel):
    """The public keys of receipts; none if the service does not sign them."""

    keys: list[PublicReceiptKey]


@router.get("")
def list_receipt_keys(settings: UsesSettings) -> ReceiptKeySet:
    """Return the public keys of receipts of deletion, as a JWK Set (RFC 7517). Needs no token.

    The first one signs; the others have signed before, or will.
    """
    return ReceiptKeySet(**list_public_keys(settings.receipt_keys))
