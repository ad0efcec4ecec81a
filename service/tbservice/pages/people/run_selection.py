"""Actions on runs that are selected in the table of a workspace: compare, tag, delete."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import Final
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from tbservice import limits
from tbservice.errors import Invalid, NotFound, ServiceError
from tbservice.experiments import lifecycle, run_deletion
from tbservice.pages.base.forms import FormFields
from tbservice.pages.base.frame import redirect
from tbservice.pages.base.signed_in import SignedInForm
from tbservice.pages.people.workspace_runs import parse_references, read_state, render_runs
from tbservice.pages.people.workspace_view import SHOWN_ERRORS, OwnPage, WorkspacePage
from tbservice.runs.run_tags import change_run_tags
from tbservice.types.experiments import Experiment
from tbservice.types.identifiers import ExperimentId

router = APIRouter(prefix="/workspace/{workspace_id}/runs", include_in_schema=False)

_TAGS_CHARS_MAX: Final = 4_000


@router.post("/selected")
def compare(page: OwnPage, form: SignedInForm) -> Response:
    """Redirect to the comparison of the selected runs."""
    ids = form.texts("id")
    if not ids:
        return _show_again(page, form, Invalid("select the runs to compare"))
    address = f"{page.address}/runs/compare?{urlencode({'id': ids}, doseq=True)}"
    return RedirectResponse(address, status_code=303, headers={"Cache-Control": "no-store"})


@router.post("/tag")
def tag(page: OwnPage, form: SignedInForm) -> Response:
    """Add tags to the selected runs, or remove them. One that is gone is no error."""
    tags = [each for each in form.text("tags")[:_TAGS_CHARS_MAX].split(",") if each.strip()]
    added, removed = ([], tags) if form.text("act") == "remove" else (tags, [])
    try:
        if not tags:
            raise Invalid("name a tag to add or remove")
        for experiment_id, digests in _read_selected(form).items():
            with suppress(NotFound), page.admin_transaction(experiment_id) as (db, grant):
                runs = run_deletion.find_named_run_sizes(db, grant, digests)
                change_run_tags(db, grant, [run.name for run in runs], added, removed)
    except SHOWN_ERRORS as error:
        return _show_again(page, form, error)
    return _return_to_table(page, form, "runs-tagged")


@router.post("/delete")
def delete(page: OwnPage, form: SignedInForm) -> Response:
    """Ask whether to delete the selected runs; delete them if that is what was asked for.

    One that is gone is no error.
    """
    found = []
    try:
        for experiment_id, digests in _read_selected(form).items():
            with suppress(NotFound), page.admin_transaction(experiment_id) as (db, grant):
                experiment = lifecycle.find_own(db, grant)
                runs = run_deletion.find_named_run_sizes(db, grant, digests)
                found.append((experiment, grant, runs))
    except SHOWN_ERRORS as error:
        return _show_again(page, form, error)
    if any(runs for *_, runs in found) and form.text("confirmed") != "yes":
        return page.render(
            "experiment_runs_delete.html",
            runs=[run for *_, runs in found for run in runs],
            names=[_name(experiment) for experiment, _, runs in found for _ in runs],
            crumb=(f"{page.address}/runs", "Runs"),
            back=f"{page.address}/runs?{urlencode(read_state(form.text('list')))}",
            action=f"{page.address}/runs/delete",
            fields=[("list", form.text("list")), *(("id", each) for each in form.texts("id"))],
        )
    for _, grant, runs in found:
        run_deletion.delete_runs(page.database, grant, [run.name for run in runs])
    return _return_to_table(page, form, "runs-deleted")


def _read_selected(form: FormFields) -> dict[ExperimentId, list[str]]:
    """Return digests of the selected runs by experiment. Raises Invalid for none or too many."""
    chosen = parse_references(form.texts("id"))
    if not 1 <= len(chosen) <= limits.DELETED_RUNS_ITEMS_MAX:
        raise Invalid(f"select 1 to {limits.DELETED_RUNS_ITEMS_MAX} runs")
    selected = defaultdict(list)
    for run in chosen:
        selected[run.experiment_id].append(run.digest)
    return selected


def _name(experiment: Experiment) -> str:
    return experiment.name.strip() or "Unnamed experiment"


def _show_again(page: WorkspacePage, form: FormFields, error: ServiceError) -> Response:
    """Return the table again from which the form was sent, with its selection and the error."""
    query = read_state(form.text("list"))
    return render_runs(page, query, error, frozenset(form.texts("id")))


def _return_to_table(page: WorkspacePage, form: FormFields, done: str) -> Response:
    """Redirect to the table from which the form was sent."""
    return redirect(f"{page.address}/runs", **read_state(form.text("list")), done=done)
