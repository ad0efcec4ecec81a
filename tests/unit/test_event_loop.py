"""The workers' event loop with real sockets."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack, suppress

import pytest

from tbservice.admission import listener
from tbservice.admission.listener import limit_connections
from tbservice.server.workers import EventLoop

CONNECTIONS = 50


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """Let a turn accept all that is there, although this process may get no processor meanwhile."""
    monkeypatch.setattr(listener, "_ACCEPT_SECONDS_MAX", 60.0)


def test_event_loop_accepts_one_connection_per_turn():
    # With a queue as short as what is accepted per turn, Linux would drop most of these.
    with asyncio.Runner(loop_factory=EventLoop) as runner:
        counts = runner.run(_accepted_per_turn())
    assert (max(counts), sum(counts)) == (1, CONNECTIONS)


def test_event_loop_skips_connections_that_were_reset():
    made, is_made = [], asyncio.Event()

    class Noted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(transport.get_extra_info("peername"))
            is_made.set()

    async def run():
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as bound:
            bound.setblocking(False)
            server = await loop.create_server(Noted, sock=bound)
            for _ in range(CONNECTIONS):
                with socket.create_connection(bound.getsockname()) as client:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, listener._RESET)
            with socket.create_connection(bound.getsockname()) as client:
                await is_made.wait()
                assert made == [client.getsockname()]
            server.close()

    with asyncio.Runner(loop_factory=EventLoop) as runner:
        runner.run(run())


def test_event_loop_serves_addresses_in_rotation(monkeypatch):
    # No more of the first address than may wait are kept; the one of the second is not behind them.
    monkeypatch.setattr(listener, "_limit", None)
    limit_connections(1_000, "")
    monkeypatch.setattr(listener, "SITE_WAITING_CONNECTIONS_ITEMS_MAX", CONNECTIONS // 2)
    served = serve_clients(["127.0.0.2"] * CONNECTIONS + ["127.0.0.3"], CONNECTIONS // 2 + 1)
    assert served == ["127.0.0.2", "127.0.0.3"] + ["127.0.0.2"] * (CONNECTIONS // 2 - 1)


def test_subnets_of_one_ipv6_network_have_one_turn(monkeypatch):
    # This machine has one IPv6 address, so addresses are translated where they are accepted.
    networks = {"127.0.0.2": "2001:db8:1:1::1", "127.0.0.3": "2001:db8:1:2::1"}
    accept = listener._accept

    def accept_translated(listening):
        number, (host, port) = accept(listening)
        return number, (networks.get(host, "2001:db8:2::1"), port)

    monkeypatch.setattr(listener, "_accept", accept_translated)
    served = serve_clients(["127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.4"], 4)
    assert served == ["127.0.0.2", "127.0.0.4", "127.0.0.3", "127.0.0.3"]


def serve_clients(hosts, count):
    """Connect from these addresses, and only then serve; return the first `count` as served."""
    served, is_served = [], asyncio.Event()

    class Noted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            served.append(transport.get_extra_info("peername")[0])
            if len(served) == count:
                is_served.set()

    async def run():
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as bound, ExitStack() as clients:
            bound.setblocking(False)
            for host in hosts:
                source = (host, 0)
                clients.enter_context(socket.create_connection(bound.getsockname(), 5, source))
            server = await loop.create_server(Noted, sock=bound)
            await is_served.wait()
            server.close()

    with asyncio.Runner(loop_factory=EventLoop) as runner:
        runner.run(run())
    return served


def test_event_loop_resets_waiting_connections_at_its_end():
    served, is_served = [], asyncio.Event()

    class Noted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            served.append(transport)
            is_served.set()

    async def run():
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as bound, ExitStack() as clients:
            bound.setblocking(False)
            opened = [
                clients.enter_context(socket.create_connection(bound.getsockname(), 5))
                for _ in range(CONNECTIONS)
            ]
            server = await loop.create_server(Noted, sock=bound)
            await is_served.wait()
            server.close()
            await asyncio.sleep(0)
            return sum(is_reset(client) for client in opened)

    def is_reset(client):
        client.settimeout(0)
        try:
            client.recv(1)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    with asyncio.Runner(loop_factory=EventLoop) as runner:
        assert 0 < runner.run(run()) == CONNECTIONS - len(served)


def test_event_loop_resets_connections_over_limit_of_address(monkeypatch):
    monkeypatch.setattr(listener, "_limit", None)  # as it was, at the end
    limit_connections(0.01, "127.0.0.5")

    async def run():
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as bound:
            bound.setblocking(False)
            server = await loop.create_server(_Answering, sock=bound)
            outcomes = {
                source: [await is_answered(bound.getsockname(), source) for _ in range(5)]
                for source in ("127.0.0.2", "127.0.0.3", "127.0.0.5", "127.0.0.1")
            }
            server.close()
        return outcomes

    async def is_answered(address, source):
        with suppress(ConnectionError):
            reader, writer = await asyncio.open_connection(*address, local_addr=(source, 0))
            answer = await reader.read()
            writer.close()
            return answer == b"answer"
        return False

    with asyncio.Runner(loop_factory=EventLoop) as runner:
        outcomes = runner.run(run())
    assert outcomes["127.0.0.2"] == outcomes["127.0.0.3"] == [True, False, False, False, False]
    assert outcomes["127.0.0.1"] == outcomes["127.0.0.5"] == [True] * 5  # this machine, a proxy


class _Answering(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(b"answer")
        transport.close()


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
