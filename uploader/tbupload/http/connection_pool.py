"""The pool of connections to one server: timeouts, proxies, certificates."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final

import urllib3

from tbupload.errors import UsageError

TIMEOUT: Final = urllib3.Timeout(connect=10.0, read=120.0)
"""Seconds to connect, and to wait for the next bytes of an answer."""

TLS_PROBE_SECONDS: Final = 3.0
"""Time for each step of finding out whether a server speaks TLS."""

CONNECTIONS: Final = 4
"""Connections kept open to the server."""


def make_pool(server: str, cacert: Path | None) -> urllib3.PoolManager:
    """Return a pool for requests to the server, through the environment's proxy if there is one.

    Args:
        server: The server's URL.
        cacert: PEM file of the certificate authorities to trust; by default those of the system.

    Raises:
        UsageError: There is no such file, or it has no certificates.
    """
    if cacert is not None and not cacert.is_file():
        raise UsageError(f"{cacert}: no such file; --cacert takes a PEM file of certificates")
    # `block`: without it, urllib3 opens connections beyond maxsize and discards them after use
    # (https://urllib3.readthedocs.io/en/stable/advanced-usage.html#customizing-pool-behavior).
    options: dict[str, Any] = {"maxsize": CONNECTIONS, "block": True}
    if cacert is not None:
        _check_certificates(cacert)
        options["ca_certs"] = str(cacert)

    proxy = find_proxy(server)
    if proxy is None:
        return urllib3.PoolManager(**options)
    url = urllib.parse.urlsplit(proxy)
    if url.username is not None:
        credentials = (
            f"{urllib.parse.unquote(url.username)}:{urllib.parse.unquote(url.password or '')}"
        )
        # Decoded first: in a URL, "@" and ":" of a password are escaped (RFC 3986, section 3.2.1).
        options["proxy_headers"] = urllib3.make_headers(proxy_basic_auth=credentials)
    return urllib3.ProxyManager(proxy, **options)


def _check_certificates(cacert: Path) -> None:
    try:
        ssl.create_default_context(cafile=str(cacert))
    except OSError as error:  # SSLError as well
        reason = error.strerror if not isinstance(error, ssl.SSLError) else "it has no certificates"
        raise UsageError(
            f"{cacert}: {reason}; --cacert takes a PEM file of certificates"
        ) from error


def speaks_tls(server: str) -> bool:
    """Return whether a server that was addressed with http:, without a proxy, speaks TLS there."""
    url = urllib.parse.urlsplit(server)
    if url.scheme != "http" or url.hostname is None or find_proxy(server) is not None:
        return False
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent
    try:
        with (
            socket.create_connection((url.hostname, url.port or 80), TLS_PROBE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=url.hostname),
        ):
            return True
    except (OSError, ValueError):
        return False


def find_proxy(server: str) -> str | None:
    """Return the URL of the proxy for this server, or None.

    Reads HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, in lower case as well, by the rules of
    `urllib.request.getproxies`.
    """
    url = urllib.parse.urlsplit(server)
    # A proxy cannot reach this machine's loopback, and environments seldom name it in NO_PROXY.
    if is_loopback(server) or urllib.request.proxy_bypass(url.netloc):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if proxy is not None and "://" not in proxy:
        proxy = f"http://{proxy}"
    return proxy


def is_loopback(server: str) -> bool:
    """Return whether the server is on this machine: no proxy, and no use in compressing."""
    host = urllib.parse.urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
