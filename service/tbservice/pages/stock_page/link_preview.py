"""Previews of shared experiments in messages: a page with a title and a picture.

The programs that show them follow a link without keeping its cookie: they would see the form for a
token.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tbservice.api.http.dependencies import get_database, get_settings
from tbservice.auth import grants
from tbservice.errors import ServiceError
from tbservice.experiments import lifecycle
from tbservice.pages.base.templates import TEMPLATES
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
    token = next(iter(request.query_params.getlist("token")), None)
    try:
        grant = _find_grant(request, request.path_params["experiment_id"], token)
        with get_database(request).snapshot(grant) as db:
            experiment = lifecycle.get_experiment(db, grant)
    except ServiceError:
        return None
    query = {"width": str(_WIDTH), "height": str(_HEIGHT), **({"token": token} if token else {})}
    server = get_settings(request).public_url.rstrip("/")
    picture = f"{server}/experiment/{grant.experiment_id}/card.png?{urlencode(query)}"
    page = TEMPLATES.render(
        "stock_page/link_preview.html",
        experiment=experiment,
        picture=picture,
        width=_WIDTH,
        height=_HEIGHT,
    )
    return HTMLResponse(page, headers=_HEADERS)


def _is_previewer(request: Request) -> bool:
    return _PREVIEWERS.search(request.headers.get("user-agent", "")) is not None


def _find_grant(request: Request, experiment_id: str, token: str | None) -> ReadGrant:
    with get_database(request).transaction() as db:
        if token is None:
            return grants.grant_read(db, experiment_id, None)
        return grants.grant_preview(db, experiment_id, token)
