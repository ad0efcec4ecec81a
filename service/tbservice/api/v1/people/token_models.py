"""Models of tokens in requests and responses: of an experiment, a workspace and a person."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Final

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    FailFast,
    Field,
)

from tbservice import limits
from tbservice.api.http.request_models import FewFields
from tbservice.types.grants import Scope
from tbservice.types.people import Role, Token

_EXAMPLE: Final = "2030-01-31T12:00:00Z"


def _require_text(value: object) -> object:
    """Refuse numbers, which Pydantic would read as seconds since the epoch."""
    if isinstance(value, str | None) and not re.fullmatch(r"[\d.+-]+", value or ""):
        return value
    raise ValueError(f"must be a date and time with a time zone, for example {_EXAMPLE}")


EndTime = Annotated[
    AwareDatetime | None,
    BeforeValidator(_require_text),
    Field(
        default=None,
        description=f"Date and time with a time zone (RFC 3339), for example {_EXAMPLE}; null: the "
        "default of the route",
    ),
]
"""When something ends."""


class NewWorkspaceToken(FewFields):
    """The properties of a token for a whole workspace."""

    # FailFast: one error instead of half a million for a body of 1 MiB with wrong scopes.
    scopes: Annotated[list[Scope], FailFast()] = Field(
        min_length=1,
        description="`append`: create experiments and append to all; `read`: list and read all; "
        "`admin`: both, and change, share and delete them",
    )
    label: str = Field(default="", max_length=limits.EXPERIMENT_NAME_CHARS_MAX)
    expires_at: EndTime = None


class PersonAnswer(BaseModel, from_attributes=True):
    """A person."""

    user_id: str
    name: str
    email: str


class TokenAnswer(BaseModel, from_attributes=True, populate_by_name=True):
    """A token without its secret."""

    id: str = Field(validation_alias="token_id")
    scopes: list[Scope]
    label: str
    prefix: str = Field(description="The first characters of the secret, to recognize the token by")
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(
        description="When the token was last used, to the minute; null if it was never used"
    )
    created_by: PersonAnswer | None = Field(
        description="Who created it; null if an administrator of the service did"
    )
    is_personal: bool = Field(
        description="It acts for who created it, and ends when they lose the rights"
    )


class CreatedTokenAnswer(TokenAnswer):
    """A new token with its secret."""

    token: str = Field(description="The secret; store it now: it cannot be read again")


class TokenPage(BaseModel):
    """A page of tokens, newest first."""

    tokens: list[TokenAnswer]
    next: str | None = Field(description="Page token: pass it as `after`; null on the last page")


class TokenList(BaseModel):
    """Tokens, newest first."""

    tokens: list[TokenAnswer]


class WorkspaceAnswer(BaseModel):
    """A workspace, as the caller sees it."""

    workspace_id: int
    name: str
    role: Role | None = Field(description="The caller's role; null for a machine's token")


def new_token_answer(token: Token, secret: str) -> CreatedTokenAnswer:
    """Return the model of a new token."""
    return CreatedTokenAnswer(**TokenAnswer.model_validate(token).model_dump(), token=secret)
