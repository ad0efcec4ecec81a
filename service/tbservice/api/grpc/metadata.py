"""A gRPC call in progress, with token, caller and address from its metadata."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable
from typing import Final, NoReturn, Protocol

import grpc

from tbservice.errors import Unauthenticated

Metadata = Iterable[tuple[str, str | bytes]]

_EXPERIMENT_KEY: Final = "x-katib-experiment"


class Context(Protocol):
    """A call in progress, of which messages are read and written as bytes.

    It is grpc's context, as far as we use it: grpc itself has no types.
    """

    def invocation_metadata(self) -> Metadata | None:
        """Return the metadata that the client sent."""

    def peer(self) -> str:
        """Return the client's address, such as `ipv4:192.0.2.1:50000`."""

    async def read(self) -> object:
        """Return the next message as bytes, or `grpc.aio.EOF`."""

    async def write(self, message: bytes) -> None:
        """Send a message; return when the connection has taken it."""

    async def abort(
        self, code: grpc.StatusCode, details: str, trailing_metadata: Metadata
    ) -> NoReturn:
        """End the call with a status, and raise."""


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
