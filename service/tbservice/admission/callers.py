"""Identify the caller of a request, for sharing a worker fairly.

This authorizes nothing: only `auth/grants.py` makes grants.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import Scope

from tbservice import limits
from tbservice.admission.fair_queue import FairQueue
from tbservice.admission.shares import Caller
from tbservice.auth import grants
from tbservice.auth.tables import users
from tbservice.db.database import Database
from tbservice.errors import TooManyRequests
from tbservice.types.identifiers import UserId

CALLER_CACHE_SECONDS: Final = 60.0
"""Seconds for which a worker caches the caller of a token or of a public link."""

CALLER_CACHE_ITEMS_MAX: Final = 10_000
"""Items in that cache: tokens and public links."""

READ_COOKIE: Final = "tbhub_read"
"""Name of the cookie that stores the read tokens of a page."""

TOKEN_SEPARATOR: Final = "."  # noqa: S105 - no secret
"""Separator of the tokens in that cookie: a comparison has one per experiment."""

_HOST_PREFIX: Final = "__Host-"
"""Prefix of a cookie's name that browsers accept only over https, from this host, for all paths.

A page of a sibling domain can therefore not plant a session of its own (RFC 6265bis, 4.1.3.2).
"""

_SESSION_COOKIE: Final = "tbhub_session"

_LOOKUPS_MAX: Final = 8
_LOOKUPS_WAITING_MAX: Final = 100
_IN_QUERY: Final = re.compile(rb"(?:^|&)token=([0-9A-Za-z_]{1,100})(?:&|$)")
_READ: Final = re.compile(r"/(?:api/v[01]/experiments|experiment|compare)/([^/]{1,500})")

_CUSTOMER_PREFIX: Final = 64
"""Bits of a subnet, the least that a provider assigns to one customer (RFC 4291, 2.5.4)."""

_SITE_PREFIX: Final = 48
"""Bits of the network that anybody gets free of charge: 65,536 subnets (RFC 6177)."""

_NETWORKS_ITEMS_MAX: Final = 4_096
"""Hosts (items) whose networks are cached: to parse one takes longer than to reset it."""

_PREFIXES: Final = (_CUSTOMER_PREFIX, _SITE_PREFIX)
_SIGN_IN: Final = re.compile(r"/(?:sign-in|invitation)(/.*)?")
"""Paths by which somebody gets a session: an invitation can make an account and sign in."""

_ADDRESS_KEY: Final = "tbhub.address_caller"
"""Key of the ASGI scope for the caller by its address alone, made once."""

_TOKEN_CHARS_MAX: Final = 100
"""Characters above which a string cannot be a token."""


@dataclass(frozen=True, slots=True)
class _SessionKey:
    """The digest of a browser session."""

    digest: bytes


_Known = bytes | str | _SessionKey
"""Key to look up a caller by: the digest of a token, an experiment's id, or a session."""


