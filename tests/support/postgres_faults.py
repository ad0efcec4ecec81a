"""A proxy before a real PostgreSQL that counts statements, and breaks the connection at selected
ones.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

LOOPBACK = "127.0.0.1"
_BEFORE_STARTUP = frozenset({80877103, 80877104})
"""SSLRequest and GSSENCRequest: the client asks for encryption first, and is told that there is
none.
"""
_OF_A_NODE = b"\0citus_internal "
"""In the parameters of a connection from one node of a cluster to another: its application_name."""
_EXECUTE = b"E"
_ENDS_OF_TRIPS = b"QS"
"""Query, and Sync after any number of Parse, Bind and Execute: then the client waits for an answer.
"""
_FLUSH = b"H" + struct.pack("!I", 4)
_PARTS_OF_STATEMENTS = b"PBDECQS"

Choice = Callable[[int, str, int], str]
"""From a statement's number, its text, and how often that text has come (both counted from 1): the
fault, or "".
"""


class PostgresFaults:
    """Counts the statements of all connections, COMMIT included, and breaks the connections of
    selected ones.

    "before": the statement never arrives. "after": it is executed, and its result is lost; after a
    COMMIT, only the database knows that it was executed. "held": it waits until `then` returns.
    """

    def __init__(self, target_url: str, nodes: Sequence[int] = ()) -> None:
        """Listen for the server of the URL, and for each node of its cluster, by port."""
        parts = urlsplit(target_url)
        gates = {port: _Gate(LOOPBACK, port) for port in nodes}
        self._first = gates.get(parts.port) or _Gate(parts.hostname, parts.port)
        self.gates = gates or {parts.port: self._first}
        """The listeners, by the port of the server behind."""
        self.url = urlunsplit(
            parts._replace(
                netloc=f"{parts.username}:{parts.password}@{LOOPBACK}:{self._first.port}"
            )
        )
        self._lock = threading.Lock()
        self.disarm()

    def arm(self, choose: Choice, *, then: Callable[[], None] | None = None) -> None:
        """Ask `choose` about every statement from now on; `then` is called when a selected one has
        arrived.
        """
        with self._lock:
            self._choose, self._then = choose, then
            self._occurrences: Counter[str] = Counter()
            self.statements: list[str] = []
            self.hits = self.hit_port = self.trips = 0

    def disarm(self) -> None:
        """Let every statement pass, and count from zero."""
        self.arm(lambda *_: "")

    def fault_at(self, statement: str, client_port: int) -> str:
        """Record a statement; return its fault, or "". `client_port` tells whose it is."""
        with self._lock:
            self.statements.append(statement)
            self._occurrences[statement] += 1
            fault = self._choose(len(self.statements), statement, self._occurrences[statement])
            assert fault in {"", "before", "after", "held"}
            if fault:
                self.hits += 1
                self.hit_port = client_port
            then = self._then
        if fault and then is not None:
            then()
        return fault

    def redirect(self, server_url: str, target_url: str) -> None:
        """Carry new connections for a server to another one, as a virtual address does after a
        failover.
        """
        target = urlsplit(target_url)
        self.gates[urlsplit(server_url).port].target = (target.hostname, target.port)

    def note_trip(self) -> None:
        """Count a round trip: a client waits for the results of one statement or several."""
        with self._lock:
            self.trips += 1

    def serve(self, gate: _Gate) -> None:
        """Accept connections until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = gate.listener.accept()
                threading.Thread(target=self._carry, args=(client, gate), daemon=True).start()

    def close(self) -> None:
        """Accept no further connections."""
        for gate in self.gates.values():
            with suppress(OSError):
                gate.listener.shutdown(socket.SHUT_RDWR)
            gate.listener.close()

    def _carry(self, client: socket.socket, gate: _Gate) -> None:
        with closing(client):
            try:
                server = socket.create_connection(gate.target)
            except OSError:  # the database is down: so is this connection
                return
            with closing(server):
                _Connection(self, client, server).run()


