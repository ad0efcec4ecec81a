"""The state of the service for an operator: stores, nodes, versions, and what was refused."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from tbservice.api.http.dependencies import get_settings
from tbservice.api.http.metrics_exposition import REFUSALS, read_counters
from tbservice.api.http.readiness import Readiness
from tbservice.audit.backups import list_backups
from tbservice.errors import Unavailable
from tbservice.pages.operator.operator_page import PATH, OwnPage

router = APIRouter(prefix=PATH, include_in_schema=False)


@router.get("/health")
def show_health(page: OwnPage) -> Response:
    """Show the state of what the service needs, its versions, and what was refused."""
    readiness: Readiness = page.request.app.state.readiness
    readiness.check_object_store()
    nodes = readiness.list_unavailable_nodes()
    problem = ""
    try:
        readiness.check()
    except Unavailable as error:
        problem = error.detail
    with page.database.snapshot() as db:
        backup = next(iter(list_backups(db, limit=1)), None)
    counters = read_counters(*REFUSALS)
    return page.render(
        "health.html",
        problem=problem,
        object_store=readiness.object_store,
        nodes=nodes,
        state=page.database.read_state(),
        keep_days=get_settings(page.request).backup_keep_days,
        backup=backup,
        refused=[
            (labels["route"], labels["code"], count)
            for labels, count in counters["tbhub_http_errors"]
        ],
        others={
            "Over their share": counters["tbhub_over_share"],
            "Failed sign-ins": counters["tbhub_sign_in_failures"],
            "Reports of pages": counters["tbhub_page_reports"],
        },
    )