class CallerLookup:
    """The lookup of each request's caller.

    The account of a token, of a browser session, and of an experiment that is visible by link, are
    cached for `CALLER_CACHE_SECONDS`. A token that is revoked in the meantime still counts against
    its account's share, but gives no access.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: OrderedDict[_Known, tuple[Caller, float]] = OrderedDict()
        self._lookups = FairQueue("token look-ups", _LOOKUPS_MAX, 2, _LOOKUPS_WAITING_MAX)

    async def identify(self, scope: Scope) -> Caller:
        """Return the caller of a request.

        It is the account of the token in its header, or the person of its browser session; the
        account of another token; without any, the readers of the account whose public link it
        uses; or else its address, also if the lookup fails because too many lookups of the address
        wait or the database does not respond.
        """
        address = caller_by_address(scope)
        session, digest = _shown(scope)
        # Before the token of a page: a person who is signed in works on their own share, not on
        # that of the readers of a link.
        if session is not None and (caller := await self._find(session, address)):
            return caller
        if digest is not None:
            return await self._find(digest, address) or address

        experiment = _experiment(scope)
        if experiment is not None and (readers := await self._find(experiment, address)):
            return replace(readers, line=experiment, client=address.client, network=address.network)
        return address

    def find_account(self, scope: Scope) -> Caller | None:
        """Return the account of the session or token of a request, if it was looked up before.

        Returns None for its readers, who may be anybody. The session or token may have ended since:
        this is for the pace of requests, before any work.
        """
        for shown in _shown(scope):
            if shown is not None and (known := self._known.get(shown)):
                caller = known[0]
                return None if caller.is_reader else caller
        return None

    async def identify_token(self, secret: str | None, host: str) -> Caller:
        """Return the caller of a gRPC call with this token, if any, from this address.

        It is found as `identify` finds that of a request.
        """
        address = address_caller(host)
        digest = grants.parse_token_digest(secret)
        return address if digest is None else await self._find(digest, address) or address

    async def _find(self, known: _Known, address: Caller) -> Caller | None:
        """Return the caller of a digest, or the readers of a public experiment."""
        if caller := self._find_cached(known):
            return caller
        try:
            async with self._lookups.turn(address):
                # Once more in the cache: while this waited, another request may have looked it up.
                return self._find_cached(known) or await self._look_up(known)
        except TooManyRequests:
            return None

    def _find_cached(self, known: _Known) -> Caller | None:
        caller, valid_until = self._known.get(known, (None, 0.0))
        return caller if time.monotonic() < valid_until else None

    async def _look_up(self, known: _Known) -> Caller | None:
        try:
            caller = await run_in_threadpool(self._read, known)
        except Exception:  # noqa: BLE001 - the route's own query reports a database error
            return None
        if caller is None:
            self._known.pop(known, None)  # it has ended
        else:
            self._known[known] = caller, time.monotonic() + CALLER_CACHE_SECONDS
            # Callers that were looked up longest ago are the first to be dropped.
            self._known.move_to_end(known)
            while len(self._known) > CALLER_CACHE_ITEMS_MAX:
                self._known.popitem(last=False)
        return caller

    def _read(self, known: _Known) -> Caller | None:
        with self._database.without_transaction() as db:
            if isinstance(known, _SessionKey):
                user_id = grants.find_session_caller(db, known.digest)
                return None if user_id is None else _account(db, user_id)
            if isinstance(known, bytes):
                found = grants.find_caller(db, known)
            else:
                found = grants.find_link_caller(db, known)
            if found is None:
                return None
            user_id, workspace_id, is_reader = found
            client = f"workspace {workspace_id}" + ("'s readers" if is_reader else "")
            if user_id is None:
                key = f"workspace {workspace_id}"
                return Caller(key, is_anonymous=False, line=key, client=client, is_reader=is_reader)
            # A person can create workspaces: those of one person divide the share of that person.
            account = _account(db, user_id)
            return replace(account, client=client, is_reader=is_reader)


def _account(db: Connection, user_id: UserId) -> Caller:
    key = f"person {user_id}"
    families = tuple(f"family of {sponsor}" for sponsor in users.list_sponsors(db, user_id))
    return Caller(key, is_anonymous=False, line=key, client=key, families=families)


def caller_by_address(scope: Scope) -> Caller:
    """Return the caller of a request as if only its address were known."""
    caller: Caller | None = scope.get(_ADDRESS_KEY)
    if caller is None:
        caller = address_caller(scope["client"][0] if scope.get("client") else "")
        if _SIGN_IN.fullmatch(scope["path"]):
            caller = replace(caller, is_signing_in=True)
        scope[_ADDRESS_KEY] = caller
    return caller


def address_caller(host: str) -> Caller:
    """Return the caller of which only the address is known; a line is an address or a /48."""
    customer, site = (f"address {_network_of(host, size)}" for size in _PREFIXES)
    return Caller(customer, is_anonymous=True, line=site, client=customer, network=site)


def site_of(host: str) -> str:
    """Return the IPv4 address, or the IPv6 network that anybody gets, with many subnets."""
    return _network_of(host, _SITE_PREFIX)


def _network_of(host: str, prefix: int) -> str:
    """Return the IPv4 address, or the IPv6 network of so many bits."""
    # Cut first: behind a proxy, a client may choose this text, and the cache keeps it.
    return _parse_network(host[:_TOKEN_CHARS_MAX], prefix)


@lru_cache(maxsize=_NETWORKS_ITEMS_MAX)
def _parse_network(host: str, prefix: int) -> str:
    """Return the IPv4 address, or the IPv6 network of so many bits; another text unchanged."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # the peer of a Unix socket has no address
        return host

    # An IPv4 client of a dual-stack socket has a mapped address (RFC 4291, 2.5.5.2).
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None or address.version == 4:  # noqa: PLR2004 - IP's version
        return str(mapped or address)
    return str(ipaddress.ip_network((address, prefix), strict=False))


