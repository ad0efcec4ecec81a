"""The forms of our own page of an experiment: change what people wrote about it, delete it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from tbservice import limits
from tbservice.errors import Conflict, Forbidden, Invalid, NotFound, ServiceError
from tbservice.experiment_values import ExperimentNotes
from tbservice.experiments import deletion, lifecycle
from tbservice.experiments.metadata import Metadata
from tbservice.pages.base.forms import FormFields
from tbservice.pages.base.frame import redirect
from tbservice.pages.base.person_page import PersonPage, SignedInPage
from tbservice.pages.base.signed_in import SignedInForm
from tbservice.types.experiments import Experiment, Expiry, Visibility
from tbservice.types.grants import AdminGrant

router = APIRouter(prefix="/experiment/{experiment_id}", include_in_schema=False)

_SHOWN_ERRORS: Final = (Conflict, Forbidden, Invalid)
_CHANGED_MEANWHILE: Final = (
    "somebody, or a program, has changed this experiment since you opened the form: compare yours "
    "with what is stored, which you see in another tab; saving again replaces it"
)


@router.get("/edit")
def show_edit(page: SignedInPage, experiment_id: str) -> Response:
    """Show the form for name, description, notes, tags, properties, expiry and visibility."""
    grant, _, stored = _read_values(page, experiment_id)
    return _show_form(page, grant, stored)


@router.post("/edit")
def edit(page: SignedInPage, experiment_id: str, form: SignedInForm) -> Response:
    """Change what the form says."""
    grant, notes, stored = _read_values(page, experiment_id)
    values = {name: form.text(name).replace("\r\n", "\n") for name in stored}
    values["state"] = stored["state"]
    try:
        if form.text("state") not in {"", stored["state"]}:
            raise Conflict(_CHANGED_MEANWHILE)
        metadata = _read_metadata(form, values, notes.properties)
        if values["expires"] != stored["expires"]:
            metadata = replace(metadata, expires_at=_parse_expiry(values["expires"]))
        if values["published"] != stored["published"]:
            metadata = replace(metadata, published=bool(values["published"]))
        with page.database.transaction(grant) as db:
            lifecycle.update_experiment(db, grant, metadata)
    except _SHOWN_ERRORS as error:
        return _show_form(page, grant, values, error)
    return redirect(f"/experiment/{experiment_id}/about", done="saved")


@router.post("/delete")
def delete(page: SignedInPage, experiment_id: str, form: SignedInForm) -> Response:
    """Delete the experiment; the list that follows offers to undo it."""
    with page.admin_transaction(experiment_id) as (db, grant):
        deletion.delete_experiment(db, grant, keeps_copies=form.text("copies") == "keep")
    return redirect("/", workspace=str(grant.workspace_id), deleted=experiment_id)


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


def _read_values(
    page: PersonPage, experiment_id: str
) -> tuple[AdminGrant, ExperimentNotes, dict[str, str]]:
    """Return the right to change, the notes, and the fields of the form.

    The field `state` tells whether somebody has changed one meanwhile.
    """
    with page.admin_transaction(experiment_id) as (db, grant):
        experiment = lifecycle.find_own(db, grant)
        notes = lifecycle.get_notes(db, experiment)
        is_published = lifecycle.is_published(db, experiment)
    values = {
        "name": experiment.name,
        "description": experiment.description,
        "notes": notes.notes,
        "tags": ", ".join(experiment.tags),
        "properties": "\n".join(
            f"{key} = {value}" for key, value in _writable(notes.properties).items()
        ),
        "visibility": experiment.visibility.value,
        "expires": _last_day(experiment),
        "published": "1" if is_published else "",
    }
    values["state"] = hashlib.sha256(repr(values).encode()).hexdigest()
    return grant, notes, values


def _last_day(experiment: Experiment) -> str:
    """Return the last day (UTC) on which an experiment is there, empty if it does not expire."""
    if experiment.expires_at is None:
        return ""
    return (experiment.expires_at - timedelta(microseconds=1)).date().isoformat()


def _parse_expiry(day: str) -> Expiry:
    """Return the end of a day (UTC), or "never" for an empty text. Raises Invalid."""
    if not day.strip():
        return "never"
    try:
        end = datetime.combine(date.fromisoformat(day.strip()), time(), UTC) + timedelta(days=1)
    except (ValueError, OverflowError) as error:
        raise Invalid(f"write the day of expiry as 2030-12-31, not {day[:50]!r}") from error
    if end <= datetime.now(UTC):
        raise Invalid(f"{day} is over: choose a later day, or delete the experiment now")
    return end


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
    page: PersonPage,
    grant: AdminGrant,
    values: dict[str, str],
    error: ServiceError | None = None,
) -> Response:
    membership = page.session.find_membership(grant.workspace_id)
    if membership is None:
        raise NotFound(lifecycle.NOT_FOUND)
    return page.render(
        "experiment_edit.html",
        error,
        workspace=membership,
        experiment_id=grant.experiment_id,
        values=values,
        name_chars_max=limits.EXPERIMENT_NAME_CHARS_MAX,
    )
