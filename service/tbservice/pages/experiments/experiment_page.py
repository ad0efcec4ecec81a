"""Our own page of an experiment: what it is, its origin, who sees it, and forms for that."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter, Request
from sqlalchemy import Connection
from starlette.responses import Response

from tbservice import limits
from tbservice.admission.callers import page_tokens
from tbservice.api.http.dependencies import UsesDatabase
from tbservice.auth import grants, members, people
from tbservice.db.database import Database
from tbservice.errors import Conflict, Forbidden, Invalid, NotFound, ServiceError
from tbservice.experiment_values import ExperimentNotes
from tbservice.experiments import deletion, lifecycle, uploads
from tbservice.experiments.metadata import Metadata
from tbservice.pages.base.experiment_admin import admin_transaction
from tbservice.pages.base.forms import FormFields
from tbservice.pages.base.frame import redirect, render
from tbservice.pages.base.markdown import render_markdown
from tbservice.pages.base.person_session import PersonSession
from tbservice.pages.base.signed_in import (
    MaybeSignedIn,
    SignedIn,
    SignedInForm,
    require_person_session,
)
from tbservice.pages.sharing.experiment_tokens import tokens_context
from tbservice.pages.sharing.share_page import links_context
from tbservice.reading import catalog
from tbservice.types.experiments import Experiment, Visibility
from tbservice.types.grants import AdminGrant, ReadGrant, Scope
from tbservice.types.people import Membership

router = APIRouter(prefix="/experiment/{experiment_id}", include_in_schema=False)

_SHOWN_ERRORS: Final = (Conflict, Forbidden, Invalid)
_MEMBERS_SHOWN: Final = 30
_UPLOADS_SHOWN: Final = 20
_CHANGED_MEANWHILE: Final = (
    "somebody, or a program, has changed this experiment since you opened the form: compare yours "
    "with what is stored, which you see in another tab; saving again replaces it"
)
_NO_PEOPLE: Final[dict[str, Any]] = {
    "origin": {},
    "uploads": [],
    "more_uploads": False,
    "creator": None,
    "members": [],
    "more_members": 0,
}
"""Fields hidden from strangers: of a public experiment, they learn nothing of people and hosts."""


@router.get("/about")
def show_about(
    request: Request, experiment_id: str, session: MaybeSignedIn, database: UsesDatabase
) -> Response:
    """Show what is known of an experiment, to members of its workspace.

    Readers of a share link have TensorBoard's page, which shows what people wrote about it.
    """
    if session is None and page_tokens(request.headers.get("cookie", "")):
        return redirect("./")
    session = require_person_session(session)
    with database.without_transaction() as db:
        grant = grants.grant_read(db, experiment_id, session.secret)
    membership = session.find_membership(grant.workspace_id)
    with database.snapshot(grant) as db:
        experiment = lifecycle.get_experiment(db, grant)
        notes = lifecycle.get_notes(db, experiment)
        context = {
            "experiment": experiment,
            "description": render_markdown(experiment.description),
            "notes": render_markdown(notes.notes),
            "properties": notes.properties,
            "upload_status": uploads.find_status(db, grant, experiment),
            "runs": len(catalog.list_runs(db, grant)),
            "plugins": catalog.list_plugins(db, grant),
            **(_describe_people(db, grant, experiment, notes) if membership else _NO_PEOPLE),
        }
    links = _find_links(database, experiment_id, session) if _may_change(membership) else None
    return render(
        request,
        "experiment.html",
        workspace=membership,
        may_change=links is not None,
        **context,
        **(links or {}),
    )


def _describe_people(
    db: Connection, grant: ReadGrant, experiment: Experiment, notes: ExperimentNotes
) -> dict[str, Any]:
    """Return what only members see: who can read the experiment, who made it, and where."""
    seen_by = members.list_members(db, grant)
    creator = experiment.created_by
    recorded, following = uploads.list_uploads(db, grant, None, _UPLOADS_SHOWN)
    return {
        "origin": {} if recorded else notes.origin,
        "uploads": recorded,
        "more_uploads": following is not None,
        "creator": None if creator is None else people.find_person(db, creator),
        "members": seen_by[:_MEMBERS_SHOWN],
        "more_members": len(seen_by) - _MEMBERS_SHOWN,
    }


def _find_links(
    database: Database, experiment_id: str, session: PersonSession
) -> dict[str, Any] | None:
    """Return the context of links and tokens; None for a frozen copy, which nobody may change."""
    try:
        with admin_transaction(database, experiment_id, session) as (db, grant):
            return links_context(db, grant) | tokens_context(db, grant)
    except Forbidden:
        return None


@router.get("/edit")
def show_edit(
    request: Request, experiment_id: str, session: SignedIn, database: UsesDatabase
) -> Response:
    """Show the form for name, description, notes, tags, properties and visibility."""
    with admin_transaction(database, experiment_id, session) as (db, grant):
        experiment = lifecycle.find_own(db, grant)
        notes = lifecycle.get_notes(db, experiment)
    return _show_form(request, session, grant, _form_values(experiment, notes))


@router.post("/edit")
def edit(
    request: Request,
    experiment_id: str,
    session: SignedIn,
    form: SignedInForm,
    database: UsesDatabase,
) -> Response:
    """Change what the form says."""
    with admin_transaction(database, experiment_id, session) as (db, grant):
        experiment = lifecycle.find_own(db, grant)
        notes = lifecycle.get_notes(db, experiment)
    stored = _form_values(experiment, notes)
    values = {name: form.text(name).replace("\r\n", "\n") for name in stored}
    values["state"] = stored["state"]
    try:
        if form.text("state") not in {"", stored["state"]}:
            raise Conflict(_CHANGED_MEANWHILE)
        metadata = _read_metadata(form, values, notes.properties)
        with database.transaction(grant) as db:
            lifecycle.update_experiment(db, grant, metadata)
    except _SHOWN_ERRORS as error:
        return _show_form(request, session, grant, values, error)
    return redirect(f"/experiment/{experiment_id}/about", done="saved")


@router.post("/delete")
def delete(
    experiment_id: str, session: SignedIn, _form: SignedInForm, database: UsesDatabase
) -> Response:
    """Delete the experiment; the list that follows offers to undo it."""
    with admin_transaction(database, experiment_id, session) as (db, grant):
        deletion.delete_experiment(db, grant)
    return redirect("/", workspace=str(grant.workspace_id), deleted=experiment_id)


def _may_change(membership: Membership | None) -> bool:
    return membership is not None and Scope.ADMIN in membership.role.scopes


def _read_metadata(form: FormFields, values: dict[str, str], before: dict[str, str]) -> Metadata:
    """Return what the form sets; properties that it showed and does not name now are removed.

    Raises Invalid.
    """
    visibility = Visibility(form.choice("visibility", set(Visibility)))
    tags = [tag for tag in values["tags"].split(",") if tag.strip()]
    properties: dict[str, str | None] = dict.fromkeys(_writable(before))
    for line in values["properties"].splitlines():
        key, equals, value = line.partition("=")
        if equals:
            properties[key.strip()] = value.strip()
        elif line.strip():
            raise Invalid(f"write each property as key = value, not {line.strip()[:100]!r}")
    return Metadata(
        values["name"], values["description"], visibility, tags, values["notes"], properties
    )


def _form_values(experiment: Experiment, notes: ExperimentNotes) -> dict[str, str]:
    """Return the fields of the form; `state` tells whether somebody has changed one meanwhile."""
    values = {
        "name": experiment.name,
        "description": experiment.description,
        "notes": notes.notes,
        "tags": ", ".join(experiment.tags),
        "properties": "\n".join(
            f"{key} = {value}" for key, value in _writable(notes.properties).items()
        ),
        "visibility": experiment.visibility.value,
    }
    return values | {"state": hashlib.sha256(repr(values).encode()).hexdigest()}


def _writable(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that a line `key = value` of the form can say.

    Others, as of several lines, which the API accepts, are not in the form, and stay as they are.
    """
    return {
        key: value
        for key, value in properties.items()
        if "=" not in key
        and (key, value) == (key.strip(), value.strip())
        and len(f"{key}={value}".splitlines()) == 1
    }


def _show_form(
    request: Request,
    session: PersonSession,
    grant: AdminGrant,
    values: dict[str, str],
    error: ServiceError | None = None,
) -> Response:
    membership = session.find_membership(grant.workspace_id)
    if membership is None:
        raise NotFound(lifecycle.NOT_FOUND)
    context: dict[str, Any] = {
        "workspace": membership,
        "experiment_id": grant.experiment_id,
        "values": values,
        "name_chars_max": limits.EXPERIMENT_NAME_CHARS_MAX,
        "error": "" if error is None else error.detail,
    }
    return render(
        request, "experiment_edit.html", 200 if error is None else error.status, **context
    )
