"""Which experiment an ID or a URL names: a URL of another server than the one in use is refused."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator
from typing import Final

from tbupload.errors import Refused, UsageError
from tbupload.http.client import Client
from tbupload.http.connection_pool import is_loopback

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def find_experiment_id(text: str) -> str:
    """Return the ID from an experiment's ID or URL. Raise UsageError if `text` is neither."""
    match = re.search(r"/experiment/([0-9A-Za-z]+)(?:[/?#]|$)", text) or re.fullmatch(
        r"([0-9A-Za-z]+)", text
    )
    if match is None:
        raise UsageError(f"{text!r} is neither an experiment's ID nor its URL")
    return match[1]


def resolve_experiment_id(text: str, client: Client) -> str:
    """Return the ID from an experiment's ID or URL, to be used before anything is done with it.

    Only of a URL with another host than the server's address, the server is asked for the
    experiment: its public URL may differ from that address.

    Raises:
        UsageError: `text` is neither an ID nor a URL, or a URL of another server.
        ServerError: The server cannot be asked.
    """
    experiment_id = find_experiment_id(text)
    host = _host(text)
    if host is None or host == _host(client.server):
        return experiment_id
    public_host = None
    for url in _public_urls(client, experiment_id):
        public_host = _host(url)
        if public_host == host:
            return experiment_id
    raise UsageError(_other_server_text(text, host, client.server, public_host))


def _public_urls(client: Client, experiment_id: str) -> Iterator[str]:
    """Yield the URL that the server has for the experiment, as far as the token may know it."""
    for find in (
        lambda: client.get_experiment(experiment_id)["url"],
        lambda: client.get_streams(experiment_id).url,  # a token that may only append
        lambda: next(
            (
                str(each["url"])
                for each in client.list_deleted()
                if each["experiment_id"] == experiment_id and "url" in each
            ),
            None,
        ),
    ):
        try:
            url = find()
        except Refused:
            continue
        if url is not None:
            yield url
            return


def _other_server_text(text: str, host: str, server: str, public_host: str | None) -> str:
    """Return what is wrong, and what to type instead; the URL may contain the secret of a link."""
    address = text.partition("/experiment/")[0]
    also = "" if public_host in {None, _host(server)} else f", which is {public_host} as well"
    return (
        f"this is the address of an experiment on {host}, but the server in use is {server}{also}: "
        f"add --server {address} (or --profile) to use that one, or give the experiment's ID alone "
        f"to use {server}. Nothing was done"
    )


def _host(address: str) -> str | None:
    """Return host and port of a URL, None without one; the names of this machine are the same."""
    try:
        parts = urllib.parse.urlsplit(address if "//" in address else f"//{address}")
        name, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError as error:
        raise UsageError("the address of the experiment is not a valid URL") from error
    if "/" not in address or not name:
        return None
    if is_loopback(f"http://{parts.netloc.rpartition('@')[2]}"):
        name = "localhost"
    return name if port in {None, _DEFAULT_PORTS.get(parts.scheme)} else f"{name}:{port}"
