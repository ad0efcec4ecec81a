"""The page that says how selected experiments are moved to another workspace.

A workspace is the border of tenants, which no request crosses (decision 74): the command that does
it has a token of each.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.responses import Response

from tbservice import limits
from tbservice.api.http.dependencies import get_settings
from tbservice.auth import secrets
from tbservice.errors import Invalid
from tbservice.experiments import lifecycle
from tbservice.pages.base.frame import redirect
from tbservice.pages.base.person_page import PersonPage, SignedInPage
from tbservice.pages.base.signed_in import SignedInForm
from tbservice.pages.experiments.experiment_selection import SHOWN_ERRORS, read_ids, show_again
from tbservice.pages.people.workspace_view import parse_workspace_id
from tbservice.types.experiments import Experiment
from tbservice.types.grants import ReadGrant, Scope
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.people import Membership

router = APIRouter(include_in_schema=False)


@router.post("/experiments/move")
def choose_selected(page: SignedInPage, form: SignedInForm) -> Response:
    """Redirect to the page for the selected experiments."""
    try:
        ids = read_ids(form, "select the experiments to move")
    except SHOWN_ERRORS as error:
        return show_again(page, form, error)
    return redirect(f"/experiments/move?{urlencode({'experiment': ids}, doseq=True)}")


@router.get("/experiments/move")
def show_move(page: SignedInPage) -> Response:
    """Show the commands that move experiments to the workspace `to`, or to another server.

    Without experiments, redirects to the list. By default to the only other workspace of which the
    person may change experiments, if there is one alone.
    """
    query = page.request.query_params
    ids = [each for each in query.getlist("experiment") if secrets.is_experiment_id(each)]
    ids = list(dict.fromkeys(ids))[: limits.LIST_PAGE_ITEMS]
    if not ids:
        return redirect("/")
    workspace_id, experiments = _read_experiments(page, ids)
    targets = [
        each
        for each in page.session.memberships
        if Scope.ADMIN in each.role.scopes and each.workspace_id != workspace_id
    ]
    target = page.session.find_membership(parse_workspace_id(query.get("to", "")) or WorkspaceId(0))
    if target not in targets:
        target = targets[0] if len(targets) == 1 and "to" not in query else None
    return page.render(
        "experiment_move.html",
        workspace=page.session.find_membership(workspace_id),
        experiments=experiments,
        targets=targets,
        target=target,
        is_elsewhere=query.get("to") == "server",
        commands=_commands(page, workspace_id, ids, target),
        may_create_workspaces=get_settings(page.request).people_create_workspaces,
    )


def _read_experiments(page: PersonPage, ids: Sequence[str]) -> tuple[WorkspaceId, list[Experiment]]:
    """Return the experiments and their workspace.

    Raises NotFound and Forbidden unless the person may change all of them; Invalid if they are of
    several workspaces.
    """
    experiments = []
    workspaces = set()
    for experiment_id in ids:
        with page.admin_transaction(experiment_id) as (db, grant):
            experiments.append(
                lifecycle.get_experiment(db, ReadGrant(grant.workspace_id, grant.experiment_id))
            )
            workspaces.add(grant.workspace_id)
    if len(workspaces) > 1:
        raise Invalid("select experiments of one workspace")
    return workspaces.pop(), experiments


def _commands(
    page: PersonPage, workspace_id: WorkspaceId, ids: Sequence[str], target: Membership | None
) -> tuple[list[str], str]:
    """Return the commands that log in to the two workspaces, and the one that moves."""
    server = get_settings(page.request).public_url.rstrip("/")
    source = f"workspace-{workspace_id}"
    other = "other-server" if target is None else f"workspace-{target.workspace_id}"
    address = "https://OTHER-SERVER" if target is None else server
    logins = [
        shlex.join(["tbupload", "login", "--server", url, "--profile", profile])
        for url, profile in ((server, source), (address, other))
    ]
    return logins, shlex.join(["tbupload", "move", *ids, "--profile", source, "--to", other])
