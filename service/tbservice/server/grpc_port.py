"""The port of the gRPC server: it is checked and reserved before anything else starts."""

from __future__ import annotations

import importlib.util
import ipaddress
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from tbservice.errors import StartupError
from tbservice.server.bind import bind_socket
from tbservice.settings import Settings

_PACKAGES = ("grpc", "grpc_health", "grpc_reflection", "cmaes", "optuna", "scipy", "sklearn")
_INSTALL_HINT = (
    "the packages for gRPC are not installed: start with `make up KATIB=1`, or run "
    "pip install '.[service,katib]'"
)


@contextmanager
def reserve_grpc_port(settings: Settings) -> Iterator[Settings]:
    """Reserve the port during the block, and yield the settings with its number.

    Workers bind it with SO_REUSEPORT, at which the kernel would let them share it with another
    server of the same user; so it is bound without that first, and then kept by a socket that does
    not listen. Does nothing if `grpc_port` is None.

    Raises:
        StartupError: The port is in use, a package is missing, or TLS is not set up as needed.
    """
    if settings.grpc_port is None:
        yield settings
        return
    if any(importlib.util.find_spec(package) is None for package in _PACKAGES):
        raise StartupError(_INSTALL_HINT)
    _check_tls(settings)
    with bind_socket(settings.host, settings.grpc_port) as probe:
        port: int = probe.getsockname()[1]
    with bind_socket(settings.host, port, is_shared=True):
        yield settings.model_copy(update={"grpc_port": port})


def _check_tls(settings: Settings) -> None:
    certificate, key = settings.grpc_certificate_file, settings.grpc_key_file
    if (certificate is None) != (key is None):
        raise StartupError(
            "set both TBHUB_GRPC_CERTIFICATE_FILE and TBHUB_GRPC_KEY_FILE, or neither"
        )
    if certificate is not None and key is not None:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise StartupError(
                f"TBHUB_GRPC_CERTIFICATE_FILE and TBHUB_GRPC_KEY_FILE cannot be used: {error}"
            ) from error
    elif not (settings.grpc_plaintext or _is_loopback(settings.host)):
        raise StartupError(
            f"gRPC on {settings.host} needs TLS, because calls carry tokens: set "
            "TBHUB_GRPC_CERTIFICATE_FILE and TBHUB_GRPC_KEY_FILE, or TBHUB_GRPC_PLAINTEXT=true if "
            "a proxy that speaks TLS is the only way in"
        )


def _is_loopback(host: str) -> bool:
    try:
        addresses = {each[4][0] for each in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)
