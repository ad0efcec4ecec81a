"""The 429 response, which is sent outside the application, and later than it could be."""

from __future__ import annotations

import asyncio
import math
from typing import Final

from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from tbservice import limits
from tbservice.admission.callers import caller_by_address
from tbservice.admission.pace import Pace
from tbservice.errors import TooManyRequests

ERROR_CODE_KEY = "tbhub.error_code"
"""Key of the ASGI scope for the error code of a refused request, which the metrics read."""

LEFT_KEY: Final = "tbhub.has_left"
"""Key of the ASGI scope for the `asyncio.Event` that the client has disconnected."""

REFUSALS_PER_SECOND: Final = 20.0
"""Refusals (items) that an address or IPv6 network of 48 bits gets a second, in one worker.

Further ones are held for longer, so that what a flood costs does not grow with its connections.
"""

_pace: Final = Pace()


def refuse(scope: Scope, error: TooManyRequests) -> Response:
    """Return the response to a request that is over its caller's share, and record its code."""
    scope[ERROR_CODE_KEY] = error.code
    headers = {"Retry-After": str(error.retry_after_seconds), "X-Content-Type-Options": "nosniff"}
    return JSONResponse({"code": error.code, "detail": error.detail}, error.status, headers)


async def hold_refusal(scope: Scope) -> bool:
    """Wait `REFUSAL_SECONDS` before a refusal is sent: a client that repeats at once costs little.

    Waits for longer while the address gets too many. Returns False as soon as the client
    disconnects, so that a worker holds no more refusals than it has connections. A refusal that
    nobody waited for is not counted: a client that always leaves would otherwise make all others at
    its address wait for hours.
    """
    if LEFT_KEY not in scope:  # as in tests of the application
        return True
    rates = [(caller_by_address(scope).network, REFUSALS_PER_SECOND)]
    queued_seconds = _pace.count(rates, wait_seconds_max=math.inf) or 0.0
    is_there = await wait_with_client(scope, limits.REFUSAL_SECONDS + queued_seconds)
    if not is_there:
        _pace.uncount(rates)
    return is_there


async def wait_with_client(scope: Scope, seconds: float) -> bool:
    """Wait so long; return False as soon as the client disconnects.

    A request that came over no connection, as in tests of the application, does not wait.
    """
    has_left: asyncio.Event | None = scope.get(LEFT_KEY)
    if has_left is None:
        return True
    try:
        async with asyncio.timeout(seconds):
            await has_left.wait()
    except TimeoutError:
        return True
    return False
