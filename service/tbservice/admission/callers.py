"""Identify the caller of a request, for sharing a worker fairly.

This authorizes nothing: only `auth/grants.py` makes grants.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections import OrderedDict
from dataclasses import replace
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
"""Name of the cookie that stores the read tokens of a page."""

TOKEN_SEPARATOR: Final = "."  # noqa: S105 - no secret
"""Separator of the tokens in that cookie: a comparison has one per experiment."""

_LOOKUPS_MAX: Final = 8
_LOOKUPS_WAITING_MAX: Final = 100
_IN_QUERY: Final = re.compile(rb"(?:^|&)token=([0-9A-Za-z_]{1,100})(?:&|$)")
_READ: Final = re.compile(r"/(?:api/v[01]/experiments|experiment|compare)/([^/]{1,500})")

_IPV6_PREFIX: Final = 64
"""Bits of a subnet, the least that a provider assigns to one customer (RFC 4291, 2.5.4)."""

_TOKEN_CHARS_MAX: Final = 100
"""Characters above which a string cannot be a token."""


class CallerLookup:
    """The lookup of each request's caller.

    The workspace of a token, and that of an experiment that is visible by link, are cached for
    `CALLER_CACHE_SECONDS`. A token that is revoked in the meantime still counts against its
    workspace's share, but gives no access.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: OrderedDict[bytes | str, tuple[Caller, float]] = OrderedDict()
        self._lookups = FairQueue("token look-ups", _LOOKUPS_MAX, 2, _LOOKUPS_WAITING_MAX)

    async def identify(self, scope: Scope) -> Caller:
        """Return the caller of a request.

        It is the workspace of its token; without a token, the readers of the workspace whose public
        link it uses; or else its address, also if the lookup fails because too many lookups of the
        address wait or the database does not respond.
        """
        experiment = _experiment(scope)
        address = address_caller(scope["client"][0] if scope.get("client") else "")
        if experiment is not None:
            address = replace(address, line=experiment)
        digest = grants.parse_token_digest(_token(scope))
        if digest is not None:
            return await self._find(digest, address) or address

        if experiment is not None and (readers := await self._find(experiment, address)):
            return replace(readers, line=experiment, client=address.client)
        return address

    async def identify_token(self, secret: str | None, host: str) -> Caller:
        """Return the caller of a gRPC call with this token, if any, from this address.

        It is found as `identify` finds that of a request.
        """
        address = address_caller(host)
        digest = grants.parse_token_digest(secret)
        return address if digest is None else await self._find(digest, address) or address

    async def _find(self, known: bytes | str, address: Caller) -> Caller | None:
        """Return the caller of a token's digest, or the readers of a public experiment."""
        if caller := self._find_cached(known):
            return caller
        try:
            async with self._lookups.turn(address):
                return self._find_cached(known) or await self._look_up(known)
        except TooManyRequests:
            return None

    def _find_cached(self, known: bytes | str) -> Caller | None:
        caller, valid_until = self._known.get(known, (None, 0.0))
        return caller if time.monotonic() < valid_until else None

    async def _look_up(self, known: bytes | str) -> Caller | None:
        try:
            caller = await run_in_threadpool(self._read, known)
        except Exception:  # noqa: BLE001 - the route's own query reports a database error
            return None
        if caller is not None:
            self._known[known] = caller, time.monotonic() + limits.CALLER_CACHE_SECONDS
            self._known.move_to_end(known)
            while len(self._known) > limits.CALLER_CACHE_ITEMS_MAX:
                self._known.popitem(last=False)
        return caller

    def _read(self, known: bytes | str) -> Caller | None:
        with self._database.without_transaction() as db:
            if isinstance(known, bytes):
                found = grants.find_caller(db, known)
            else:
                owner = grants.find_link_owner(db, known)
                found = None if owner is None else (owner, True)
        if found is None:
            return None
        workspace_id, is_reader = found
        key = f"workspace {workspace_id}"
        client = f"{key}'s readers" if is_reader else key
        return Caller(key, is_anonymous=False, line=key, client=client, is_reader=is_reader)


def address_caller(host: str) -> Caller:
    """Return the caller of which only the address is known."""
    key = f"address {customer_of(host)}"
    return Caller(key, is_anonymous=True, line=key, client=key)


def customer_of(host: str) -> str:
    """Return the IPv4 address or IPv6 network that a provider assigns to one customer."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # the peer of a Unix socket has no address
        return host[:_TOKEN_CHARS_MAX]

    # An IPv4 client of a dual-stack socket has a mapped address (RFC 4291, 2.5.5.2).
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None or address.version == 4:  # noqa: PLR2004 - IP's version
        return str(mapped or address)
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))


def _experiment(scope: Scope) -> str | None:
    """Return the experiment or the comparison that a request's path names."""
    match = _READ.match(scope["path"])
    return match and match.group(1)


def page_tokens(cookie: str) -> list[str]:
    """Return the tokens that a Cookie header has for a page; empty if it has none.

    Too long values are ignored. This does not use `http.cookies`, which parses quoted values in
    quadratic time (CVE-2024-7592) and would block the event loop.
    """
    for pair in cookie.split(";"):
        name, _, value = pair.strip().partition("=")
        if name == READ_COOKIE and len(value) <= limits.COMPARISON_ITEMS_MAX * _TOKEN_CHARS_MAX:
            return value.split(TOKEN_SEPARATOR)
    return []


def _token(scope: Scope) -> str | None:
    """Return the first token of a request: of its header, its page's cookie or its query."""
    headers = Headers(scope=scope)
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if token:
        return token.strip() if scheme.lower() == "bearer" else None
    token = next(filter(None, page_tokens(headers.get("cookie", ""))), "")
    if not token and (match := _IN_QUERY.search(scope["query_string"])):
        token = match.group(1).decode()
    return token or None
