"""The event loop of a worker, which accepts one connection per turn."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

from tbservice.admission.listener import PacedListener

PENDING_CONNECTIONS_ITEMS_MAX: Final = 2048
"""Connections that the operating system keeps until the loop accepts them (uvicorn's default)."""

_ACCEPTED_PER_TURN: Final = 1


class EventLoop(asyncio.SelectorEventLoop):
    """An event loop in which new connections do not delay the requests of others.

    asyncio calls `accept` up to `backlog` times whenever its socket is readable, and that number is
    also the length of the operating system's queue (`selector_events._accept_connection`). With
    uvicorn's 2,048, a client that opens and resets connections made each turn of the loop last up
    to a second, and a page needs some twenty turns.

    Connections of an address that opens too many are reset (`PacedListener`).
    """

    async def create_server(self, *args: Any, **options: Any) -> asyncio.Server:
        """Create the server; the queue of its given socket `sock` stays long."""
        if options.get("sock") is None:
            return await super().create_server(*args, **options)

        paced = PacedListener(fileno=os.dup(options["sock"].fileno()))
        changed = {"backlog": _ACCEPTED_PER_TURN, "sock": paced}
        server = await super().create_server(*args, **options | changed)
        options["sock"].listen(PENDING_CONNECTIONS_ITEMS_MAX)
        return server
