"""The page of an experiment or a comparison: TensorBoard, or a form that asks for a token.

An empty experiment, a missing right and an unavailable server are detected here, before the web app
loads: the app itself would only show that there are no data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tbservice.api.http.compression import choose_coding, encode
from tbservice.api.http.dependencies import get_settings
from tbservice.api.http.security_headers import PUBLISHED
from tbservice.errors import Invalid, MalformedRequest, TooLarge, Unavailable
from tbservice.experiment_values import ExperimentNotes
from tbservice.pages.base.content_origin import public_site
from tbservice.pages.base.frame import frame_ancestors
from tbservice.pages.base.markdown import render_markdown
from tbservice.pages.base.templates import TEMPLATES
from tbservice.pages.stock_page import bar, link_preview, message_pages, page_auth, token_form
from tbservice.pages.stock_page.attempt_choice import AttemptChoice
from tbservice.reading.comparison import ComparisonReader, Source
from tbservice.reading.source import ExperimentReader
from tbservice.runs.grouped_reader import GroupedReader, parse_groups
from tbservice.tensorboard import assets
from tbservice.tensorboard.page_policy import make_page_policy
from tbservice.types.experiments import Experiment

_ATTEMPT: Final = re.compile("[1-9][0-9]{0,8}")
"""The number of an attempt in the query of a page, which leads to the attempt's own address."""


def show_page(request: Request) -> Response:
    """Answer GET with the page, or with a message page while there is nothing to show.

    With `?token=` (repeatable), redirect to the address without tokens, and store them in the
    page's cookie: so they are not in the browser's history. Without the right to read, return the
    token form with status 401. With `?link=leave`, a member sees again what members see.
    """
    if request.query_params.get("link") == "leave":
        return page_auth.leave_link(request)
    preview = link_preview.find_preview(request)
    if preview is not None:
        return preview
    offered = request.query_params.getlist("token")
    try:
        return _store(request, offered) if offered else _show(request)
    except page_auth.ACCESS_ERRORS:
        return token_form.ask_for_token(request, _page_url(request))
    except Unavailable:
        return message_pages.show_unavailable()


def show_comparison(request: Request) -> Response:
    """Answer GET with the page, with a 400 page for an invalid address, or with a redirect."""
    try:
        page_auth.parse_comparison(request)
        if "groups" in request.path_params:
            parse_groups(request.path_params["groups"])
    except MalformedRequest as error:
        return message_pages.show_invalid_comparison(error.detail)

    # RFC 6265, section 5.1.4: browsers compare a cookie's Path literally, so it would not match an
    # address with `%3A` for the colon. Redirect to the one spelling that the cookie has.
    path = page_auth.page_path(request)
    if not request.scope["raw_path"].decode("latin-1").endswith(path):
        query = request.url.query
        address = request.scope["root_path"].removesuffix("/compare") + path
        return RedirectResponse(
            f"{address}?{query}" if query else address, headers={"Cache-Control": "no-store"}
        )
    return show_page(request)


def _show(request: Request) -> Response:
    source = page_auth.open_source(request)
    experiments = source.list_experiments()
    if isinstance(source, GroupedReader):
        return _show_groups(request, source, experiments)
    kinds = source.list_kinds()
    is_shared = isinstance(source, ExperimentReader) and source.grant.link is not None
    workspace_id, site = page_auth.find_workspace(request, source), public_site(request)
    about = Markup()
    if isinstance(source, ExperimentReader):
        about = _render_about(experiments[0], source.read_notes(experiments[0]))
    if not kinds:
        server = get_settings(request).public_url
        return message_pages.show_empty(
            experiments[0],
            about,
            server,
            frame_ancestors(request),
            is_shared=is_shared,
            is_members=workspace_id is not None and not site,
        )
    attempts = AttemptChoice()
    if isinstance(source, ExperimentReader):
        chosen = request.query_params.get("attempt", "")
        if source.attempt is None and _ATTEMPT.fullmatch(chosen):
            return RedirectResponse(f"attempt/{chosen}/", 303, {"Cache-Control": "no-store"})
        attempts = AttemptChoice(source.list_attempts(), source.attempt)
        if attempts.is_missing:
            return message_pages.show_missing_attempt(attempts)

    if isinstance(source, ComparisonReader):
        named = dict(zip(source.readers, experiments, strict=True))
        shown_bar = bar.render_comparison_bar(named, workspace_id, site)
    else:
        data_classes = {data_class for _, data_class in kinds}
        shown_bar = bar.render_bar(
            experiments[0],
            about,
            data_classes,
            has_hparams=any(plugin == "hparams" for plugin, _ in kinds),
            is_shared=is_shared,
            workspace_id=workspace_id,
            site=site,
            link_token=page_auth.find_link_token(request, source.grant),
            attempts=attempts,
        )
    title = page_title(display_name(source, experiments))
    response = _as_html(request, assets.render_page(title, shown_bar, attempts.up))
    if isinstance(source, ExperimentReader) and source.is_published(experiments[0]):
        response.headers.update(PUBLISHED)
    return response


