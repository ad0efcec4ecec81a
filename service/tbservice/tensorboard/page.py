"""The page of an experiment: TensorBoard for those who may read it, a form that asks for a token for all others.

What cannot be shown is found out here, before the web app loads: it would say no more than that data are missing.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from string import Template
from typing import Final
from urllib.parse import parse_qs, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tbservice import limits
from tbservice.domain import experiments, reading
from tbservice.errors import Forbidden, Unavailable
from tbservice.routes.body import read_body
from tbservice.routes.requests import database_of, settings_of
from tbservice.tensorboard import assets, bar, gate, notices
from tbservice.types import Experiment

PAGE_POLICY: Final = (
    "default-src 'self'; base-uri 'self'; connect-src 'self'; font-src 'self' data:; form-action 'self'; "
    f"frame-ancestors 'self'; img-src 'self' data: blob:; object-src 'none'; script-src 'self' {bar.SCRIPT_HASH}; "
    "style-src 'self' 'unsafe-inline'"
)
"""Content-Security-Policy of TensorBoard's page: the stock one, less the outside addresses, and not to be framed."""

_FORM: Final = Path(__file__).with_name("token_form.html").read_text(encoding="utf-8")
_REFUSED: Final = "This token does not open this experiment."
_ENDED: Final = "Your access has ended: the link or token you came with has expired or was revoked."
_TOKEN: Final = re.compile("tbh_[0-9A-Za-z]+")
_FORM_POLICY: Final = (
    f"default-src 'none'; style-src {notices.content_hash(_FORM, 'style')}; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_FORM_BYTES_MAX: Final = 64 * limits.KIB


def show_page(request: Request) -> Response:
    """GET: the page, or a notice while there is nothing to show.

    With `?token=`, a redirect that leaves the token in a cookie instead of the address bar.
    """
    token = request.query_params.get("token")
    try:
        return _show_experiment(request) if token is None else _open_with(request, token)
    except gate.REFUSALS:
        return _ask_for_token(request, _ENDED if gate.COOKIE in request.cookies else "")
    except Unavailable:
        return notices.show_unavailable()


def _show_experiment(request: Request) -> Response:
    grant = gate.read_grant(request)
    with database_of(request).snapshot(grant.workspace_id) as db:
        experiment = experiments.get_experiment(db, grant)
        is_empty = not reading.list_plugins(db, grant)
    if is_empty:
        return notices.show_empty(experiment, settings_of(request).public_url)
    page = assets.render_page(page_title(experiment), bar.render_bar(experiment))
    return HTMLResponse(page, headers={"Content-Security-Policy": PAGE_POLICY})


async def submit_token(request: Request) -> Response:
    """POST of the form: as opening the address with `?token=`."""
    # Another site's form could only make this browser see what that site may see; still, it is not ours.
    if request.headers.get("sec-fetch-site") not in {None, "same-origin", "none"}:
        raise Forbidden("this form belongs to another site")
    body = await read_body(request, _FORM_BYTES_MAX, limits.body_seconds_max)
    fields = parse_qs(body.decode("latin-1"), max_num_fields=10)
    pasted = fields.get("token", [""])[0]
    token = _TOKEN.search(pasted)  # it may be a whole share link
    return await run_in_threadpool(_open_with, request, token[0] if token else pasted)


def read_experiment(request: Request) -> Experiment:
    """The experiment of the request's path, for whoever may read it; raises as `gate.read_grant` does."""
    grant = gate.read_grant(request)
    with database_of(request).snapshot(grant.workspace_id) as db:
        return experiments.get_experiment(db, grant)


def page_title(experiment: Experiment) -> str:
    """What the browser's tab says."""
    return f"{experiment.name} · TensorBoard" if experiment.name else "TensorBoard"


def _open_with(request: Request, token: str) -> Response:
    response = RedirectResponse(_own_address(request), status_code=303, headers={"Cache-Control": "no-store"})
    try:
        gate.remember(response, request, token)
    except gate.REFUSALS:
        if not _is_open_anyway(request):
            return _ask_for_token(request, _REFUSED)
    return response


def _is_open_anyway(request: Request) -> bool:
    try:
        gate.read_grant(request)
    except gate.REFUSALS:
        return False
    return True


def _ask_for_token(request: Request, error: str) -> Response:
    """The form, with 401; the same for an experiment that does not exist as for one that is private."""
    page = Template(_FORM).substitute(
        action=html.escape(_own_address(request)),
        error=f'<p class="error" id="error" role="alert">{error}</p>' if error else "",
        field=f'aria-describedby="{"error " if error else ""}hint" aria-invalid="{str(error == _REFUSED).lower()}"',
    )
    headers = {"Content-Security-Policy": _FORM_POLICY, "Cache-Control": "no-store", "WWW-Authenticate": "Bearer"}
    return HTMLResponse(page, status_code=401, headers=headers)


def _own_address(request: Request) -> str:
    """The page's address, relative to itself, without a token."""
    rest = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
    return "./" + ("?" + urlencode(rest) if rest else "")
