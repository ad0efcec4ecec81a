"""The page of an experiment: TensorBoard for those who may read it, a form that asks for a token for all others."""

from __future__ import annotations

import base64
import hashlib
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
from tbservice.domain import experiments
from tbservice.errors import Forbidden
from tbservice.routes.body import read_body
from tbservice.routes.requests import database_of
from tbservice.tensorboard import assets, gate
from tbservice.types import Experiment

PAGE_POLICY: Final = (
    "default-src 'self'; base-uri 'self'; connect-src 'self'; font-src 'self' data:; form-action 'self'; "
    "frame-ancestors 'self'; img-src 'self' data: blob:; object-src 'none'; script-src 'self'; "
    "style-src 'self' 'unsafe-inline'"
)
"""Content-Security-Policy of TensorBoard's page: the stock one, less the outside addresses, and not to be framed."""

_FORM: Final = Path(__file__).with_name("token_form.html").read_text(encoding="utf-8")
_REFUSED: Final = '<p class="error" id="error" role="alert">This token does not open this experiment.</p>'
_TOKEN: Final = re.compile("tbh_[0-9A-Za-z]+")
_FORM_BYTES_MAX: Final = 64 * limits.KIB


def show_page(request: Request) -> Response:
    """GET: the page; with `?token=`, a redirect that leaves the token in a cookie instead of the address bar."""
    token = request.query_params.get("token")
    if token is not None:
        return _open_with(request, token)
    try:
        experiment = read_experiment(request)
    except gate.REFUSALS:
        return _ask_for_token(request, is_wrong=False)
    return HTMLResponse(assets.render_page(page_title(experiment)), headers={"Content-Security-Policy": PAGE_POLICY})


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
            return _ask_for_token(request, is_wrong=True)
    return response


def _is_open_anyway(request: Request) -> bool:
    try:
        gate.read_grant(request)
    except gate.REFUSALS:
        return False
    return True


def _ask_for_token(request: Request, *, is_wrong: bool) -> Response:
    """The form, with 401; the same for an experiment that does not exist as for one that is private."""
    page = Template(_FORM).substitute(
        action=html.escape(_own_address(request)),
        error=_REFUSED if is_wrong else "",
        field=f'aria-describedby="{"error " if is_wrong else ""}hint" aria-invalid="{str(is_wrong).lower()}"',
    )
    headers = {"Content-Security-Policy": _form_policy(), "Cache-Control": "no-store", "WWW-Authenticate": "Bearer"}
    return HTMLResponse(page, status_code=401, headers=headers)


def _own_address(request: Request) -> str:
    """The page's address, relative to itself, without a token."""
    rest = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
    return "./" + ("?" + urlencode(rest) if rest else "")


def _form_policy() -> str:
    style = _FORM.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
