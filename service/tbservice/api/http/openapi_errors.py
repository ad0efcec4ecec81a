"""How the OpenAPI document describes the answers that are not the wanted ones: errors, and 304."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from tbservice.errors import (
    Conflict,
    Forbidden,
    Malformed,
    NotAcceptable,
    NotFound,
    ObjectMissing,
    ServiceError,
    TooLarge,
    TooManyRequests,
    TooSlow,
    Unauthenticated,
    Unavailable,
)

Responses = dict[int | str, dict[str, Any]]


class Refusal(BaseModel):
    """What is answered to every request that is refused."""

    model_config = ConfigDict(extra="allow")  # a cursor conflict says where to go on

    code: str = Field(description="What happened, for programs")
    detail: str = Field(description="What happened and what to do, for people")


class Failure(Refusal):
    """What is answered when the server itself fails on a request."""

    id: str = Field(description="By which the operator finds the failure, or one just like it, in the log")


def _described(*errors: type[ServiceError]) -> Responses:
    return {error.status: {"model": Refusal, "description": error.__doc__} for error in errors}


REFUSALS: Final[Responses] = _described(
    Malformed, Unauthenticated, Forbidden, NotFound, TooSlow, Conflict, TooLarge, TooManyRequests, Unavailable
) | {
    422: {"model": Refusal, "description": "A parameter or a part of the body is out of its range, or does not fit."},
    500: {"model": Failure, "description": "The server failed; nothing of the request was kept."},
}
"""Of every route."""

NOT_ACCEPTABLE: Final = _described(NotAcceptable)

OBJECT_MISSING: Final = _described(ObjectMissing)
"""Of routes that send a blob's bytes."""

NOT_MODIFIED: Final[Responses] = {304: {"description": "`If-None-Match` names the answer's ETag: nothing has changed."}}