def _show_groups(
    request: Request, source: GroupedReader, experiments: Sequence[Experiment]
) -> Response:
    """Answer with the page of groups of runs, or with why there are none."""
    try:
        groups = source.list_runs()
    except (Invalid, TooLarge) as error:
        return message_pages.show_no_groups(error.detail)
    if not groups:
        return message_pages.show_no_groups("no run with a scalar is selected")
    named = dict(zip(source.readers, experiments, strict=True))
    workspace_id, site = page_auth.find_workspace(request, source), public_site(request)
    shown_bar = bar.render_comparison_bar(named, workspace_id, site, source.query)
    title = page_title(display_name(source, experiments))
    return _as_html(request, assets.render_page(title, shown_bar, bar.UP_FROM_GROUPS))


def _as_html(request: Request, page: bytes) -> Response:
    headers = {"Content-Security-Policy": make_page_policy(request), "Vary": "Accept-Encoding"}
    coding = choose_coding(request.headers.get("accept-encoding", ""))
    if coding is None:
        return HTMLResponse(page, headers=headers)
    # 200 KB: 29 KB in 0.4 ms with zstd, 36 KB in 1 ms with gzip.
    return HTMLResponse(encode(page, coding), headers={**headers, "Content-Encoding": coding})


async def submit_token(request: Request) -> Response:
    """Answer POST of the token form in the same way as GET with `?token=`."""
    return await run_in_threadpool(_store, request, await token_form.parse_tokens(request))


def display_name(source: Source, experiments: Sequence[Experiment]) -> str:
    """Return the experiment's name, with the attempt if one was chosen.

    For a comparison `name in it: experiment's name`, by commas.
    """
    if isinstance(source, ExperimentReader) and source.attempt is not None:
        return f"{experiments[0].name} (attempt {source.attempt})".lstrip()
    if not isinstance(source, ComparisonReader):
        return experiments[0].name
    if isinstance(source, GroupedReader):
        compared = ", ".join(experiment.name for experiment in experiments if experiment.name)
        return f"Groups of runs: {compared}"
    names = zip(source.readers, experiments, strict=True)
    return ", ".join(
        f"{name}: {experiment.name}" if experiment.name else name for name, experiment in names
    )


def page_title(name: str) -> str:
    """Return the title of the browser's tab."""
    return f"{name} · TensorBoard" if name else "TensorBoard"


def _store(request: Request, offered: Sequence[str]) -> Response:
    url = _page_url(request)
    return token_form.store_tokens(request, offered, url, url)


def _page_url(request: Request) -> str:
    """Return the page's address relative to itself, without tokens."""
    query = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
    return "./" + ("?" + urlencode(query) if query else "")


def _render_about(experiment: Experiment, notes: ExperimentNotes) -> Markup:
    """Return description, notes (both in Markdown), tags and properties; "" if there are none.

    The origin is not shown: a share link may be anonymous.
    """
    about = TEMPLATES.render(
        "stock_page/about.html", experiment=experiment, notes=notes, markdown=render_markdown
    )
    return Markup(about.rstrip())  # noqa: S704 - a template
