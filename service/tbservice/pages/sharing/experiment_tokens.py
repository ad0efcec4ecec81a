"""The tokens of one experiment: a section of its page Access, and `/experiment/{id}/token/…`."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from sqlalchemy import Connection
from starlette.responses import Response

from tbservice.auth import tokens
from tbservice.errors import Invalid
from tbservice.experiments import lifecycle
from tbservice.pages.base.frame import redirect
from tbservice.pages.base.person_page import SignedInPage
from tbservice.pages.base.signed_in import SignedInForm
from tbservice.pages.people import token_pages
from tbservice.types.experiments import Experiment
from tbservice.types.grants import AdminGrant

_SHOWN: Final = 100

router = APIRouter(prefix="/experiment/{experiment_id}/token", include_in_schema=False)


@router.get("/new")
def show_new_token(page: SignedInPage, experiment_id: str) -> Response:
    """Show the form for a token of this experiment alone."""
    with page.admin_transaction(experiment_id) as (db, grant):
        experiment = lifecycle.find_own(db, grant)
    return token_pages.show_form(page.request, token_pages.EXPERIMENT_SCOPES, **_texts(experiment))


@router.post("/new")
def create_token(page: SignedInPage, experiment_id: str, form: SignedInForm) -> Response:
    """Create a token of this experiment, and show its secret, which cannot be shown again."""
    with page.admin_transaction(experiment_id) as (db, grant):
        experiment = lifecycle.find_own(db, grant)
    try:
        scopes, expires_at = token_pages.parse_scopes(form), form.expiry("expires_days")
        with page.database.transaction(grant) as db:
            token, secret = tokens.create_token(db, grant, scopes, form.text("label"), expires_at)
    except Invalid as error:
        offered = token_pages.EXPERIMENT_SCOPES
        return token_pages.show_form(page.request, offered, form, error, **_texts(experiment))
    return token_pages.show_secret(page.request, token, secret, **_texts(experiment))


@router.post("/revoke")
def revoke_token(page: SignedInPage, experiment_id: str, form: SignedInForm) -> Response:
    """Revoke a token of this experiment. Raises NotFound."""
    with page.admin_transaction(experiment_id) as (db, grant):
        tokens.revoke_token(db, grant, form.text("token_id"))
    return redirect(f"/experiment/{experiment_id}/access", done="token-revoked")


def tokens_context(db: Connection, grant: AdminGrant) -> dict[str, Any]:
    """Return what the section of the experiment's page shows: its newest tokens."""
    return {"tokens": tokens.list_tokens(db, grant, None, _SHOWN, sessions=False)[0]}


def _texts(experiment: Experiment) -> dict[str, Any]:
    return {
        "section": "experiments",
        "back": f"/experiment/{experiment.experiment_id}/access",
        "back_name": experiment.name.strip() or "Unnamed experiment",
        "heading": "New token of this experiment",
        "explanation": "For a job or a reader that needs this experiment and nothing else.",
        "placeholder": "Training job on the cluster",
    }
