"""A chart of an experiment by URL: a picture for a README, a note or a paper."""

from __future__ import annotations

import functools
from typing import Annotated, Final, Literal, cast
from urllib.parse import urlencode

from anyio import from_thread
from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from tbservice.api.http.dependencies import get_database, get_object_store
from tbservice.api.http.query_names import check_query_names
from tbservice.auth import grants
from tbservice.errors import Forbidden, Invalid, NotFound
from tbservice.handlers.pool import HandlerPool
from tbservice.pages.experiments.card_drawing import Look, draw_card
from tbservice.pages.stock_page.link_preview import is_picture
from tbservice.pages.stock_page.page_auth import open_experiment
from tbservice.reading.curves import Curve, list_tag_page, rank_tags
from tbservice.reading.source import ExperimentReader
from tbservice.types.grants import ReadGrant
from tbservice.types.sampling import Selection
from tbwire.points import DataClass

CARD_CURVES_ITEMS_MAX: Final = 20
"""Runs (items) that one card draws: the first by name."""

CARD_POINTS: Final = 500
"""Points of one curve on a card."""

PNG_PIXELS_MAX: Final = 1_000_000
"""Pixels of a card as PNG: drawing takes 0.2 s of a processor for each million."""

_LOCATION_CHARS_MAX: Final = 2_000
_SVG: Final = "image/svg+xml"
_PNG: Final = "image/png"

_HEADERS: Final = {
    "Cache-Control": "private, max-age=60",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    # Other sites may show it: the address is as secret as what it shows.
    "Cross-Origin-Resource-Policy": "cross-origin",
}

router = APIRouter(prefix="/experiment/{experiment_id}", include_in_schema=False)


class CardQuery(BaseModel):
    """The parameters of a card: what it shows, and how."""

    tag: str | None = None
    run: list[str] = Field(default=[], max_length=CARD_CURVES_ITEMS_MAX)
    width: int = Field(default=640, ge=200, le=2_000)
    height: int = Field(default=320, ge=120, le=2_000)
    smoothing: float = Field(default=0, ge=0, lt=1)
    y: Literal["linear", "log"] = "linear"
    token: str | None = None


@router.get("/card.svg", dependencies=[Depends(check_query_names)])
def show_card(request: Request, query: Annotated[CardQuery, Query()]) -> Response:
    """Draw a scalar tag of all runs that have it, or of those that are named.

    Without a tag, the one that the experiment's own page shows first, of the runs that are named;
    `Content-Location` has it.
    The reader is who the token of the address or the page's cookie is for, or who is signed in;
    nobody need be for an experiment that everybody with its URL may read. A frozen copy gives the
    same bytes as long as it is there.
    """
    tag, drawn = _draw(request, query)
    location = f"card.svg?{urlencode({'tag': tag}, errors='replace')}"
    headers = {"Content-Location": location} if len(location) <= _LOCATION_CHARS_MAX else {}
    return Response(drawn, headers={**_HEADERS, **headers}, media_type=_SVG)


@router.get("/card.png", dependencies=[Depends(check_query_names)])
def show_png_card(request: Request, query: Annotated[CardQuery, Query()]) -> Response:
    """Draw the card of `show_card` as PNG, light: for previews, and where no SVG is shown.

    Raises Invalid for more than PNG_PIXELS_MAX.
    """
    if query.width * query.height > PNG_PIXELS_MAX:
        raise Invalid(f"a PNG has at most {PNG_PIXELS_MAX:,} pixels (png_pixels_max)")
    handlers = cast("HandlerPool", request.app.state.handlers)
    # Drawing holds Python's lock, and the names in it are anybody's.
    work = functools.partial(handlers.in_process, calls={}, cancel=lambda: None)
    _, drawn = _draw(request, query)
    image = cast("bytes", from_thread.run(work, "draw_png", drawn))
    return Response(image, headers=_HEADERS, media_type=_PNG)


def _draw(request: Request, query: CardQuery) -> tuple[str, str]:
    """Return tag and SVG of the card. Raises NotFound without such a tag or run, and as `_open`."""
    reader = _open(request, query.token)
    runs = frozenset(query.run) or None
    tag = _first_tag(request, reader, runs) if query.tag is None else query.tag
    selection = Selection(runs=runs, tags=frozenset([tag]), data_class=DataClass.SCALAR)
    names = sorted({series.run for series in reader.list_series(selection)})
    if not names:
        raise NotFound("no run of the experiment has this scalar tag")
    shown = names[:CARD_CURVES_ITEMS_MAX]
    selection = Selection(runs=frozenset(shown), tags=frozenset([tag]), data_class=DataClass.SCALAR)
    samples = sorted(reader.read_scalars(selection, CARD_POINTS), key=lambda each: each[0].run)
    curves = [Curve(series.run, sample.steps, sample.values) for series, sample in samples]
    look = Look(query.width, query.height, query.smoothing, query.y == "log")
    return tag, draw_card(tag, curves, len(names) - len(shown), look)


def _first_tag(request: Request, reader: ExperimentReader, runs: frozenset[str] | None) -> str:
    """Return the scalar tag to draw first, of some runs or of all. Raises NotFound for none."""
    if runs is None:
        with get_database(request).snapshot(reader.grant) as db:
            tags, _ = list_tag_page(db, reader.grant, "", 0, 1)
    else:
        selection = Selection(runs=runs, data_class=DataClass.SCALAR)
        tags = rank_tags({series.tag for series in reader.list_series(selection)})
    if not tags:
        raise NotFound("the experiment has no scalars")
    return tags[0]


def _open(request: Request, token: str | None) -> ExperimentReader:
    """Return a reader of the experiment. Raises as `open_experiment`."""
    if token is None:
        return open_experiment(request)
    grant = grant_by_address(request, token)
    return ExperimentReader(grant, get_database(request), get_object_store(request))


def grant_by_address(request: Request, token: str) -> ReadGrant:
    """Return the right of the token of an address, which is a share link's.

    Raises Forbidden for another one, and as `grants.grant_read_by_token`.
    """
    experiment_id = request.path_params["experiment_id"]
    with get_database(request).transaction() as db:
        if is_picture(request):
            return grants.grant_preview(db, experiment_id, token)
        grant, is_link = grants.grant_read_by_token(db, experiment_id, token)
    if not is_link:
        raise Forbidden("an address is kept and passed on: only a share link's token may be in it")
    return grant
