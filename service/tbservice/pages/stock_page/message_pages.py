"""Pages shown instead of TensorBoard's when it has nothing to show; some reload themselves."""

from __future__ import annotations

import html
from pathlib import Path
from string import Template
from typing import Final

from starlette.responses import HTMLResponse, Response

from tbservice.api.http.security_headers import content_hash
from tbservice.errors import MalformedRequest, NotFound, TooManyRequests, Unavailable
from tbservice.pages.stock_page.attempt_choice import AttemptChoice
from tbservice.types.experiments import Experiment

STATE_HEADER: Final = "Tbhub-Waits-For"
"""Response header with what the page waits for: its script polls until the value changes."""

_MESSAGE_TEMPLATE: Final = Path(__file__).with_name("notice.html").read_text(encoding="utf-8")
_WAITING_TEMPLATE: Final = Path(__file__).with_name("waiting.html").read_text(encoding="utf-8")


def show_empty(experiment: Experiment, about: str, server: str, ancestors: str) -> Response:
    """Return the page of an experiment without data: it shows the command that uploads to it.

    The page reloads when data arrive.

    Args:
        experiment: The experiment.
        about: What people wrote about it, as `render_about` returns it.
        server: The URL at which uploaders reach this service.
        ancestors: The directive of `frame_ancestors`: a notebook may show it before there are data.
    """
    command = f"tbupload --logdir runs/ --experiment {experiment.experiment_id} --server {server}"
    shown_about = f'<div class="about">{about}</div>' if about else ""
    content = (
        f"{shown_about}<p>Nothing has been uploaded to this experiment yet. To upload, run</p>"
        f'<pre tabindex="0"><code>{html.escape(command)}</code></pre>'
        "<p>with a token that may write to the experiment. <code>runs/</code> is the directory "
        "that your training job writes its event files to.</p>"
    )

    name = experiment.name.strip()
    title = f"{name} is empty" if name else "This experiment is empty"
    return _render("data", title, content, 200, ancestors)


def show_unavailable() -> Response:
    """Return a 503 page with `Retry-After` for when PostgreSQL or S3 is unavailable; it reloads."""
    content = "<p>The server is restarting, or out of capacity for a moment. Nothing was lost.</p>"
    response = _render("server", "One moment, please", content, Unavailable.status)
    response.headers["Retry-After"] = str(Unavailable.retry_after_seconds)
    return response


def show_download_error(error: TooManyRequests | Unavailable) -> Response:
    """Return a page that says why a file cannot be sent now, with the error's status.

    It does not reload itself: the address is that of a file, not of a page.
    """
    content = (
        f'<p dir="auto">{html.escape(error.detail[:1].upper() + error.detail[1:])}.</p>'
        '<p><a href="">Try again</a>, or go <a href="../">back to the experiment</a>.</p>'
    )
    response = _render("", "This file cannot be sent now", content, error.status)
    response.headers["Retry-After"] = str(error.retry_after_seconds)
    return response


def show_missing_attempt(attempts: AttemptChoice) -> Response:
    """Return a 404 page for the address of an attempt that no run has."""
    has = "1 attempt" if attempts.count == 1 else f"{attempts.count} attempts"
    content = (
        f"<p>The runs of this experiment have at most {has}.</p>"
        '<p><a href="../../">Show the newest</a>.</p>'
    )
    return _render("", f"There is no attempt {attempts.chosen}", content, NotFound.status)


def show_invalid_comparison(detail: str) -> Response:
    """Return a 400 page for an invalid comparison address; `detail` is the reason."""
    content = (
        f'<p dir="auto">{html.escape(detail)}.</p>'
        "<p>The address of a comparison lists its experiments as name:id, separated by commas:</p>"
        "<pre><code>/compare/before:&lt;id&gt;,after:&lt;id&gt;/</code></pre>"
    )
    return _render("", "This is not the address of a comparison", content, MalformedRequest.status)


_POLICY: Final = (
    f"default-src 'none'; style-src {content_hash(_MESSAGE_TEMPLATE, 'style')}; "
    f"script-src {content_hash(_WAITING_TEMPLATE, 'script')}; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; "
)


def _render(
    state: str, title: str, content: str, status: int, ancestors: str = "frame-ancestors 'none'"
) -> Response:
    """Return the page. It reloads itself when `STATE_HEADER` is no longer `state`, unless empty."""
    content += _WAITING_TEMPLATE if state else ""
    page = Template(_MESSAGE_TEMPLATE).substitute(
        state=state, title=html.escape(title), content=content
    )
    headers = {"Content-Security-Policy": _POLICY + ancestors, "Cache-Control": "no-store"}
    return HTMLResponse(page, status, {**headers, STATE_HEADER: state} if state else headers)
