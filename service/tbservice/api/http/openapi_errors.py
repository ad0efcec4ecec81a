"""Descriptions of error responses, and of 304, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from tbservice.errors import (
    Conflict,
    Forbidden,
    MalformedRequest,
    NotAcceptable,
    NotFound,
    ObjectMissing,
    RequestTimeout,
    ServiceError,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)

Responses = dict[int | str, dict[str, Any]]


class ErrorResponse(BaseModel):
    """Body of every error response."""

    model_config = ConfigDict(extra="allow")  # a cursor conflict includes the upload cursor

    code: str = Field(description="What happened, for programs")
    detail: str = Field(description="What happened and what to do, for people")


class InternalErrorResponse(ErrorResponse):
    """Body of the response when the server fails."""

    id: str = Field(description="Identifies the failure, or an identical one, in the service's log")


def _describe_errors(*errors: type[ServiceError]) -> Responses:
    return {
        error.status: {"model": ErrorResponse, "description": error.__doc__} for error in errors
    }


ERROR_RESPONSES: Final[Responses] = _describe_errors(
    MalformedRequest,
    Unauthenticated,
    Forbidden,
    NotFound,
    RequestTimeout,
    Conflict,
    TooLarge,
    TooManyRequests,
    Unavailable,
) | {
    422: {
        "model": ErrorResponse,
        "description": "A parameter or a field of the body is invalid or out of range.",
    },
    500: {
        "model": InternalErrorResponse,
        "description": "The server failed; nothing of the request was stored.",
    },
}
"""Error responses of every route."""

NOT_ACCEPTABLE: Final = _describe_errors(NotAcceptable)

OBJECT_MISSING: Final = _describe_errors(ObjectMissing)
"""Error responses of routes that read objects."""

NOT_MODIFIED: Final[Responses] = {
    304: {"description": "`If-None-Match` has the current ETag: nothing has changed."}
}
