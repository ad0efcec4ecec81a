"""Previews of shared experiments in messages: a page with a title and a picture.

The programs that show them follow a link without keeping its cookie: they would see the form for a
token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tbservice import limits
from tbservice.api.http.dependencies import get_database, get_settings
from tbservice.auth import grants
from tbservice.errors import NotFound, ServiceError, Unauthenticated
from tbservice.experiments import lifecycle
from tbservice.pages.base.templates import TEMPLATES
from tbservice.reading import comparison_spec
from tbservice.runs.columns import join_names
from tbservice.runs.grouped_reader import parse_groups
from tbservice.types.grants import ReadGrant

_PREVIEWERS: Final = re.compile(
    "facebookexternalhit|Twitterbot|Slackbot|Slack-ImgProxy|Discordbot|LinkedInBot|WhatsApp"
    "|TelegramBot|SkypeUriPreview|Mattermost|Synapse|Iframely|Embedly",
    re.IGNORECASE,
)
"""Names in the User-Agent of programs that show previews of links."""

_WIDTH: Final = 1200
_HEIGHT: Final = 630
"""Pixels of the picture, as https://ogp.me and its readers advise."""

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "Referrer-Policy": "no-referrer",
    "Vary": "User-Agent",
}


def is_picture(request: Request) -> bool:
    """Return whether the request is for the picture of a preview, as `find_preview` names it.

    Anybody can send the name of such a program: with it, nothing else is read unrecorded.
    """
    is_named = request.query_params.keys() <= {"width", "height", "token"}
    return _is_previewer(request) and is_named and request.url.path.endswith("/card.png")


def find_preview(request: Request) -> Response | None:
    """Return the preview of what the link of the address shows, or of what everybody may read.

    None for every other reader, and without the right to read. It is no use of the link.
    """
    if not _is_previewer(request):
        return None
    tokens = request.query_params.getlist("token")[: limits.COMPARISON_ITEMS_MAX]
    text = request.path_params.get("comparison")
    try:
        compared = [] if text is None else comparison_spec.parse(text, 1)
        ids = [each.experiment_id for each in compared] or [request.path_params["experiment_id"]]
        names = [_read_name(request, experiment_id, tokens) for experiment_id in ids]
    except ServiceError:
        return None
    path = f"experiment/{ids[0]}" if text is None else f"compare/{comparison_spec.quote_spec(text)}"
    query: dict[str, Any] = {"width": _WIDTH, "height": _HEIGHT, "token": tokens}
    if "groups" in request.path_params:
        groups = parse_groups(request.path_params["groups"])
        given = {
            "group": join_names(groups.columns),
            "pattern": groups.pattern,
            "where": groups.where,
        }
        query |= {name: value for name, value in given.items() if value}
    server = get_settings(request).public_url.rstrip("/")
    picture = f"{server}/{path}/card.png?{urlencode(query, doseq=True)}"
    page = TEMPLATES.render(
        "stock_page/link_preview.html",
        name=", ".join(filter(None, names)),
        picture=picture,
        width=_WIDTH,
        height=_HEIGHT,
    )
    return HTMLResponse(page, headers=_HEADERS)


def _is_previewer(request: Request) -> bool:
    return _PREVIEWERS.search(request.headers.get("user-agent", "")) is not None


def _read_name(request: Request, experiment_id: str, tokens: Sequence[str]) -> str:
    grant = _find_grant(request, experiment_id, tokens)
    with get_database(request).snapshot(grant) as db:
        return lifecycle.get_experiment(db, grant).name.strip()


def _find_grant(request: Request, experiment_id: str, tokens: Sequence[str]) -> ReadGrant:
    """Return the right of the first token that opens the experiment, or of everybody."""
    for token in tokens:
        try:
            with get_database(request).transaction() as db:
                return grants.grant_preview(db, experiment_id, token)
        except (Unauthenticated, NotFound):
            continue
    with get_database(request).transaction() as db:
        return grants.grant_read(db, experiment_id, None)
