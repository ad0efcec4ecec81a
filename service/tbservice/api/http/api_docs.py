"""The OpenAPI document, and the API page: Swagger UI, and a plain reference where no script runs.

The page has the same origin as pages that show uploaded content. A token that is typed into it, or
that the answer of a form brought (`show_with_token`), stays in the page's memory; no other page can
open, frame or read it, by `frame-ancestors` and `Cross-Origin-Opener-Policy`. Everything is loaded
from here. Requests are tried with a token, not with the browser session: the API takes no cookie
(`require_no_session` in `auth/grants.py`), so a script that got into a page of ours could not act
for a person.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from markupsafe import Markup, escape
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from tbservice.api.http.compression import compress
from tbservice.api.http.dependencies import get_settings
from tbservice.api.http.html_templates import Templates
from tbservice.types.identifiers import Json

PATH: Final = "/api/v1/docs"
DOCUMENT_PATH: Final = "/api/v1/openapi.json"

_BOUNDS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "pattern": "matches {}",
    "default": "default {}",
}


def _list_bounds(schema: Json) -> list[str]:
    """Return the bounds of a schema in words."""
    return [text.format(_value(schema[key])) for key, text in _BOUNDS.items() if key in schema]


def _value(value: Any) -> str:
    """Return a bound or default as text; pydantic writes integer bounds as floats."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _mark_code(text: str) -> Markup:
    """Return the text as HTML, with code between backticks, which is its only markup."""
    escaped = str(escape(text))  # not a Markup: `re.sub` would escape it again
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped))  # noqa: S704 - escaped above


_TEMPLATES: Final = Templates(
    Path(__file__).parent, filters={"bounds": _list_bounds, "code": _mark_code}
)
_HEADERS: Final = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'self' {_TEMPLATES.hash_of('api_docs.html', 'style')}; "
        "script-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True, slots=True)
class TriedToken:
    """A new token that the page tries requests with, and what it says of it.

    `revoke` is the form to revoke it: its fields.
    """

    secret: str = field(repr=False)
    description: str
    revoke: Markup = field(repr=False)


def add_docs(app: FastAPI, static_url: Callable[[str], str]) -> None:
    """Serve the application's OpenAPI document at `DOCUMENT_PATH`, and its page at `PATH`.

    `static_url` returns the path of a file that the page loads. Both are compressed for clients
    that accept that; FastAPI's own route sends all of it.
    """

    async def show_document(request: Request) -> Response:
        document = JSONResponse(app.openapi(), headers={"Vary": "Accept-Encoding"})
        return await compress(request, document)

    @functools.cache
    def make_page(server: str) -> str:
        return render(app.openapi(), server, static_url)

    async def show_docs(request: Request) -> Response:
        server = get_settings(request).public_url.rstrip("/")
        page = await run_in_threadpool(make_page, server)
        headers = {**_HEADERS, "Vary": "Accept-Encoding"}
        return await compress(request, HTMLResponse(page, headers=headers))

    app.add_route(DOCUMENT_PATH, show_document, include_in_schema=False)
    app.add_route(PATH, show_docs, include_in_schema=False)


def show_with_token(
    request: Request, static_url: Callable[[str], str], tried: TriedToken
) -> Response:
    """Return the page with a token, which it keeps in memory: no store has it, and no address."""
    server = get_settings(request).public_url.rstrip("/")
    page = render(request.app.openapi(), server, static_url, tried)
    return HTMLResponse(page, headers=_HEADERS | {"Cache-Control": "no-store"})


def render(
    document: Json, server: str, static_url: Callable[[str], str], tried: TriedToken | None = None
) -> str:
    """Return the page; `server` is the URL in its example."""
    sections: dict[str, list[tuple[str, str, Json]]] = {}
    for path, operations in document["paths"].items():
        for method, described in operations.items():
            sections.setdefault(described["tags"][0], []).append((method, path, described))
    return _TEMPLATES.render(
        "api_docs.html",
        info=document["info"],
        server=server,
        static_url=static_url,
        sections=sections,
        schemas=document["components"]["schemas"],
        tried=tried,
    )
