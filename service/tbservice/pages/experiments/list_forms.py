"""Forms of the list of experiments: star, tag, archive, rename, and save the search."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from fastapi import APIRouter
from sqlalchemy import Connection
from starlette.responses import Response

from tbservice.auth import grants
from tbservice.errors import Invalid, NotFound
from tbservice.experiment_values import SavedSearch
from tbservice.experiments import bookmarks, lifecycle, listing
from tbservice.experiments.listing import Search
from tbservice.experiments.metadata import Metadata
from tbservice.pages.base.forms import FormFields
from tbservice.pages.base.frame import redirect
from tbservice.pages.base.person_page import PersonPage, SignedInPage
from tbservice.pages.base.signed_in import SignedInForm
from tbservice.pages.experiments.experiment_list import RowEdit, find_workspace
from tbservice.pages.experiments.experiment_selection import (
    SHOWN_ERRORS,
    read_ids,
    read_list,
    read_workspace,
    show_again,
)
from tbservice.pages.experiments.list_address import parse_address
from tbservice.types.grants import AdminGrant, Scope

router = APIRouter(include_in_schema=False)

GO_ITEMS_MAX: Final = 100
"""Experiments (items) with the words of a name among which the one with this name is looked for."""

_Change = Callable[[Connection, AdminGrant], object]


@router.post("/experiments/star")
def star(page: SignedInPage, form: SignedInForm) -> Response:
    """Star the experiments of the form for the person, or take their stars away."""
    try:
        removed = form.text("unstar")
        ids = [removed] if removed else read_ids(form, "select the experiments to star")
        for experiment_id in ids:
            with page.database.without_transaction() as db:
                grant = grants.grant_read_by_session(db, experiment_id, page.session.secret)
            with page.database.transaction(grant) as db:
                bookmarks.star(db, grant, is_starred=not removed)
    except SHOWN_ERRORS as error:
        return show_again(page, form, error)
    return _return_to_list(form, is_page_kept=True)


@router.post("/experiments/tag")
def tag(page: SignedInPage, form: SignedInForm) -> Response:
    """Add tags to the selected experiments, or remove them."""
    tags = _read_tags(form)
    is_added = form.text("act") != "remove"
    try:
        if not tags:
            raise Invalid("name a tag to add or remove")
        _change_selected(
            page, form, lambda db, grant: lifecycle.change_tags(db, grant, tags, is_added=is_added)
        )
    except SHOWN_ERRORS as error:
        return show_again(page, form, error)
    return _return_to_list(form, done="tagged")


@router.post("/experiments/archive")
def archive(page: SignedInPage, form: SignedInForm) -> Response:
    """Archive the selected experiments, or take them out of the archive."""
    is_archived = form.text("act") != "restore"
    metadata = Metadata(archived=is_archived)
    try:
        _change_selected(
            page, form, lambda db, grant: lifecycle.update_experiment(db, grant, metadata)
        )
    except SHOWN_ERRORS as error:
        return show_again(page, form, error)
    return _return_to_list(form, done="archived" if is_archived else "unarchived")


@router.post("/experiments/edit")
def edit(page: SignedInPage, form: SignedInForm) -> Response:
    """Change name and tags of the experiment whose row is edited."""
    experiment_id = form.text("experiment")
    typed = RowEdit(experiment_id, form.text("name"), form.text("tags"))
    metadata = Metadata(name=typed.name, tags=_read_tags(form))
    try:
        with page.admin_transaction(experiment_id) as (db, grant):
            lifecycle.update_experiment(db, grant, metadata)
    except SHOWN_ERRORS as error:
        return show_again(page, form, error, typed)
    return _return_to_list(form, is_page_kept=True, done="saved")


@router.post("/experiments/searches")
def save_search(page: SignedInPage, form: SignedInForm) -> Response:
    """Save the search of the list under a name, or delete the one of this name."""
    workspace_id = read_workspace(form)
    query = parse_address(read_list(form), workspace_id).saved_query
    try:
        grant = page.grant_workspace(Scope.READ, workspace_id)
        with page.database.transaction(grant) as db:
            if form.text("act") == "delete":
                bookmarks.delete_search(db, grant, form.text("name"))
            else:
                bookmarks.save_search(db, grant, SavedSearch(form.text("name"), query))
    except SHOWN_ERRORS as error:
        return show_again(page, form, error)
    return _return_to_list(form)


@router.get("/experiments/go")
def go(page: SignedInPage) -> Response:
    """Redirect to the experiment with this name, or else with these words; if several, to a list.

    For what is typed after Ctrl-K and not found by then.
    """
    query = page.request.query_params
    membership = find_workspace(query, page.session)
    if membership is None:
        return redirect("/")
    typed = query.get("q", "").replace("\0", "").strip()
    address = parse_address({"q": typed}, membership.workspace_id)
    grant = page.grant_workspace(Scope.READ, membership.workspace_id)
    with page.database.snapshot(grant) as db:
        listed = listing.list_experiments(db, grant, Search(address.q), None, GO_ITEMS_MAX)
    named = [each for each in listed.experiments if each.name.casefold() == typed.casefold()]
    found = named or listed.experiments
    if not typed or len(found) != 1:
        return redirect(address.link())
    return redirect(f"/experiment/{found[0].experiment_id}/about")


def _change_selected(page: PersonPage, form: FormFields, change: _Change) -> None:
    """Change each selected experiment. One that is not there any more is no error.

    Raises Invalid if none is selected, or after all, if one cannot be so, and Forbidden if the
    person may not change one.
    """
    ids = read_ids(form, "select experiments first")
    refused = []
    for experiment_id in ids:
        try:
            with suppress(NotFound), page.admin_transaction(experiment_id) as (db, grant):
                change(db, grant)
        except Invalid as error:
            refused.append(error)
    if refused:
        raise Invalid(f"{len(refused)} of {len(ids)} experiments were not changed: {refused[0]}")


def _read_tags(form: FormFields) -> list[str]:
    return [each for each in form.text("tags").split(",") if each.strip()]


def _return_to_list(form: FormFields, *, is_page_kept: bool = False, done: str = "") -> Response:
    """Redirect to the list from which the form was sent."""
    query = read_list(form, is_page_kept=is_page_kept)
    query["workspace"] = str(read_workspace(form))
    return redirect("/", **query, **({"done": done} if done else {}))
