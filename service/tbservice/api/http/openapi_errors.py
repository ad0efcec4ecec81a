"""How the OpenAPI document describes the answers that are not the wanted ones: errors, and 304."""

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
    """What is answered to every request that is refused."""

    model_config = ConfigDict(extra="allow")  # a cursor conflict says where to go on

    code: str = Field(description="What happened, for programs")
    detail: str = Field(description="What happened and what to do, for people")


class InternalErrorResponse(ErrorResponse):
    """What is answered when the server itself fails on a request."""

    id: str = Field(
        description="By which the operator finds the failure, or one just like it, in the log"
    )


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
        "description": "A parameter or a part of the body is out of its range, or does not fit.",
    },
    500: {
        "model": InternalErrorResponse,
        "description": "The server failed; nothing of the request was kept.",
    },
}
"""Of every route."""

NOT_ACCEPTABLE: Final = _describe_errors(NotAcceptable)

OBJECT_MISSING: Final = _describe_errors(ObjectMissing)
"""Of routes that send a blob's bytes."""

NOT_MODIFIED: Final[Responses] = {
    304: {"description": "`If-None-Match` names the answer's ETag: nothing has changed."}
}
