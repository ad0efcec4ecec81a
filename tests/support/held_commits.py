"""A proxy from one node of a cluster to another that holds back the second half of each commit."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from support.tls_proxy import forward
from tbservice.local.embedded.ports import LOOPBACK

_COMMIT = b"COMMIT PREPARED"
_SECONDS_MAX = 60


class HeldCommits:
    """Carries connections to a node; what was prepared there is committed after `release`."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._released = threading.Event()
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self.is_holding = threading.Event()
        """Set once a commit has come: it is committed on the node where it was made."""

    def serve(self) -> None:
        """Accept connections until the proxy is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=[client], daemon=True).start()

    def release(self) -> None:
        """Let the commits that are held arrive, and all later ones."""
        self._released.set()

    def close(self) -> None:
        """Accept no further connections."""
        self.release()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _carry(self, client: socket.socket) -> None:
        with closing(client), closing(socket.create_connection((LOOPBACK, self._target))) as server:
            back = threading.Thread(target=forward, args=[server, client], daemon=True)
            back.start()
            with suppress(OSError):
                while piece := client.recv(65_536):
                    if _COMMIT in piece:
                        self.is_holding.set()
                        self._released.wait(_SECONDS_MAX)
                    server.sendall(piece)
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            back.join()


@contextmanager
def held_commits(port: int) -> Iterator[HeldCommits]:
    """Run a proxy to the node with this port until the block ends."""
    proxy = HeldCommits(port)
    thread = threading.Thread(target=proxy.serve)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()
