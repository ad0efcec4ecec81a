"""Type of grpc's context of a call in progress, as far as we use it; grpc itself has no types."""

from __future__ import annotations

from typing import NoReturn, Protocol

import grpc

from tbservice.api.grpc.metadata import Metadata


class Context(Protocol):
    """A call in progress, of which messages are read and written as bytes."""

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
