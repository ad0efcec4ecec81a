"""Who makes a request, for sharing a worker fairly. This grants nothing: `auth/grants.py` alone makes grants."""

from __future__ import annotations

import ipaddress
import re
import time
from collections import OrderedDict
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import Scope

from tbservice import limits
from tbservice.admission.fair_queue import FairQueue
from tbservice.admission.shares import Caller
from tbservice.auth import grants
from tbservice.errors import TooManyRequests
from tbservice.store.pg.database import Database

READ_COOKIE: Final = "tbhub_read"
"""Name of the cookie in which a page keeps its read tokens."""

TOKEN_SEPARATOR: Final = "."  # noqa: S105 - no secret
"""Separates the tokens in that cookie: a comparison has one for each of its experiments."""

_LOOKUPS_MAX: Final = 8
_LOOKUPS_WAITING_MAX: Final = 100
_IN_QUERY: Final = re.compile(rb"(?:^|&)token=([0-9A-Za-z_]{1,100})(?:&|$)")
_READ: Final = re.compile(r"/(?:api/v[01]/experiments|experiment|compare)/([^/]{1,500})")
_IPV6_PREFIX: Final = 64  # the network that a provider gives to one customer
_TOKEN_CHARS_MAX: Final = 100  # longer ones are not looked at: no token is that long


class CallerLookup:
    """Finds the caller of each request.

    Which workspace a token belongs to is remembered for a minute. That is a hint for sharing only: a token that is
    revoked meanwhile still counts as its workspace's here, and opens nothing.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()
        self._lookups = FairQueue("token look-ups", _LOOKUPS_MAX, 2, _LOOKUPS_WAITING_MAX)

    async def identify(self, scope: Scope) -> Caller:
        """Return the caller of a request: its token's workspace, else its address.

        A token that cannot be looked up now, because too many of its address are, counts as its address.
        """
        key = _address(scope)
        address = Caller(key, is_anonymous=True, line=_experiment(scope) or key)
        digest = grants.parse_token_digest(_token(scope))
        if digest is None:
            return address
        caller = self._find_cached(digest)
        if caller is None:
            try:
                async with self._lookups.turn(address):
                    caller = self._find_cached(digest) or await self._look_up(digest)
            except TooManyRequests:
                return address
        return caller or address

    def _find_cached(self, digest: bytes) -> Caller | None:
        caller, valid_until = self._known.get(digest, (None, 0.0))
        return caller if time.monotonic() < valid_until else None

    async def _look_up(self, digest: bytes) -> Caller | None:
        try:
            caller = await run_in_threadpool(self._read, digest)
        except Exception:  # noqa: BLE001 - whatever is wrong with the database, the route meets it and says so
            return None
        if caller is not None:
            self._known[digest] = caller, time.monotonic() + limits.CALLER_CACHE_SECONDS
            self._known.move_to_end(digest)
            while len(self._known) > limits.CALLER_CACHE_TOKENS_MAX:
                self._known.popitem(last=False)
        return caller

    def _read(self, digest: bytes) -> Caller | None:
        with self._database.without_transaction() as db:
            found = grants.find_caller(db, digest)
        if found is None:
            return None
        key = f"workspace {found[0]}"
        return Caller(key, is_anonymous=False, line=key, is_reader=found[1])


def _address(scope: Scope) -> str:
    return f"address {customer_of(scope['client'][0] if scope.get('client') else '')}"


def customer_of(host: str) -> str:
    """Return the address, or the IPv6 network, that a provider gives to one customer."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # a Unix socket, or a test client
        return host[:_TOKEN_CHARS_MAX]
    mapped = getattr(address, "ipv4_mapped", None)  # an IPv4 client of a socket for both
    if mapped is not None or address.version == 4:  # noqa: PLR2004 - IP's version
        return str(mapped or address)
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))


def _experiment(scope: Scope) -> str | None:
    """Return the experiment, or the comparison, that a request's path names."""
    match = _READ.match(scope["path"])
    return match and match.group(1)


def page_tokens(cookie: str) -> list[str]:
    """Return the tokens in a page's part of a Cookie header; empty where it keeps none for an experiment.

    Only what can be a token is taken. The standard library's parser takes quadratic time for quoted values
    (CVE-2024-7592), and would do so in the event loop.
    """
    for pair in cookie.split(";"):
        name, _, value = pair.strip().partition("=")
        if name == READ_COOKIE and len(value) <= limits.COMPARISON_ITEMS_MAX * _TOKEN_CHARS_MAX:
            return value.split(TOKEN_SEPARATOR)
    return []


def _token(scope: Scope) -> str | None:
    """Return the token that a request shows first: in its header, its page's cookie or its query."""
    headers = Headers(scope=scope)
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if token:
        return token.strip() if scheme.lower() == "bearer" else None
    token = next(filter(None, page_tokens(headers.get("cookie", ""))), "")
    if not token and (match := _IN_QUERY.search(scope["query_string"])):
        token = match.group(1).decode()
    return token or None