class _Gate:
    """A listener of a free port, and the server that its connections are carried to."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self.listener.getsockname()[1]


class _Connection:
    """A client's connection, and the one to the server."""

    def __init__(
        self, faults: PostgresFaults, client: socket.socket, server: socket.socket
    ) -> None:
        self._faults = faults
        self._client = client
        self._server = server
        self._prepared: dict[bytes, str] = {}
        self._is_mute = False
        self._client_port = client.getpeername()[1]
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self) -> None:
        """Forward messages until one side closes, or a fault breaks both."""
        back = threading.Thread(target=self._carry_back, daemon=True)
        back.start()
        with suppress(OSError, EOFError):
            if _OF_A_NODE in self._start_up():
                self._carry_on()
            unit, text = b"", ""
            for kind, message in self._messages():
                if kind not in _PARTS_OF_STATEMENTS:
                    self._server.sendall(unit + message)
                    unit = b""
                    continue
                unit += message
                text = self._text(kind, message[5:]) or text
                if kind in _ENDS_OF_TRIPS:
                    self._faults.note_trip()
                if kind == _EXECUTE or (kind in _ENDS_OF_TRIPS and text):
                    if not self._pass_on(unit, text, back):
                        break
                    unit, text = b"", ""
                elif kind in _ENDS_OF_TRIPS:
                    self._server.sendall(unit)
                    unit = b""
        self._break()
        back.join()

    def _pass_on(self, unit: bytes, text: str, back: threading.Thread) -> bool:
        fault = self._faults.fault_at(text, self._client_port)
        if fault == "before":
            return False
        self._is_mute = fault == "after"
        self._server.sendall(unit)
        if self._is_mute:
            self._server.sendall(
                _FLUSH
            )  # it may be one of several that are to be answered together
            back.join()  # it ends with the answer
        return not self._is_mute

    def _start_up(self) -> bytes:
        """Forward the messages that open the connection; return the client's parameters."""
        while True:
            head = _receive(self._client, 8)
            length, code = struct.unpack("!II", head)
            parameters = _receive(self._client, length - 8)
            self._server.sendall(head + parameters)
            if code not in _BEFORE_STARTUP:
                return parameters

    def _carry_on(self) -> None:
        """Forward everything: what a cluster's nodes say to each other is no client's statement."""
        while piece := self._client.recv(65_536):
            self._server.sendall(piece)
        raise EOFError

    def _messages(self) -> Iterator[tuple[bytes, bytes]]:
        while True:
            head = _receive(self._client, 5)
            (length,) = struct.unpack("!I", head[1:])
            yield head[:1], head + _receive(self._client, length - 4)

    def _text(self, kind: bytes, payload: bytes) -> str:
        """Return the SQL of a message, or "".

        The text of a prepared statement is known from its Parse message.
        """
        if kind == b"Q":
            return payload[:-1].decode()
        if kind == b"P":
            name, statement = payload.split(b"\0")[:2]
            self._prepared[name] = statement.decode()
            return self._prepared[name]
        if kind == b"B":
            return self._prepared.get(payload.split(b"\0")[1], "")
        return ""

    def _carry_back(self) -> None:
        with suppress(OSError):
            while (piece := self._server.recv(65_536)) and not self._is_mute:
                self._client.sendall(piece)
        self._break()

    def _break(self) -> None:
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _receive(source: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        piece = source.recv(count - len(content))
        if not piece:
            raise EOFError
        content += piece
    return content


@contextmanager
def postgres_faults(target_url: str, nodes: Sequence[int] = ()):
    """Run a PostgresFaults before the database at `target_url`, disarmed; its `url` opens the same
    database.

    `nodes`: the ports of all nodes of its cluster, which must find each other by those of `gates`.
    """
    proxy = PostgresFaults(target_url, nodes)
    threads = [threading.Thread(target=proxy.serve, args=[gate]) for gate in proxy.gates.values()]
    for thread in threads:
        thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        for thread in threads:
            thread.join()
