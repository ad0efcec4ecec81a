"""The page that deletes runs of an experiment: a list, then a confirmation of what is selected."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from tbservice import limits
from tbservice.errors import Invalid
from tbservice.experiments import lifecycle, run_deletion
from tbservice.pages.base.forms import FormFields
from tbservice.pages.base.frame import redirect
from tbservice.pages.base.person_page import PersonPage, SignedInPage
from tbservice.pages.base.signed_in import SignedInForm
from tbservice.types.identifiers import INT64_MAX

router = APIRouter(prefix="/experiment/{experiment_id}/runs", include_in_schema=False)

_DIGITS_MAX = len(str(INT64_MAX))


@router.get("")
def show_runs(page: SignedInPage, experiment_id: str) -> Response:
    """List runs with their sizes, to select some; `q` is a part of their names."""
    search = page.request.query_params.get("q", "").strip()
    after = _parse_id(page.request.query_params.get("after", "0"))
    return _show(page, experiment_id, search, after)


def _show(
    page: PersonPage, experiment_id: str, search: str, after: int, error: Invalid | None = None
) -> Response:
    with page.admin_transaction(experiment_id) as (db, grant):
        experiment = lifecycle.find_own(db, grant)
        runs = run_deletion.list_run_sizes(
            db, grant, search, after, limits.DELETED_RUNS_ITEMS_MAX + 1
        )
    shown = runs[: limits.DELETED_RUNS_ITEMS_MAX]
    return page.render(
        "experiment_runs.html",
        error,
        workspace=page.session.find_membership(grant.workspace_id),
        experiment=experiment,
        runs=shown,
        search=search,
        after=after,
        next=shown[-1].run_id if len(runs) > len(shown) else None,
    )


@router.post("/delete")
def delete_runs(page: SignedInPage, experiment_id: str, form: SignedInForm) -> Response:
    """Ask whether to delete the selected runs; delete them if that is what was asked for.

    One that is not there any more is no error.
    """
    try:
        run_ids = _read_ids(form)
    except Invalid as error:
        search, after = form.text("q"), _parse_id(form.text("after", "0"))
        return _show(page, experiment_id, search, after, error)
    with page.admin_transaction(experiment_id) as (db, grant):
        experiment = lifecycle.find_own(db, grant)
        runs = run_deletion.find_run_sizes(db, grant, run_ids)
    address = f"/experiment/{experiment_id}/runs"
    if runs and form.text("confirmed") != "yes":
        name = experiment.name.strip() or "Unnamed experiment"
        return page.render(
            "experiment_runs_delete.html",
            workspace=page.session.find_membership(grant.workspace_id),
            runs=runs,
            names=[],
            crumb=(address, name),
            back=address,
            action=f"{address}/delete",
            fields=[("run", run.run_id) for run in runs],
        )
    run_deletion.delete_runs(page.database, grant, [run.name for run in runs])
    return redirect(address, done="runs-deleted")


def _read_ids(form: FormFields) -> list[int]:
    """Return the ids of the selected runs. Raises Invalid."""
    run_ids = [_parse_id(text) for text in dict.fromkeys(form.texts("run"))]
    if not 1 <= len(run_ids) <= limits.DELETED_RUNS_ITEMS_MAX:
        raise Invalid(f"select 1 to {limits.DELETED_RUNS_ITEMS_MAX} runs")
    return run_ids


def _parse_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise Invalid("a run's number has digits only: use the links and forms of the page")
    return min(int(text), INT64_MAX)
