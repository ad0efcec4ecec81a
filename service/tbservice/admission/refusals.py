"""The 429 response, which is sent outside the application."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from tbservice.errors import TooManyRequests

ERROR_CODE_KEY = "tbhub.error_code"
"""Key of the ASGI scope for the error code of a refused request, which the metrics read."""


def refuse(scope: Scope, error: TooManyRequests) -> Response:
    """Return the response to a request that is over its caller's share, and record its code."""
    scope[ERROR_CODE_KEY] = error.code
    headers = {"Retry-After": str(error.retry_after_seconds), "X-Content-Type-Options": "nosniff"}
    return JSONResponse({"code": error.code, "detail": error.detail}, error.status, headers)
