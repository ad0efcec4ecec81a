"""The event loop of a worker, which serves one new connection per turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from tbservice.admission.listener import Acceptor

PENDING_CONNECTIONS_ITEMS_MAX: Final = 2048
"""Connections that the operating system keeps until the loop accepts them (uvicorn's default)."""


class EventLoop(asyncio.SelectorEventLoop):
    """An event loop in which new connections do not delay the requests of others.

    asyncio accepts as many connections as may wait, 2,048, whenever its socket is readable
    (`selector_events._accept_connection`): a client that opened and reset connections made each
    turn of the loop last up to a second, and a page needs some twenty turns. `Acceptor` serves one
    in each turn, in rotation by address or IPv6 network.
    """

    async def create_server(  # type: ignore[override] # its overloads
        self, make_protocol: Callable[[], asyncio.BaseProtocol], *args: Any, **options: Any
    ) -> asyncio.Server:
        """Create the server; connections of a given socket `sock` are accepted by an `Acceptor`."""
        listening = options.get("sock")
        if listening is None:
            return await super().create_server(make_protocol, *args, **options)

        server = await super().create_server(
            make_protocol, *args, **options | {"start_serving": False}
        )
        listening.listen(PENDING_CONNECTIONS_ITEMS_MAX)
        Acceptor(self, listening, make_protocol)
        return server
