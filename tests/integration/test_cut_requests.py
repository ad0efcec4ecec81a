"""Cancelled requests on a real uvicorn server with our connections: what its log says of them."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import contextmanager

import pytest
import uvicorn

from support.servers import LOOPBACK
from support.uploading import wait_until
from tbservice.admission.connections import Connection

REQUESTS = 3


class Application:
    """Never answers: below `/broken` because of an error, elsewhere because it takes too long."""

    def __init__(self):
        self.waiting = 0

    async def __call__(self, scope, _receive, send):
        if scope["path"] == "/broken":
            cancelled = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            await cancelled
        if scope["path"] == "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        self.waiting += 1
        await asyncio.sleep(60)


@contextmanager
def serving(application):
    """Run a server of the application; yield its port. It stops at once when the block ends."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        config = uvicorn.Config(
            application,
            http=Connection,
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=0,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def ask(port, path):
    """Return a connection on which a request was sent."""
    connection = socket.create_connection((LOOPBACK, port), 20)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}\r\n\r\n".encode())
    return connection


def received(connection):
    """Return all bytes until the server closes the connection."""
    with connection:
        pieces = []
        while piece := connection.recv(1_000):
            pieces.append(piece)
        return b"".join(pieces)


@pytest.mark.parametrize(("path", "status_line"), [("/", b""), ("/begun", b"HTTP/1.1 200 OK")])
def test_requests_cut_by_stop_are_one_line(caplog, path, status_line):
    application = Application()
    with serving(application) as port:
        asked = [ask(port, path) for _ in range(REQUESTS)]
        wait_until(lambda: application.waiting == REQUESTS)
    for answer in map(received, asked):
        assert answer.partition(b"\r\n")[0] == status_line
        assert not answer.endswith(b"0\r\n\r\n")  # the last chunk, with which an answer is whole
    (record,) = caplog.records
    assert (
        record.getMessage()
        == f"Cancel {REQUESTS} running task(s), timeout graceful shutdown exceeded"
    )
    assert record.exc_info is None


def test_cancelled_future_of_request_is_logged(caplog):
    with serving(Application()) as port, ask(port, "/broken") as connection:
        assert connection.recv(1_000).startswith(b"HTTP/1.1 500")
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.exc_info[0] is asyncio.CancelledError
