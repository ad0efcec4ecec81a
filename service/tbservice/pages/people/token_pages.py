"""Tokens on pages: the form for a new one, and the page that shows its secret once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fastapi import Request
from starlette.responses import Response

from tbservice import limits
from tbservice.api.http.dependencies import get_settings
from tbservice.errors import Invalid, ServiceError
from tbservice.pages.base.forms import FormFields
from tbservice.pages.base.frame import render
from tbservice.types.grants import Scope
from tbservice.types.people import Membership, Role, Token

Scopes = Sequence[tuple[Scope, str, str]]
"""Scopes that a form offers, with name and explanation."""

_SCOPES: Final[Scopes] = (
    (Scope.APPEND, "Upload", "Create experiments, and append to all of the workspace."),
    (Scope.READ, "Read", "List and read all experiments of the workspace."),
    (
        Scope.ADMIN,
        "Manage",
        "All of that, and rename, share and delete experiments; for an owner, also manage members.",
    ),
)
EXPERIMENT_SCOPES: Final[Scopes] = (
    (Scope.APPEND, "Upload", "Append to this experiment."),
    (Scope.READ, "Read", "Read this experiment."),
)

_DEFAULTS: Final = {
    "label": "",
    "workspace_id": "",
    "scopes": [Scope.APPEND, Scope.READ],
    "expires_days": "90",
}


def show_form(
    request: Request,
    offered: Scopes,
    form: FormFields | None = None,
    error: ServiceError | None = None,
    *,
    is_for_trying: bool = False,
    memberships: Sequence[Membership] = (),
    **context: Any,
) -> Response:
    """Return the form for a new token.

    Args:
        request: The request.
        offered: The scopes to choose from; `scopes_of` returns those of a role.
        form: Fields that were sent, after an error.
        error: Why it was refused.
        is_for_trying: Of a token for the API page: its label and its end are fixed.
        memberships: The workspaces to choose from, or none.
        context: `heading`, `explanation`, `placeholder`, `back`, `back_name` and `section`.
    """
    values = _DEFAULTS | ({"scopes": [Scope.READ]} if is_for_trying else {})
    if form is not None:
        names = ("label", "workspace_id", "expires_days")
        values = {name: form.text(name) for name in names} | {"scopes": form.texts("scope")}
    return render(
        request,
        "token_new.html",
        error=error,
        scopes=offered,
        values=values,
        label_chars_max=limits.EXPERIMENT_NAME_CHARS_MAX,
        is_for_trying=is_for_trying,
        memberships=memberships,
        **context,
    )


def scopes_of(role: Role) -> Scopes:
    """Return the scopes that a person with this role may give a token of the workspace."""
    return [each for each in _SCOPES if each[0] in role.scopes]


def parse_scopes(form: FormFields) -> Sequence[Scope]:
    """Return the scopes that a form names. Raises Invalid for none, and for an unknown one."""
    names = form.texts("scope")
    if not names:
        raise Invalid("choose what the token may do")
    if not set(names) <= set(Scope):
        raise Invalid("choose the scopes among those that are offered")
    return [Scope(name) for name in names]


def show_secret(request: Request, token: Token, secret: str, **context: Any) -> Response:
    """Return the page with the secret of a new token; `context` has `back` and `back_name`."""
    server = get_settings(request).public_url.rstrip("/")
    return render(
        request, "token_created.html", token=token, secret=secret, server=server, **context
    )
