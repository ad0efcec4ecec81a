"""Refusals made before the application sees a request."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from tbservice.errors import TooManyRequests

ERROR_CODE_KEY = "tbhub.error_code"
"""Where a refused request leaves, in the scope, the code of its error, for the metrics."""


def refuse(scope: Scope, error: TooManyRequests) -> Response:
    """Return the answer to a request that is over its caller's share."""
    scope[ERROR_CODE_KEY] = error.code
    headers = {"Retry-After": str(error.retry_after_seconds), "X-Content-Type-Options": "nosniff"}
    return JSONResponse({"code": error.code, "detail": error.detail}, error.status, headers)
