"""The workers' event loop with real sockets."""

from __future__ import annotations

import asyncio
import socket

from tbservice.server.event_loop import EventLoop

CONNECTIONS = 50


def test_event_loop_accepts_one_connection_per_turn():
    with asyncio.Runner(loop_factory=EventLoop) as runner:
        assert max(runner.run(_accepted_per_turn())) == 1


def test_event_loop_keeps_waiting_connections():
    # With a queue as short as what is accepted per turn, Linux would drop most of these.
    with asyncio.Runner(loop_factory=EventLoop) as runner:
        assert sum(runner.run(_accepted_per_turn())) == CONNECTIONS


async def _accepted_per_turn() -> list[int]:
    """Connect before the server runs; return how many connections each turn of the loop accepted."""
    loop = asyncio.get_running_loop()
    accepted: list[asyncio.Protocol] = []

    class Counted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.append(self)
            transport.close()

    with socket.create_server(("127.0.0.1", 0)) as bound:
        bound.setblocking(False)
        server = await loop.create_server(Counted, sock=bound, backlog=2048)
        clients = [socket.socket() for _ in range(CONNECTIONS)]
        for client in clients:
            client.settimeout(5)
            client.connect(bound.getsockname())

        counts = []
        while len(accepted) < CONNECTIONS:
            before = len(accepted)
            await asyncio.sleep(0)
            counts.append(len(accepted) - before)
        for client in clients:
            client.close()
        server.close()
        return counts
