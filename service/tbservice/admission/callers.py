"""Who makes a request, for sharing a worker fairly. This grants nothing: `domain/access.py` alone makes grants."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import Scope

from tbservice import limits
from tbservice.admission.shares import FairQueue
from tbservice.domain import access
from tbservice.store.database import Database
from tbservice.types import WorkspaceId

READ_COOKIE: Final = "tbhub_read"
"""Name of the cookie in which a page keeps its read tokens."""

TOKEN_SEPARATOR: Final = "."  # noqa: S105 - no secret
"""Separates the tokens in that cookie: a comparison has one for each of its experiments."""

_LOOKUPS_MAX: Final = 2
_LOOKUPS_WAITING_MAX: Final = 100
_IPV6_PREFIX: Final = 64  # the network that a provider gives to one customer
_TOKEN_CHARS_MAX: Final = 100  # longer ones are not looked at: no token is that long


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose share a request uses: a workspace's, or that of a client address without a valid token."""

    key: str
    is_anonymous: bool


PROBE: Final = Caller("probe", is_anonymous=False)
"""Health checks and metrics, so that no load keeps a balancer from asking."""


class Callers:
    """Finds the caller of each request.

    Which workspace a token belongs to is remembered for a minute. That is a hint for sharing only: a token that is
    revoked meanwhile still counts as its workspace's here, and opens nothing.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: OrderedDict[bytes, tuple[WorkspaceId, float]] = OrderedDict()
        self._lookups = FairQueue("token look-ups", _LOOKUPS_MAX, 1, _LOOKUPS_WAITING_MAX)

    async def identify(self, scope: Scope) -> Caller:
        """Return the caller of a request: its token's workspace, else its address.

        Raises TooManyRequests when an address has too many unknown tokens looked up at once.
        """
        address = Caller(_address(scope), is_anonymous=True)
        digest = access.digest_of(_token(scope))
        if digest is None:
            return address
        workspace_id = self._recall(digest)
        if workspace_id is None:
            async with self._lookups.turn(address):
                workspace_id = self._recall(digest) or await self._look_up(digest)
        return address if workspace_id is None else Caller(f"workspace {workspace_id}", is_anonymous=False)

    def _recall(self, digest: bytes) -> WorkspaceId | None:
        workspace_id, valid_until = self._known.get(digest, (None, 0.0))
        return workspace_id if time.monotonic() < valid_until else None

    async def _look_up(self, digest: bytes) -> WorkspaceId | None:
        try:
            workspace_id = await run_in_threadpool(self._read, digest)
        except Exception:  # noqa: BLE001 - whatever is wrong with the database, the route meets it and says so
            return None
        if workspace_id is not None:
            self._known[digest] = workspace_id, time.monotonic() + limits.caller_hint_seconds
            self._known.move_to_end(digest)
            while len(self._known) > limits.caller_hint_tokens_max:
                self._known.popitem(last=False)
        return workspace_id

    def _read(self, digest: bytes) -> WorkspaceId | None:
        with self._database.without_transaction() as db:
            return access.find_workspace(db, digest)


def _address(scope: Scope) -> str:
    host = scope["client"][0] if scope.get("client") else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # a Unix socket, or a test client
        return f"address {host[:_TOKEN_CHARS_MAX]}"
    mapped = getattr(address, "ipv4_mapped", None)  # an IPv4 client of a socket for both
    if mapped is not None or address.version == 4:  # noqa: PLR2004 - IP's version
        return f"address {mapped or address}"
    return f"address {ipaddress.ip_network((address, _IPV6_PREFIX), strict=False)}"


def _token(scope: Scope) -> str | None:
    """Return the token that a request shows first: in its header, its page's cookie or its query."""
    headers = Headers(scope=scope)
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if token:
        return token.strip() if scheme.lower() == "bearer" else None
    if READ_COOKIE in headers.get("cookie", ""):
        try:
            morsel = SimpleCookie(headers["cookie"]).get(READ_COOKIE)
        except CookieError:
            morsel = None
        tokens = morsel.value.split(TOKEN_SEPARATOR) if morsel is not None else []
        token = next(filter(None, tokens), "")
    elif b"token=" in scope["query_string"]:
        token = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=1_000).get("token", [""])[0]
    return token or None
