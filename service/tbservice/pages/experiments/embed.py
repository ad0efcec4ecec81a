"""A chart of an experiment as a page for a frame on another page, with the curves live."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from tbservice.api.http.dependencies import UsesDatabase
from tbservice.api.http.query_names import check_query_names
from tbservice.errors import NotFound
from tbservice.pages.base.frame import render
from tbservice.pages.base.signed_in import MaybeSignedIn
from tbservice.pages.experiments.card import CARD_CURVES_ITEMS_MAX, grant_by_address
from tbservice.pages.experiments.chart_cards import (
    CARD_RUNS_ITEMS_MAX,
    ChartRun,
    ChartsAddress,
    ChartSource,
    make_charts,
)
from tbservice.pages.experiments.experiment_reader import find_reader
from tbservice.pages.stock_page.framing import frame_ancestors
from tbservice.reading import curves

router = APIRouter(prefix="/experiment/{experiment_id}", include_in_schema=False)


class EmbedQuery(BaseModel):
    """The parameters of a chart in a frame; the script reads the last three."""

    tag: str | None = None
    run: list[str] = Field(default=[], max_length=CARD_CURVES_ITEMS_MAX)
    token: str | None = None
    smoothing: float = Field(default=0.6, ge=0, lt=1)
    axis: Literal["step", "relative", "wall"] = "step"
    log: Literal["0", "1"] = "0"


@router.get("/embed", dependencies=[Depends(check_query_names)])
def show_embedded(
    request: Request,
    experiment_id: str,
    session: MaybeSignedIn,
    database: UsesDatabase,
    query: Annotated[EmbedQuery, Query()],
) -> Response:
    """Show a scalar tag of all runs that have it, or of those that are named, and new points.

    Sites that the operator names may show it in a frame. Browsers send no cookies there, so that
    the address has the token of a share link, unless everybody may read the experiment. Raises as
    `find_reader`, and NotFound for a tag that the experiment does not have.
    """
    if query.token is None:
        reader = find_reader(request, experiment_id, session, database)
        source = ChartSource(reader.grant, reader.token)
    else:
        source = ChartSource(grant_by_address(request, query.token), query.token)
    with database.snapshot(source.grant) as db:
        tags, _ = curves.list_tag_page(db, source.grant, "", 0, 1)
        names, total = curves.list_run_page(db, source.grant, "", CARD_RUNS_ITEMS_MAX)
        names = [name for name in names if name in query.run] if query.run else names
        charts = make_charts(
            db,
            [source],
            [ChartRun(0, name, name) for name in names],
            tags if query.tag is None else [query.tag],
            ChartsAddress(f"/experiment/{experiment_id}/embed"),
            (1, len(names)),
            has_all_runs=not query.run and total == len(names),
        )
    if not any(card.rows for card in charts.cards):
        raise NotFound("no run of the experiment has this scalar tag")
    return render(request, "embed.html", charts=charts, framing=frame_ancestors(request))
