"""Actions on experiments that are selected in the list: compare, delete, restore."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from fastapi import APIRouter
from starlette.responses import Response

from tbservice import limits
from tbservice.auth import grants, secrets
from tbservice.errors import Conflict, Invalid, NotFound, ServiceError
from tbservice.experiments import deletion, lifecycle, snapshots
from tbservice.pages.base.forms import FormFields
from tbservice.pages.base.frame import redirect
from tbservice.pages.base.person_page import PersonPage, SignedInPage
from tbservice.pages.base.signed_in import SignedInForm
from tbservice.pages.experiments.experiment_list import RowEdit, find_workspace, show_list
from tbservice.pages.people.workspace_view import parse_workspace_id
from tbservice.types.grants import Scope
from tbservice.types.identifiers import ExperimentId, WorkspaceId

router = APIRouter(include_in_schema=False)

_NAME_CHARS: Final = 40
_ID_CHARS: Final = 6
_COMPARED_MIN: Final = 2
_KEPT_OF_LIST: Final = frozenset(
    {"q", "tag", "by", "visibility", "status", "show", "sort", "reverse", "chart"}
)

SHOWN_ERRORS: Final = (Conflict, Invalid, NotFound)
"""Errors that the list shows above itself."""


@router.post("/experiments/compare")
def compare(page: SignedInPage, form: SignedInForm) -> Response:
    """Redirect to the comparison of the selected experiments, each under its name."""
    try:
        ids = read_ids(form)
        if not _COMPARED_MIN <= len(ids) <= limits.COMPARISON_ITEMS_MAX:
            raise Invalid(
                f"select 2 to {limits.COMPARISON_ITEMS_MAX} experiments to compare, not {len(ids)}"
            )
        names = [_find_name(page, experiment_id) for experiment_id in ids]
    except SHOWN_ERRORS as error:
        return show_again(page, form, error)
    counts = Counter(names)
    parts = []
    for number, (name, experiment_id) in enumerate(zip(names, ids, strict=True), 1):
        unique = name if counts[name] == 1 else f"{name} {number}"
        parts.append(f"{quote(unique, safe='')}:{experiment_id}")
    return redirect(f"/compare/{','.join(parts)}/")


@router.post("/experiments/delete")
def delete(page: SignedInPage, form: SignedInForm) -> Response:
    """Delete the selected experiments. One that is not there any more is no error.

    If they have frozen copies, it is asked first whether these stay.
    """
    try:
        ids = read_ids(form, "select the experiments to delete")
    except SHOWN_ERRORS as error:
        return show_again(page, form, error)
    choice = form.text("copies")
    if not choice and (copies := _count_copies(page, ids)):
        return _ask_for_copies(page, form, ids, copies)
    try:
        for experiment_id in ids:
            with suppress(NotFound), page.admin_transaction(experiment_id) as (db, grant):
                deletion.delete_experiment(db, grant, keeps_copies=choice == "keep")
    except Conflict as error:
        return _ask_for_copies(page, form, ids, _count_copies(page, ids), error)
    shown = {**read_list(form), "workspace": form.text("workspace"), "deleted": ",".join(ids)}
    return redirect("/", **shown)


def _count_copies(page: PersonPage, ids: Sequence[ExperimentId]) -> int:
    copies = 0
    for experiment_id in ids:
        with suppress(NotFound), page.admin_transaction(experiment_id) as (db, grant):
            copies += snapshots.count_copies(db, grant)
    return copies


def _ask_for_copies(
    page: PersonPage,
    form: FormFields,
    ids: Sequence[ExperimentId],
    copies: int,
    error: ServiceError | None = None,
) -> Response:
    workspace_id = form.text("workspace")
    return page.render(
        "experiments_delete.html",
        error,
        ids=ids,
        copies=copies,
        workspace_id=workspace_id,
        list=form.text("list"),
        back=urlencode({**read_list(form, is_page_kept=True), "workspace": workspace_id}),
    )


@router.post("/experiments/restore")
def restore(page: SignedInPage, form: SignedInForm) -> Response:
    """Undo the deletion of experiments. One that is not deleted any more is no error."""
    workspace_id = read_workspace(form)
    grant = page.grant_workspace(Scope.ADMIN, workspace_id)
    for experiment_id in read_ids(form):
        with suppress(NotFound), page.database.transaction(grant) as db:
            deletion.restore_experiment(db, grant, experiment_id)
    shown = {**read_list(form), "workspace": str(workspace_id), "done": "restored"}
    return redirect("/", **shown)


@router.get("/experiments/deleted")
def show_deleted(page: SignedInPage) -> Response:
    """Show the deleted experiments of a workspace, which can be restored."""
    query = page.request.query_params
    membership = find_workspace(query, page.session)
    if membership is None:
        raise NotFound("there is no such workspace, or it is not yours")
    grant = page.grant_workspace(Scope.READ, membership.workspace_id)
    with page.database.snapshot(grant) as db:
        deleted = deletion.list_deleted(db, grant, query.get("after"), limits.LIST_PAGE_ITEMS)
    return page.render(
        "experiments_deleted.html",
        workspace=membership,
        page=deleted,
        may_change=Scope.ADMIN in membership.role.scopes,
    )


def show_again(
    page: PersonPage, form: FormFields, error: ServiceError, edit: RowEdit | None = None
) -> Response:
    """Return the list again from which the form was sent, with what was entered and the error."""
    query = dict(parse_qsl(form.text("list")))
    membership = find_workspace(query, page.session)
    if membership is None:
        raise error
    selected = form.texts("experiment")
    return show_list(page, membership, query, error, selected, edit)


def read_list(form: FormFields, *, is_page_kept: bool = False) -> dict[str, str]:
    """Return filters, order and chart of the list from which the form was sent.

    With `is_page_kept`, for forms after which the list has the same experiments, also its page.
    """
    kept = _KEPT_OF_LIST | {"after"} if is_page_kept else _KEPT_OF_LIST
    return {name: value for name, value in parse_qsl(form.text("list")) if name in kept}


def _find_name(page: PersonPage, experiment_id: str) -> str:
    """Return an experiment's name, or the beginning of its id, as its name in a comparison."""
    with page.database.without_transaction() as db:
        grant = grants.grant_read(db, experiment_id, page.session.secret)
    with page.database.snapshot(grant) as db:
        name = lifecycle.get_experiment(db, grant).name
    letters = (char if char.isalnum() or char in " -_.()=+" else "-" for char in name)
    usable = "".join(letters).strip(" .")[:_NAME_CHARS].strip(" .")
    return usable or f"unnamed {experiment_id[:_ID_CHARS]}"


def read_ids(form: FormFields, advice: str = "") -> list[ExperimentId]:
    """Return the experiments that are selected in a form.

    Raises Invalid for too many, and with an `advice`, for none.
    """
    ids = [
        each for each in dict.fromkeys(form.texts("experiment")) if secrets.is_experiment_id(each)
    ]
    if len(ids) > limits.LIST_PAGE_ITEMS:
        raise Invalid(f"select at most {limits.LIST_PAGE_ITEMS} experiments at a time")
    if advice and not ids:
        raise Invalid(advice)
    return [ExperimentId(each) for each in ids]


def read_workspace(form: FormFields) -> WorkspaceId:
    """Return the workspace that a form names. Raises NotFound for what is none."""
    workspace_id = parse_workspace_id(form.text("workspace"))
    if workspace_id is None:
        raise NotFound("there is no such workspace, or it is not yours")
    return workspace_id
