"""Token, caller and address of a gRPC call, from its metadata."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable
from typing import Final

from tbservice.errors import Unauthenticated

Metadata = Iterable[tuple[str, str | bytes]]

_EXPERIMENT_KEY: Final = "x-katib-experiment"


def read_secret(metadata: Metadata) -> str:
    """Return the token of a call. Raises Unauthenticated if it has none."""
    value = _first(metadata, "authorization")
    if value is None:
        raise Unauthenticated(
            "a token is needed: send the metadata 'authorization: Bearer <token>', "
            "or call through `tbupload grpc-forward`, which adds it"
        )
    scheme, _, secret = value.partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Unauthenticated("the metadata 'authorization' must be 'Bearer <token>'")
    return secret.strip()


def read_experiment(metadata: Metadata) -> str | None:
    """Return the experiment that a caller of DBManager names in the metadata, if any."""
    return _first(metadata, _EXPERIMENT_KEY)


def peer_host(peer: str) -> str:
    """Return the IP address of a peer as gRPC writes it; empty for one without.

    Examples: `ipv4:192.0.2.1:50000`, `ipv6:[2001:db8::1]:50000`, also percent-encoded.
    """
    family, _, address = urllib.parse.unquote(peer).partition(":")
    if family not in {"ipv4", "ipv6"}:
        return ""
    return address.rpartition(":")[0].strip("[]").partition("%")[0]


def _first(metadata: Metadata, name: str) -> str | None:
    for key, value in metadata:
        if key == name:
            return value if isinstance(value, str) else value.decode("ascii", "replace")
    return None
