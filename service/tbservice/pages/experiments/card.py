"""A chart by URL: of an experiment, of several, or of groups; for a README, a note or a paper."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Annotated, Final, Literal, cast
from urllib.parse import urlencode

from anyio import from_thread
from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from tbservice import limits
from tbservice.api.http.query_names import check_query_names
from tbservice.errors import Invalid
from tbservice.handlers.pool import HandlerPool
from tbservice.pages.experiments.card_content import (
    CardChoice,
    find_first_tag,
    open_source,
    read_card,
    share_key,
)
from tbservice.pages.experiments.card_drawing import Look, draw_card
from tbservice.pages.experiments.chart_cards import CARD_CURVES_ITEMS_MAX
from tbservice.runs.filters import FILTER_CHARS_MAX
from tbservice.runs.shared_work import SharedWork

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

router = APIRouter(include_in_schema=False)

_CHECKED: Final = [Depends(check_query_names)]

_DRAWN: Final = SharedWork[Hashable, tuple[str, str]]()
"""Tags and cards that are drawn: all readers of a note ask for its cards at once."""


class RunChoice(BaseModel):
    """The parameters of a chart by which its runs are chosen, and who may see them.

    `group` has columns with commas between, as in the address of a comparison of runs; `pattern`
    groups by what it matches in the names of the runs. With `band` alone, all are one group.
    """

    tag: str | None = None
    run: list[str] = Field(default=[], max_length=CARD_CURVES_ITEMS_MAX)
    where: str = Field(default="", max_length=FILTER_CHARS_MAX)
    group: str = Field(default="", max_length=FILTER_CHARS_MAX)
    pattern: str | None = Field(default=None, max_length=FILTER_CHARS_MAX)
    band: Literal["std", "stderr", "range", "quartiles"] | None = None
    token: list[str] = Field(default=[], max_length=limits.COMPARISON_ITEMS_MAX)

    def choice(self) -> CardChoice:
        """Return which runs are drawn, and how they are grouped."""
        return CardChoice(self.run, self.where, self.group.strip(), self.pattern, self.band)


class CardQuery(RunChoice):
    """The parameters of a card: what it shows, and how."""

    width: int = Field(default=640, ge=200, le=2_000)
    height: int = Field(default=320, ge=120, le=2_000)
    smoothing: float = Field(default=0, ge=0, lt=1)
    y: Literal["linear", "log"] = "linear"


@router.get("/experiment/{experiment_id}/card.svg", dependencies=_CHECKED)
@router.get("/compare/{comparison}/card.svg", dependencies=_CHECKED)
def show_card(request: Request, query: Annotated[CardQuery, Query()]) -> Response:
    """Draw a scalar tag of the runs that are named, that `where` selects, or of all that have it.

    With `group`, draw groups of the runs that `where` selects, each as a line with a band. Runs of
    several experiments have the names that the address gives these.

    Without a tag, the one that the experiment's own page shows first, of the runs that are named;
    `Content-Location` has it.
    The reader is who the tokens of the address or the page's cookie are for, or who is signed in;
    nobody need be for an experiment that everybody with its URL may read. A frozen copy gives the
    same bytes as long as it is there.
    """
    tag, drawn = _draw(request, query)
    location = f"card.svg?{urlencode({'tag': tag}, errors='replace')}"
    headers = {"Content-Location": location} if len(location) <= _LOCATION_CHARS_MAX else {}
    return Response(drawn, headers={**_HEADERS, **headers}, media_type=_SVG)


@router.get("/experiment/{experiment_id}/card.png", dependencies=_CHECKED)
@router.get("/compare/{comparison}/card.png", dependencies=_CHECKED)
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
    """Return tag and SVG of the card. Raises as `open_source` and `read_card`."""
    source = open_source(request, query.token)
    tag = find_first_tag(source, query.run) if query.tag is None else query.tag
    look = Look(query.width, query.height, query.smoothing, query.y == "log")
    return _DRAWN.run(
        share_key(source, tag, query.choice(), look),
        lambda: (tag, draw_card(tag, read_card(source, tag, query.choice()), look)),
    )