def client_network(request: HTTPConnection) -> str:
    """Return the address or IPv6 subnet of the client of a request; "" if it has no address."""
    return _network_of(request.client.host if request.client else "", _CUSTOMER_PREFIX)


def _experiment(scope: Scope) -> str | None:
    """Return the experiment or the comparison that a request's path names."""
    match = _READ.match(scope["path"])
    return match and match.group(1)


def session_cookie_name(request: HTTPConnection) -> str:
    """Return the name of the cookie of browser sessions, by the scheme of the public URL.

    One name only: over https, a cookie without the prefix may have been planted.
    """
    is_https = request.app.state.settings.public_url.startswith("https:")
    return f"{_HOST_PREFIX}{_SESSION_COOKIE}" if is_https else _SESSION_COOKIE


def session_cookie(request: HTTPConnection) -> str | None:
    """Return the secret of the browser session in a request's cookie; None for anything else.

    It need not be valid.
    """
    values = cookie_values(request.headers.get("cookie", ""), session_cookie_name(request))
    return next(filter(grants.parse_session_digest, values), None)


def page_tokens(cookie: str) -> list[str]:
    """Return the tokens that a Cookie header has for a page; empty if it has none.

    Too long values are ignored.
    """
    for value in cookie_values(cookie, READ_COOKIE):
        if len(value) <= limits.COMPARISON_ITEMS_MAX * _TOKEN_CHARS_MAX:
            return value.split(TOKEN_SEPARATOR)
    return []


def cookie_values(cookie: str, wanted: str) -> Iterator[str]:
    """Yield the values of the cookies with a name in a Cookie header.

    This does not use `http.cookies`, which parses quoted values in quadratic time (CVE-2024-7592)
    and would block the event loop.
    """
    for pair in cookie.split(";"):
        name, _, value = pair.strip().partition("=")
        if name == wanted and value:
            yield value


def _shown(scope: Scope) -> tuple[_SessionKey | None, bytes | None]:
    """Return the session and the digest of the token that a request shows; neither need be valid.

    A token in the header is the only one that counts.
    """
    headers = Headers(scope=scope)
    session = None
    if "authorization" not in headers:
        session = grants.parse_session_digest(_session(scope, headers))
    digest = grants.parse_token_digest(_token(scope, headers))
    return None if session is None else _SessionKey(session), digest


def _session(scope: Scope, headers: Headers) -> str | None:
    """Return the secret of the browser session of a request, if it has one."""
    if _SESSION_COOKIE not in headers.get("cookie", "") or "app" not in scope:
        return None
    return session_cookie(HTTPConnection(scope))


def _token(scope: Scope, headers: Headers) -> str | None:
    """Return the first token of a request: of its header, its page's cookie or its query."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if token:
        return token.strip() if scheme.lower() == "bearer" else None
    token = next(filter(None, page_tokens(headers.get("cookie", ""))), "")
    if not token and (match := _IN_QUERY.search(scope["query_string"])):
        token = match.group(1).decode()
    return token or None
