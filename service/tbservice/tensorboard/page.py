"""The page of an experiment or of several: TensorBoard for who may read it, a form that asks for a token for others.

What cannot be shown is found out here, before the web app loads: it would say no more than that data are missing.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tbservice import limits
from tbservice.api.http.dependencies import get_settings
from tbservice.errors import Unavailable
from tbservice.pages import bar, message_pages, page_auth, token_form
from tbservice.reading.comparison import ComparisonReader
from tbservice.reading.source import Source
from tbservice.tensorboard import assets
from tbservice.types import Experiment

PAGE_POLICY: Final = (
    "default-src 'self'; base-uri 'self'; connect-src 'self'; font-src 'self' data:; form-action 'self'; "
    f"frame-ancestors 'self'; img-src 'self' data: blob:; object-src 'none'; script-src 'self' {bar.SCRIPT_HASH}; "
    "style-src 'self' 'unsafe-inline'"
)
"""Content-Security-Policy of TensorBoard's page: the stock one, less the outside addresses, and not to be framed."""

_GZIP_LEVEL: Final = 1
"""A sixth of the page's 200 KB in a millisecond; the highest level takes off another 7 KB in four."""


def show_page(request: Request) -> Response:
    """GET: the page, or a notice while there is nothing to show.

    With `?token=`, which may be repeated, a redirect that leaves the tokens in a cookie instead of the address bar.
    """
    offered = request.query_params.getlist("token")
    try:
        return _redirect_with_cookie(request, offered) if offered else _show(request)
    except page_auth.ACCESS_ERRORS:
        return token_form.ask_for_token(request, _page_url(request))
    except Unavailable:
        return message_pages.show_unavailable()


def _show(request: Request) -> Response:
    source = page_auth.open_source(request)
    experiments = source.list_experiments()
    kinds = source.list_kinds()
    if not kinds:
        return message_pages.show_empty(experiments[0], get_settings(request).public_url)
    if isinstance(source, ComparisonReader):
        shown_bar = bar.render_comparison_bar(dict(zip(source.readers, experiments, strict=True)))
    else:
        shown_bar = bar.render_bar(experiments[0], {data_class for _, data_class in kinds})
    page = assets.render_page(page_title(display_name(source, experiments)), shown_bar)
    return _as_html(request, page)


def _as_html(request: Request, page: bytes) -> Response:
    headers = {"Content-Security-Policy": PAGE_POLICY, "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return HTMLResponse(page, headers=headers)
    return HTMLResponse(
        gzip.compress(page, _GZIP_LEVEL, mtime=0), headers={**headers, "Content-Encoding": "gzip"}
    )


async def submit_token(request: Request) -> Response:
    """POST of the form: as opening the address with `?token=`."""
    return await run_in_threadpool(
        _redirect_with_cookie, request, await token_form.parse_tokens(request)
    )


def display_name(source: Source, experiments: Sequence[Experiment]) -> str:
    """What the source's experiments are called; in a comparison, each after its name there."""
    if not isinstance(source, ComparisonReader):
        return experiments[0].name
    names = zip(source.readers, experiments, strict=True)
    return ", ".join(
        f"{name}: {experiment.name}" if experiment.name else name for name, experiment in names
    )


def page_title(name: str) -> str:
    """What the browser's tab says."""
    return f"{name} · TensorBoard" if name else "TensorBoard"


def _redirect_with_cookie(request: Request, offered: Sequence[str]) -> Response:
    response = RedirectResponse(
        _page_url(request), status_code=303, headers={"Cache-Control": "no-store"}
    )
    try:
        page_auth.set_read_cookie(response, request, offered[: limits.COMPARISON_ITEMS_MAX])
    except page_auth.ACCESS_ERRORS:
        return token_form.ask_for_token(request, _page_url(request), is_refused=True)
    return response


def _page_url(request: Request) -> str:
    """The page's address, relative to itself, without a token."""
    rest = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
    return "./" + ("?" + urlencode(rest) if rest else "")
