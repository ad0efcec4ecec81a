"""A chart as a page for a frame on another page, with the curves live."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field
from starlette.responses import Response

from tbservice.api.http.dependencies import UsesDatabase
from tbservice.api.http.query_names import check_query_names
from tbservice.db.database import Database
from tbservice.errors import NotFound
from tbservice.pages.base.frame import frame_ancestors, render
from tbservice.pages.base.person_session import PersonSession
from tbservice.pages.base.signed_in import MaybeSignedIn, answer_script
from tbservice.pages.experiments.card import RunChoice
from tbservice.pages.experiments.card_content import (
    find_first_tag,
    list_readers,
    make_source,
    open_by_address,
    open_source,
    read_group_curves,
    select_names,
    share_key,
)
from tbservice.pages.experiments.chart_cards import (
    CARD_RUNS_ITEMS_MAX,
    ChartRun,
    Charts,
    ChartsAddress,
    ChartSource,
    make_charts,
)
from tbservice.pages.experiments.experiment_reader import find_reader
from tbservice.pages.experiments.group_cards import encode_groups, make_group_charts, parse_steps
from tbservice.pages.stock_page import page_auth
from tbservice.reading import curves
from tbservice.reading.comparison import Source, name_in_comparison
from tbservice.runs.shared_work import SharedWork
from tbservice.types.sampling import ALL_STEPS

router = APIRouter(include_in_schema=False)

_READS: Final = SharedWork[Hashable, dict[str, Any]]()
"""Groups that scripts of frames ask for."""


class EmbedQuery(RunChoice):
    """The parameters of a chart in a frame; the script reads the last three."""

    smoothing: float = Field(default=0.6, ge=0, lt=1)
    axis: Literal["step", "relative", "wall"] = "step"
    log: Literal["0", "1"] = "0"


class EmbeddedGroupsQuery(EmbedQuery):
    """The parameters of the frame whose script asks, its tag, and the range of a zoom."""

    metric: str
    step_min: str = ""
    step_max: str = ""


@router.get("/experiment/{experiment_id}/embed", dependencies=[Depends(check_query_names)])
@router.get("/compare/{comparison}/embed", dependencies=[Depends(check_query_names)])
def show_embedded(
    request: Request,
    session: MaybeSignedIn,
    database: UsesDatabase,
    query: Annotated[EmbedQuery, Query()],
) -> Response:
    """Show a scalar tag as a card does, with new points: of up to CARD_RUNS_ITEMS_MAX runs.

    Sites that the operator names may show it in a frame. Browsers send no cookies there, so that
    the address has the tokens of share links, unless everybody may read the experiments. Raises as
    `find_reader`, and NotFound for a tag that they do not have.
    """
    opened = [
        _open(request, experiment_id, session, database, query.token)
        for experiment_id, _ in page_auth.list_page_tokens(request)
    ]
    source = make_source(request, [each.grant for each in opened])
    tag = find_first_tag(source, query.run) if query.tag is None else query.tag
    address = ChartsAddress(request.url.path)
    if query.choice().has_groups:
        charts = _make_group_charts(source, opened, tag, query, address)
    else:
        charts = _make_charts(source, opened, tag, query, address)
    if not any(card.rows or card.bands for card in charts.cards):
        raise NotFound("no run that is chosen has this scalar tag")
    return render(request, "embed.html", charts=charts, framing=frame_ancestors(request))


@router.get("/experiment/{experiment_id}/embed/groups", dependencies=[Depends(check_query_names)])
@router.get("/compare/{comparison}/embed/groups", dependencies=[Depends(check_query_names)])
def read_embedded_groups(
    request: Request, query: Annotated[EmbeddedGroupsQuery, Query()]
) -> Response:
    """Return the groups of a frame as they are now, for its script; no part of the API.

    Who may read them is who may see the card. Raises as `read_card`.
    """
    source = open_source(request, query.token)
    steps = parse_steps(request.query_params)

    def read() -> dict[str, Any]:
        drawn, bands = read_group_curves(source, query.metric, query.choice(), steps)
        return encode_groups(drawn, {query.metric: bands}, [query.metric])

    key = share_key(source, query.metric, query.choice(), steps)
    return answer_script(_READS.run(key, read))


def _open(
    request: Request,
    experiment_id: str,
    session: PersonSession | None,
    database: Database,
    tokens: list[str],
) -> ChartSource:
    """Return the right to read an experiment, with a token for the script."""
    opened = open_by_address(request, experiment_id, tokens)
    if opened is not None:
        return ChartSource(*opened)
    reader = find_reader(request, experiment_id, session, database)
    return ChartSource(reader.grant, reader.token)


def _make_group_charts(
    source: Source,
    opened: list[ChartSource],
    tag: str,
    query: EmbedQuery,
    address: ChartsAddress,
) -> Charts:
    drawn, bands = read_group_curves(source, tag, query.choice(), ALL_STEPS)
    charts = make_group_charts(drawn, {tag: bands}, ([tag], 1), query.choice().kind, address)
    charts.config["sources"] = [
        {"id": each.grant.experiment_id, "token": each.token} for each in opened
    ]
    return charts


def _make_charts(
    source: Source,
    opened: list[ChartSource],
    tag: str,
    query: EmbedQuery,
    address: ChartsAddress,
) -> Charts:
    chosen = set(query.run) or None
    if query.where:
        selected = select_names(source, query.where)
        chosen = selected if chosen is None else chosen & selected
    runs: list[ChartRun] = []
    total = 0
    for number, (prefix, reader) in enumerate(list_readers(source).items()):
        names, count = reader.read(curves.list_run_page, "", CARD_RUNS_ITEMS_MAX)
        total += count
        for name in names:
            label = name_in_comparison(prefix, name) if prefix else name
            if chosen is None or label in chosen:
                runs.append(ChartRun(number, name, label))
    del runs[CARD_RUNS_ITEMS_MAX:]
    return make_charts(
        reader.database.snapshot,
        opened,
        runs,
        [tag],
        address,
        (1, len(runs)),
        has_all_runs=chosen is None and total == len(runs),
    )
