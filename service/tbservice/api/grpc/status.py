"""The gRPC status of an error, and its text for the client."""

from __future__ import annotations

from typing import Final

import grpc

from tbservice.errors import ServiceError

GRPC_DETAIL_CHARS_MAX: Final = 500
"""Characters of an error's text in a gRPC status.

Clients refuse trailers over 8 KiB, and 4-byte characters take 12 bytes there.
"""

ERROR_CODE_KEY: Final = "tbhub-code"
"""Key of the trailing metadata with the `code` of the error, as in JSON over HTTP."""

_STATUS: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    406: grpc.StatusCode.INVALID_ARGUMENT,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.ABORTED,
    410: grpc.StatusCode.DATA_LOSS,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    507: grpc.StatusCode.FAILED_PRECONDITION,
}
"""gRPC status by HTTP status. 413 and 507 are not RESOURCE_EXHAUSTED, at which clients repeat."""


def status_of(error: ServiceError) -> grpc.StatusCode:
    """Return the status that a client gets for this error."""
    return _STATUS.get(error.status, grpc.StatusCode.INTERNAL)


def bounded_detail(detail: str) -> str:
    """Return the text without its end if it is over `GRPC_DETAIL_CHARS_MAX`."""
    if len(detail) <= GRPC_DETAIL_CHARS_MAX:
        return detail
    return f"{detail[: GRPC_DETAIL_CHARS_MAX - 1]}…"
