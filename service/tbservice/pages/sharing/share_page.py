"""The share links of an experiment: `/experiment/{id}/links`, for who may share it.

The template `_links.html` is the section with the links and the form for a new one; other pages
may include it with the context of `links_context`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter
from sqlalchemy import Connection
from starlette.responses import Response

from tbservice import limits
from tbservice.api.http.dependencies import UsesIngest, UsesSettings
from tbservice.errors import (
    Conflict,
    Invalid,
    NotFound,
    QuotaExceeded,
    ServiceError,
    TooLarge,
)
from tbservice.experiments import lifecycle, share_links
from tbservice.pages.base.forms import FormFields
from tbservice.pages.base.frame import redirect
from tbservice.pages.base.person_page import PersonPage, SignedInPage
from tbservice.pages.base.signed_in import SignedInForm
from tbservice.types.experiments import Experiment
from tbservice.types.grants import AdminGrant, ReadGrant

_PAGE_ITEMS: Final = 100

_SHOWN_ERRORS: Final = (Conflict, Invalid, NotFound, QuotaExceeded, TooLarge)
"""Errors of a form that its page shows above its content."""

_EMPTY_FORM: Final[Mapping[str, str]] = {
    "label": "",
    "runs": "",
    "tags": "",
    "expires_days": "30",
    "anonymous": "",
    "frozen": "",
}

router = APIRouter(prefix="/experiment/{experiment_id}/links", include_in_schema=False)


@router.get("")
def show_links(page: SignedInPage, experiment_id: str, after: str | None = None) -> Response:
    """Show the links of an experiment, the newest first, and the form for a new one."""
    grant = page.grant_admin(experiment_id, allows_kept_copy=True)
    return _show(page, grant, after)


@router.post("")
def create_link(
    page: SignedInPage,
    experiment_id: str,
    form: SignedInForm,
    ingest: UsesIngest,
    settings: UsesSettings,
) -> Response:
    """Create a link, and show it, which is not possible again."""
    grant = page.grant_admin(experiment_id)
    is_frozen = bool(form.text("frozen"))
    try:
        expires_at = form.expiry("expires_days")
        with share_links.begin_link(ingest.door, grant, is_frozen=is_frozen) as writer:
            link, secret = share_links.create_link(
                writer,
                grant,
                form.text("label"),
                expires_at,
                form.text("runs") or None,
                form.text("tags") or None,
                is_anonymous=bool(form.text("anonymous")),
                is_frozen=is_frozen,
            )
    except _SHOWN_ERRORS as error:
        return _show(page, grant, form=form, error=error)
    with page.database.snapshot(grant) as db:
        experiment = _experiment(db, grant)
    url = share_links.make_address(settings.public_url, link, secret)
    return page.render("link_created.html", link=link, url=url, experiment=experiment)


@router.post("/rename")
def rename_link(page: SignedInPage, experiment_id: str, form: SignedInForm) -> Response:
    """Change the label of a link."""
    grant = page.grant_admin(experiment_id, allows_kept_copy=True)
    try:
        with page.database.transaction(grant) as db:
            share_links.rename_link(db, grant, form.text("link_id"), form.text("label"))
    except _SHOWN_ERRORS as error:
        return _show(page, grant, error=error)
    return redirect(f"/experiment/{grant.experiment_id}/links", done="link-renamed")


@router.post("/revoke")
def revoke_link(page: SignedInPage, experiment_id: str, form: SignedInForm) -> Response:
    """Revoke a link; the data of a frozen one are deleted."""
    grant = page.grant_admin(experiment_id, allows_kept_copy=True)
    try:
        with page.database.transaction(grant) as db:
            share_links.revoke_link(db, grant, form.text("link_id"))
    except _SHOWN_ERRORS as error:
        return _show(page, grant, error=error)
    return redirect(f"/experiment/{grant.experiment_id}/links", done="link-revoked")


def links_context(
    db: Connection, grant: AdminGrant, after: str | None = None, form: FormFields | None = None
) -> dict[str, Any]:
    """Return the context of `_links.html`, to which `experiment` is to be added.

    Args:
        db: A snapshot of the workspace.
        grant: The right to share the experiment.
        after: The page token of the list; None for the newest links.
        form: The fields of a form that was refused, to show them again.
    """
    links, next_links = share_links.list_links(db, grant, after, _PAGE_ITEMS)
    return {
        "links": links,
        "next_links": next_links,
        "link_values": _EMPTY_FORM
        if form is None
        else {name: form.text(name) for name in _EMPTY_FORM},
        "label_chars_max": limits.EXPERIMENT_NAME_CHARS_MAX,
        "is_kept_copy": grant.is_kept_copy,
        "is_published": lifecycle.is_published(db, lifecycle.find_own(db, grant)),
    }


def _experiment(db: Connection, grant: AdminGrant) -> Experiment:
    return lifecycle.get_experiment(db, ReadGrant(grant.workspace_id, grant.experiment_id))


def _show(
    page: PersonPage,
    grant: AdminGrant,
    after: str | None = None,
    form: FormFields | None = None,
    error: ServiceError | None = None,
) -> Response:
    with page.database.snapshot(grant) as db:
        experiment = _experiment(db, grant)
        context = links_context(db, grant, after, form)
    return page.render("links.html", error, experiment=experiment, **context)
