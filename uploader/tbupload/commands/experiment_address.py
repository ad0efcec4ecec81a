"""Resolve an ID, the beginning of one, a URL or a name to an experiment.

A URL of another server than the one in use is refused.
"""

from __future__ import annotations

import itertools
import re
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Final

from tbupload.errors import Refused, UploadError, UsageError
from tbupload.http.client import Client
from tbupload.http.connection_pool import is_loopback
from tbupload.http.response_schema import Json

ID_CHARS: Final = 22
"""Characters of an ID."""

PREFIX_CHARS_MIN: Final = 4
"""Characters of the beginning of an ID, at least."""

MATCHES_SHOWN: Final = 10
"""Experiments that an error lists, at most."""

PAGE_ITEMS: Final = 1_000
"""Experiments on a page, where all are looked through."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def find_experiment_id(text: str) -> str:
    """Return the ID from an experiment's ID or URL. Raise UsageError if `text` is neither."""
    match = re.search(r"/experiment/([0-9A-Za-z]+)(?:[/?#]|$)", text) or re.fullmatch(
        r"([0-9A-Za-z]+)", text
    )
    if match is None:
        raise UsageError(f"{text!r} is neither an experiment's ID nor its URL")
    return match[1]


def resolve_experiment_id(text: str, client: Client, *, is_deleted: bool = False) -> str:
    """Return the ID from an experiment's ID or URL, to be used before anything is done with it.

    The beginning of an ID is completed from the experiments that the token may list: with
    `is_deleted`, from those that can be restored. Only of a URL with another host than the server's
    address, the server is asked for the experiment: its public URL may differ from that address.

    Raises:
        UsageError: `text` is neither an ID nor a URL, a URL of another server, or the beginning of
            several IDs.
        ServerError: The server cannot be asked.
    """
    experiment_id = find_experiment_id(text)
    if text == experiment_id:
        return _complete_id(text, client, is_deleted=is_deleted)
    host = _host(text)
    if host is None or host == _host(client.server):
        return experiment_id
    public_host = None
    for url in _public_urls(client, experiment_id):
        public_host = _host(url)
        if public_host == host:
            return experiment_id
    raise UsageError(_other_server_text(text, host, client.server, public_host))


def resolve_named_id(text: str, client: Client) -> str:
    """Return the ID as `resolve_experiment_id` does, or else of the experiment of this name.

    Raises:
        UsageError: As there, or several have the name.
        UploadError: None has it, in the words that the server has for an unknown ID.
        ServerError: The server cannot be asked.
    """
    is_word = text.isascii() and text.isalnum()
    if is_word or "/experiment/" in text:
        experiment_id = resolve_experiment_id(text, client)
        if len(experiment_id) == ID_CHARS or not is_word:
            return experiment_id
    found = list(itertools.islice(client.list_experiments(text), PAGE_ITEMS))
    named = [each for each in found if each["name"] == text]
    if not named:
        named = [each for each in _list_archived(client, text) if each["name"] == text]
    if len(named) == 1:
        return str(named[0]["experiment_id"])
    if named:
        raise UsageError(f"several experiments are named {text!r}: {_list_matches(named)}")
    names = dict.fromkeys(repr(each["name"]) for each in found[:MATCHES_SHOWN])
    advice = f"; did you mean {', '.join(names)}?" if names else " (`tbupload list` shows all)"
    raise UploadError(f"there is no experiment {text}, or it is not yours{advice}")


def _complete_id(text: str, client: Client, *, is_deleted: bool) -> str:
    """Return the ID that begins with a text; the text itself if it is one, or none begins so."""
    if not PREFIX_CHARS_MIN <= len(text) < ID_CHARS:
        return text
    try:
        listed = client.list_deleted() if is_deleted else client.list_experiments(items=PAGE_ITEMS)
        matches = [each for each in listed if each["experiment_id"].startswith(text)]
    except Refused:  # a token that may not list
        return text
    if not matches and not is_deleted:
        archived = _list_archived(client)
        matches = [each for each in archived if each["experiment_id"].startswith(text)]
    if len(matches) > 1:
        raise UsageError(f"several IDs begin with {text!r}: {_list_matches(matches)}")
    return str(matches[0]["experiment_id"]) if matches else text


def _list_archived(client: Client, query: str | None = None) -> list[Json]:
    """Return the first archived experiments; none from an older server, which has no archive."""
    selection = {"archived": "true"}
    archived = client.list_experiments(query, items=PAGE_ITEMS, selection=selection)
    try:
        return list(itertools.islice(archived, PAGE_ITEMS))
    except Refused:
        return []


def _list_matches(experiments: Sequence[Json]) -> str:
    """Return IDs and names, of the first ones if there are many."""
    shown = [
        f"{each['experiment_id']} ({each['name'] or 'unnamed'})"
        for each in experiments[:MATCHES_SHOWN]
    ]
    more = len(experiments) - len(shown)
    return ", ".join([*shown, *([f"and {more:,} more"] if more else [])])


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
