"""Addresses of a forwarder: where it listens, the server that it calls, and what it adds."""

from __future__ import annotations

import urllib.parse
from typing import Final, NamedTuple

from tbupload.errors import UsageError

_PORTS: Final = {"http": 80, "https": 443}
_PORT_MAX: Final = 65_535


class GrpcTarget(NamedTuple):
    """A server as gRPC names it, and whether to speak TLS with it."""

    address: str
    is_secure: bool


def parse_target(server: str) -> GrpcTarget:
    """Return the target of a URL that `check_server` has accepted.

    Raises UsageError if it has a path, which gRPC has no place for.
    """
    parts = urllib.parse.urlsplit(server)
    if parts.path.strip("/"):
        raise UsageError(f"{server} has a path: name only the host and the port of the gRPC server")
    host = parts.hostname or ""
    port = parts.port or _PORTS[parts.scheme]
    return GrpcTarget(_join(host, port), parts.scheme == "https")


def parse_listen(text: str) -> str:
    """Return `HOST:PORT` as gRPC writes it. Raises UsageError for anything else."""
    host, separator, port = text.rpartition(":")
    host = host.strip("[]")
    if not separator or not host or not port.isdecimal() or int(port) > _PORT_MAX:
        raise UsageError(f"--listen {text!r} is not HOST:PORT, such as 127.0.0.1:6789")
    return _join(host, int(port))


def check_experiment(name: str | None) -> str | None:
    """Return a name that is sent with each call. Raises UsageError if gRPC cannot send it.

    Otherwise each call would wait for its deadline, without a word.
    """
    if name is not None and not (name.isascii() and name.isprintable()):
        raise UsageError("--experiment must be printable ASCII, as names in Katib are")
    return name


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
