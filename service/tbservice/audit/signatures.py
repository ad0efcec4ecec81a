"""Signatures of receipts: JSON Web Signatures (RFC 7515) by Ed25519 keys (RFC 8037).

Anybody verifies them by the public keys, which the service publishes, without asking it for more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import SecretStr

from tbservice.types.identifiers import Json
from tbservice.types.receipt_keys import (
    PUBLIC_PREFIX,
    decode_base64url,
    encode_base64url,
    parse_keys,
)

SIGNATURE: Final = "signature"
"""Field of a receipt with the signature of all others."""

_ALGORITHM: Final = "EdDSA"


class NotGenuine(ValueError):
    """A receipt that none of the keys has signed as it is."""


def sign(receipt: Mapping[str, Any], keys: SecretStr | None, issuer: str) -> Json:
    """Return a receipt with who issues it, and its signature by the first private key, or null.

    The payload of the signature is the receipt without that field, as JSON.
    """
    stated = {**receipt, "issuer": issuer}
    signer = _find_signer(keys.get_secret_value()) if keys is not None else None
    if signer is None:
        return {**stated, SIGNATURE: None}
    key, key_id = signer
    header = {"alg": _ALGORITHM, "kid": key_id}
    parts = [encode_base64url(json.dumps(each).encode()) for each in (header, stated)]
    signature = key.sign(".".join(parts).encode())
    return {**stated, SIGNATURE: ".".join([*parts, encode_base64url(signature)])}


def verify(receipt: Mapping[str, Any], key_set: Mapping[str, Any]) -> str:
    """Return the id of the key of a JWK Set (RFC 7517) that has signed a receipt.

    A field that is null says as much as none: the API answers both. Raises NotGenuine.
    """
    try:
        signed, _, signature = receipt[SIGNATURE].rpartition(".")
        header, payload = (json.loads(decode_base64url(each)) for each in signed.split("."))
        by_id = {each["kid"]: each for each in key_set["keys"] if each.get("crv") == "Ed25519"}
        key_id = header["kid"] if header["alg"] == _ALGORITHM else None
        if key_id not in by_id:
            raise NotGenuine(f"it is signed by a key that is not one of these: {key_id!r}")
        key = Ed25519PublicKey.from_public_bytes(decode_base64url(by_id[key_id]["x"]))
        key.verify(decode_base64url(signature), signed.encode())
    except InvalidSignature:
        raise NotGenuine("the signature is not of this key, or was changed") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, NotGenuine):
            raise
        raise NotGenuine("it has no signature, or none that can be read") from None
    if _list_stated(payload) != _list_stated(receipt):
        raise NotGenuine("it says something else than what was signed")
    return str(key_id)


def list_public_keys(keys: SecretStr | None) -> Json:
    """Return all public keys as a JWK Set (RFC 7517), the one that signs first."""
    parsed = parse_keys(keys.get_secret_value()) if keys is not None else []
    public = [
        each.content
        if each.is_public
        else _public_bytes(Ed25519PrivateKey.from_private_bytes(each.content))
        for each in parsed
    ]
    jwks = [{**_make_jwk(each), "kid": _make_key_id(each)} for each in public]
    return {"keys": [{**each, "use": "sig", "alg": _ALGORITHM} for each in jwks]}


def generate_key() -> tuple[str, str]:
    """Return a new private key and its public one, as the setting has them."""
    key = Ed25519PrivateKey.generate()
    public = PUBLIC_PREFIX + encode_base64url(_public_bytes(key))
    return encode_base64url(key.private_bytes_raw()), public


def _list_stated(receipt: Mapping[str, Any]) -> Json:
    return {name: each for name, each in receipt.items() if name != SIGNATURE and each is not None}


@lru_cache(maxsize=1)
def _find_signer(text: str) -> tuple[Ed25519PrivateKey, str] | None:
    for each in parse_keys(text):
        if not each.is_public:
            key = Ed25519PrivateKey.from_private_bytes(each.content)
            return key, _make_key_id(_public_bytes(key))
    return None


def _public_bytes(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def _make_jwk(public: bytes) -> dict[str, str]:
    return {"crv": "Ed25519", "kty": "OKP", "x": encode_base64url(public)}


def _make_key_id(public: bytes) -> str:
    """Return the thumbprint of a public key (RFC 7638, RFC 8037)."""
    canonical = json.dumps(_make_jwk(public), separators=(",", ":"), sort_keys=True)
    return encode_base64url(hashlib.sha256(canonical.encode()).digest())
