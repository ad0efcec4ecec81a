"""The pace of requests by account or address, kept before any work is done for them.

Each request costs the event loop a part of a millisecond, also one that is refused or that asks
only whether the service is alive. So each caller may send so many a second: further ones wait, and
are refused when the wait would be too long.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tbservice import metrics
from tbservice.admission.callers import CallerLookup, caller_by_address
from tbservice.admission.pace import Pace
from tbservice.admission.refusals import hold_refusal, wait_with_client
from tbservice.errors import TooManyRequests

ACCOUNT_PACE: Final = 4.0
"""Requests (items) of an account, in one worker, per request of an address without one.

It may work on two at once, an address on one: of the cheapest, this is about what it gets.
"""

FAMILY_PACES: Final = (12.0, 8.0, 4.0)
"""Requests (items) of all accounts of a family, likewise, by its level from the root.

The last is that of all further levels. Anybody can invite themselves.
"""

IPV6_SITE_PACE: Final = 2.0
"""Requests (items) of all subnets of an IPv6 network of 48 bits, which anybody gets, likewise."""

PROBE_PACE: Final = 0.2
"""Requests (items) of an address for `/healthz`, `/readyz` and `/metrics`, likewise."""

PEER_KEY: Final = "tbhub.peer"
"""Key of the ASGI scope for host and port of the connection's peer, which may be a proxy."""

PROBE_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths of load balancers and monitors, which wait in no queue."""

THIS_MACHINE: Final = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
"""Hosts of clients that are not paced; other loopback addresses are as strangers."""


class PacingMiddleware:
    """Middleware that delays or refuses requests of callers that send too many a second."""

    def __init__(self, app: ASGIApp, callers: CallerLookup, requests_per_second: float) -> None:
        """Begin with all callers quiet; 0 requests per second for no limit."""
        self._app = app
        self._callers = callers
        self._rate = requests_per_second
        self._pace = Pace()
        self._refusal = _encode_refusal(requests_per_second)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process one request, after a wait; respond 429 if that would be too long."""
        if scope["type"] != "http" or not self._rate or _is_from_this_machine(scope):
            await self._app(scope, receive, send)
            return

        policies, rates = self._rates(scope)
        seconds = self._pace.count(rates)
        if seconds == 0.0:
            await self._app(scope, receive, send)
            return
        index = self._pace.find_busiest(rates)
        policy, rate = policies[min(index, len(policies) - 1)], rates[index][1]
        if seconds is None:
            metrics.observe_over_share("requests a second")
            if await hold_refusal(scope):
                after = TooManyRequests.retry_after_seconds
                await self._refusal(scope, receive, _telling(send, policy, rate, f";t={after}"))
        elif await wait_with_client(scope, seconds):
            await self._app(scope, receive, _telling(send, policy, rate))

    def _rates(self, scope: Scope) -> tuple[Sequence[str], Sequence[tuple[str, float]]]:
        """Return whose request it is: an account's if it was seen before, or an address'.

        Else strangers behind the same address could delay an account. An address has a pace of its
        own for probes: a balancer may hide clients behind the address that its probes come from.
        The names of the paces come first; the last is that of all further ones.
        """
        address = caller_by_address(scope)
        if scope["path"] in PROBE_PATHS:
            return ("probes",), [(f"probes of {address.network}", self._rate * PROBE_PACE)]
        if account := self._callers.find_account(scope):
            rates = [(account.key, self._rate * ACCOUNT_PACE)]
            for level, family in enumerate(account.families):
                pace = FAMILY_PACES[min(level, len(FAMILY_PACES) - 1)]
                rates.append((family, self._rate * pace))
            return ("account", "family"), rates
        if address.network == address.key:
            return ("address",), [(address.key, self._rate)]
        site = address.network, self._rate * IPV6_SITE_PACE
        return ("address", "network"), [(address.key, self._rate), site]


def _telling(send: Send, policy: str, rate: float, reset: str = "") -> Send:
    """Return a `send` that adds the RateLimit fields of a caller that has used up its pace.

    Only then is it known what remains: nothing. Each worker has a pace of its own, and a client
    does not know which one it asks next. Fields as in draft-ietf-httpapi-ratelimit-headers-11.
    """
    quota, window = (int(rate), 1) if rate >= 1 else (1, math.ceil(1 / rate))

    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["RateLimit-Policy"] = f'"{policy}";q={quota};w={window}'
            headers["RateLimit"] = f'"{policy}";r=0{reset}'
        await send(message)

    return tell


def _is_from_this_machine(scope: Scope) -> bool:
    """Return whether a request comes from this machine, and not through a proxy.

    Uvicorn replaces the client by what a trusted proxy says, whatever that is.
    """
    peer = scope.get(PEER_KEY)
    # Identity and not equality: a proxy on this machine may name 127.0.0.1 as the client.
    return peer is None or (peer[0] in THIS_MACHINE and scope["client"] is peer)


def _encode_refusal(requests_per_second: float) -> Response:
    """Return the response to all refused requests, which is encoded once."""
    error = TooManyRequests(
        "too many requests come from your account, or without one from your address: an address "
        f"may send {requests_per_second:g} a second; try again"
    )
    headers = {"Retry-After": str(error.retry_after_seconds), "X-Content-Type-Options": "nosniff"}
    headers["Cache-Control"] = "no-store"
    content = json.dumps({"code": error.code, "detail": error.detail})
    return Response(content, error.status, headers, media_type="application/json")
