"""Hostile clients of a real server, over raw sockets: what they can use up, and that other clients
are answered.
"""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import httpx2
import numpy as np
import psutil
import pytest

from support import servers as support
from support.batches import ApiClient, packed_scalars, segment, stream
from support.waiting import SECONDS_MAX, wait_until
from tbservice import limits
from tbservice.admission.bodies import SMALL_BODY_BYTES_MAX
from tbservice.server.workers import HEAD_BYTES_MAX

ABSENT = "A" * 22
TRIES = 20
"""Requests until the server knows of another one that it has got the head of."""

PROGRAM = Path(support.__file__).with_name(
    "short_timeout_service.py"
)  # not imported: it changes limits


@pytest.fixture(scope="module")
def service(shared_settings, tmp_path_factory):
    """A server with small shares; the limits of this process stay unchanged."""
    log = tmp_path_factory.mktemp("impatient") / "service.log"
    more = {"PYTHONPATH": str(Path(__file__).parents[1])}
    with support.live_service(shared_settings, log, program=(PROGRAM,), **more) as live:
        yield live


@pytest.fixture
def http(service):
    with support.http_client(service.url) as client:
        yield client


@pytest.fixture
def api(service, http):
    return ApiClient(http, service.new_owner())


def connect(service, receive_bytes=None, source="127.0.0.1"):
    """Return a socket from that address to the server, closed when the block ends."""
    client = socket.socket()
    client.bind((source, 0))
    if receive_bytes:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.settimeout(SECONDS_MAX)
    client.connect(("127.0.0.1", int(service.url.rpartition(":")[2])))
    return closing(client)


def head(method, path, token=None, **headers):
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def status_of(client):
    return int(re.match(rb"HTTP/1.1 (\d+)", client.recv(1000)).group(1))


def token_of(api):
    return api.headers["Authorization"].split()[1]


