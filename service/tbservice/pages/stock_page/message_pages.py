"""Pages shown instead of TensorBoard's when it has nothing to show; some reload themselves."""

from __future__ import annotations

from typing import Any, Final

from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from tbservice.errors import Invalid, MalformedRequest, NotFound, TooManyRequests, Unavailable
from tbservice.pages.base.templates import TEMPLATES
from tbservice.pages.stock_page.attempt_choice import AttemptChoice
from tbservice.types.experiments import Experiment

STATE_HEADER: Final = "Tbhub-Waits-For"
"""Response header with what the page waits for: its script polls until the value changes."""

_POLICY: Final = (
    f"default-src 'none'; style-src {TEMPLATES.hash_of('stock_page/notice.html', 'style')}; "
    f"script-src {TEMPLATES.hash_of('stock_page/waiting.html', 'script')}; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; "
)


def show_empty(
    experiment: Experiment,
    about: Markup,
    server: str,
    ancestors: str,
    *,
    is_shared: bool,
    is_members: bool,
) -> Response:
    """Return the page of an experiment without data: it shows the command that uploads to it.

    The page reloads when data arrive. To readers of a share link it says only that the link shows
    none: the experiment may have others, which are hidden.

    Args:
        experiment: The experiment.
        about: HTML of description, notes, tags and properties, from `render_about`.
        server: The URL at which uploaders reach this service.
        ancestors: The directive of `frame_ancestors`: a notebook may show it before there are data.
        is_shared: Whether the reader has a share link.
        is_members: Whether the reader is signed in as a member, who may leave the link.
    """
    name = experiment.name.strip()
    title = f"{name} is empty" if name else "This experiment is empty"
    if is_shared:
        title = name or "Unnamed experiment"
    return _render(
        "empty.html",
        title,
        200,
        state="data",
        ancestors=ancestors,
        about=about,
        experiment_id=experiment.experiment_id,
        server=server,
        is_shared=is_shared,
        is_members=is_members,
    )


def show_unavailable() -> Response:
    """Return a 503 page with `Retry-After` for when PostgreSQL or S3 is unavailable; it reloads."""
    response = _render("unavailable.html", "One moment, please", Unavailable.status, state="server")
    response.headers["Retry-After"] = str(Unavailable.retry_after_seconds)
    return response


def show_download_error(error: TooManyRequests | Unavailable) -> Response:
    """Return a page that says why a file cannot be sent now, with the error's status.

    It does not reload itself: the address is that of a file, not of a page.
    """
    detail = error.detail[:1].upper() + error.detail[1:]
    title = "This file cannot be sent now"
    response = _render("download_error.html", title, error.status, detail=detail)
    response.headers["Retry-After"] = str(error.retry_after_seconds)
    return response


def show_missing_attempt(attempts: AttemptChoice) -> Response:
    """Return a 404 page for the address of an attempt that no run has."""
    title = f"There is no attempt {attempts.chosen}"
    return _render("missing_attempt.html", title, NotFound.status, attempts=attempts)


def show_invalid_comparison(detail: str) -> Response:
    """Return a 400 page for an invalid comparison address; `detail` is the reason."""
    title = "This is not the address of a comparison"
    return _render("invalid_comparison.html", title, MalformedRequest.status, detail=detail)


def show_no_groups(detail: str) -> Response:
    """Return a 422 page for groups that cannot be formed of the runs; `detail` is the reason."""
    return _render("no_groups.html", "There are no groups to show", Invalid.status, detail=detail)


def _render(
    template: str,
    title: str,
    status: int,
    *,
    state: str = "",
    ancestors: str = "frame-ancestors 'none'",
    **context: Any,
) -> Response:
    """Return the page. It reloads itself when `STATE_HEADER` is no longer `state`, unless empty."""
    page = TEMPLATES.render(f"stock_page/{template}", title=title, state=state, **context)
    headers = {"Content-Security-Policy": _POLICY + ancestors, "Cache-Control": "no-store"}
    return HTMLResponse(page, status, {**headers, STATE_HEADER: state} if state else headers)