def is_ended(client):
    """Return whether the server has closed the connection."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_large_body_is_refused_before_it_is_read(service):
    for path in (
        f"/api/v1/experiments/{ABSENT}/scalars/data",
        "/api/v1/experiments",
        f"/api/v1/experiments/{ABSENT}/batches",
    ):
        with connect(service) as client:
            headers = {"Content_Type": "application/x-protobuf"}
            client.sendall(head("POST", path, Content_Length=limits.JSON_BODY_BYTES_MAX, **headers))
            assert status_of(client) == 401


def test_stalled_bodies_are_bounded_for_one_caller_only(service, api, http):
    experiment = api.new_experiment()
    path = f"/api/v1/experiments/{experiment}/scalars/data"
    other = ApiClient(http, service.new_owner())
    large = {"run": ["name"] * SMALL_BODY_BYTES_MAX}  # small bodies take no share

    def post_large():
        return api.request("POST", f"/experiments/{experiment}/scalars/data", json=large)

    def refused_beside_stalled():
        with ExitStack() as stalled:
            for _ in range(2):
                client = stalled.enter_context(connect(service))
                size = limits.JSON_BODY_BYTES_MAX
                client.sendall(head("POST", path, token_of(api), Content_Length=size) + b"{")
            for _ in range(TRIES):  # until the server has reserved their bytes
                response = post_large()
                if response.status_code == 429:
                    assert other.new_experiment()
                    return response
        return None  # it was slower than that, or has given them up

    refused = wait_until(refused_beside_stalled)
    assert refused.json()["code"] == "too_many_requests"
    assert int(refused.headers["Retry-After"]) > 0
    wait_until(lambda: post_large().status_code == 200)


def test_aborted_bodies_leave_no_memory_behind(service):
    (worker,) = [psutil.Process(service.process.pid)]
    request = head(
        "POST",
        f"/api/v1/experiments/{ABSENT}/scalars/data",
        Content_Length=SMALL_BODY_BYTES_MAX,
    )
    body = b"x" * (SMALL_BODY_BYTES_MAX - 1)

    def abort(times):
        for _ in range(times):
            with connect(service) as client:
                client.sendall(request + body)
        return worker.memory_info().rss

    first = abort(300)
    assert abort(1_500) - first < 1_500 * len(body) // 2


def test_unfinished_headers_are_ended_and_others_are_answered(service, http):
    with ExitStack() as slow:
        clients = [
            slow.enter_context(connect(service)) for _ in range(60)
        ]  # more than the server holds
        for client in clients:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
        wait_until(lambda: is_answered(http))
        assert all(is_ended(client) for client in clients)


CHUNKED = {"Content_Type": "application/json", "Transfer_Encoding": "chunked"}


def test_body_in_tiny_chunks_ends_its_connection(service, api):
    path = f"/api/v1/experiments/{api.new_experiment()}/scalars/data"
    with connect(service) as client:
        client.sendall(head("POST", path, token_of(api), **CHUNKED))
        client.sendall(b"1\r\n \r\n" * 10_000)
        assert is_ended(client)


def test_bodies_like_tiny_chunks_are_taken(service, api):
    path = f"/api/v1/experiments/{api.new_experiment()}/scalars/data"
    chunk = b"100\r\n" + b" " * 256 + b"\r\n"
    lines = b"\r\n" * 10_000 + b"{}"
    for headers, body in (
        (CHUNKED, chunk * 200 + b"2\r\n{}\r\n0\r\n\r\n"),
        ({"Content_Type": "application/json", "Content_Length": len(lines)}, lines),
    ):
        with connect(service) as client:
            client.sendall(head("POST", path, token_of(api), **headers) + body)
            assert status_of(client) == 200


def test_stalled_bodies_give_way_to_other_addresses(service, api):
    experiment = api.new_experiment(visibility="link")
    path = f"/api/v1/experiments/{experiment}/scalars"
    crowd, body = "127.0.0.2", b"{}".ljust(100)
    stalled = head(
        "POST",
        f"{path}/data",
        Content_Type="application/json",
        Content_Length=len(body),
        Expect="100-continue",
    )
    with ExitStack() as opened:
        tail = opened.enter_context(
            connect(service, source=crowd)
        )  # the first, and of the crowd's address
        tail.sendall(head("GET", f"{path}/tail"))
        assert status_of(tail) == 200
        held = []
        for _ in range(50):  # more than the server holds: those that find no place are closed
            client = opened.enter_context(connect(service, source=crowd))
            with suppress(ConnectionError):
                client.sendall(stalled)
                held += [client] if client.recv(100).startswith(b"HTTP/1.1 100") else []
        assert 30 <= len(held) < 40
        others = [opened.enter_context(connect(service)) for _ in range(5)]
        for other in others:
            other.sendall(head("GET", "/healthz"))
            assert status_of(other) == 204
        assert all(
            is_ended(client) for client in held[: len(others)]
        )  # those that have waited longest
        held[-1].sendall(body)
        assert status_of(held[-1]) == 200
        api.write(experiment, segment(stream(), 0, 1, packed_scalars("seen", [1])))
        wait_until(lambda: b"seen" in tail.recv(10_000))


def is_answered(http):
    """Return whether a request is answered; the server may close a new connection of the crowded
    address.
    """
    try:
        return http.get("/healthz").status_code == 204
    except httpx2.TransportError:
        return False


def test_answers_nobody_reads_are_refused_then_cut_off(service, api):
    experiment = api.new_experiment()
    values = np.random.default_rng(1).random(80_000)
    api.write(
        experiment,
        segment(stream(), 0, 1, packed_scalars("loss", np.arange(80_000), values, 1.7e9 + values)),
    )
    path = f"/api/v1/experiments/{experiment}/scalars/data?downsample=80000"
    request = head("GET", path, token_of(api))
    with ExitStack() as slow:
        slow_client, refused = (slow.enter_context(connect(service, 4096)) for _ in range(2))
        slow_client.sendall(request)
        answer = slow_client.recv(1_000)
        assert answer.startswith(b"HTTP/1.1 200")
        refused.sendall(request)
        assert status_of(refused) == 429
        large = f"/experiments/{experiment}/scalars/data?downsample=80000&format="
        for format_ in ("csv", "arrow"):
            assert api.request("GET", large + format_).status_code == 429
        few = api.request("GET", f"/experiments/{experiment}/scalars/data?downsample=10")
        assert few.status_code == 200
        wait_until(lambda: not is_connected(service, slow_client))
        assert api.request("GET", f"/experiments/{experiment}/scalars").status_code == 200
        assert received(slow_client) < int(
            re.search(rb"content-length: (\d+)", answer).group(1)
        ) - len(answer)


def received(client):
    """Return the number of bytes until the server closes the connection."""
    count = 0
    try:
        while piece := client.recv(1_000_000):
            count += len(piece)
    except ConnectionResetError:
        pass
    return count


TINY = b"1\r\nA\r\n" * 10_000


def test_tiny_chunks_behind_whole_request_end_it(service):
    first = head("POST", "/nowhere", Content_Length=5) + b"hello"
    with connect(service) as client:
        client.sendall(first + head("POST", "/nowhere", Transfer_Encoding="chunked") + TINY)
        client.settimeout(4)
        assert received(client) < 1_000


def test_many_small_headers_end_connection(service):
    with connect(service) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"a:b\r\n" * 8_000 + b"\r\n")
        assert is_ended(client)


def test_head_over_limit_is_refused_readably(service):
    request = head("GET", "/" + "A" * 50 * HEAD_BYTES_MAX)
    with connect(service) as client:
        client.sendall(request)
        assert client.recv(10_000).startswith(b"HTTP/1.1 400 Bad Request")


def test_pipelined_requests_are_answered_in_order(service):
    requests = [
        head("POST", f"/nowhere?{number}", Content_Length=8_000) + b"x" * 8_000
        for number in range(5)
    ]
    with connect(service) as client:
        client.sendall(b"".join(requests) + head("GET", "/healthz", Connection="close"))
        answers = b""
        while piece := client.recv(100_000):
            answers += piece
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"404"] * 5 + [b"204"]


def connections_of(service):
    """Return the client connections that the server has open."""
    port = int(service.url.rpartition(":")[2])
    connections = psutil.Process(service.process.pid).net_connections()
    return [
        connection
        for connection in connections
        if connection.raddr and connection.laddr.port == port
    ]


def is_connected(service, client):
    """Return whether the server has the client's connection open."""
    port = client.getsockname()[1]
    return port in {connection.raddr.port for connection in connections_of(service)}
