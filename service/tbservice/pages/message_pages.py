"""Pages in the place of TensorBoard's where it has nothing to show; one that waits goes on by itself."""

from __future__ import annotations

import html
from pathlib import Path
from string import Template
from typing import Final

from starlette.responses import HTMLResponse, Response

from tbservice.api.http.security_headers import content_hash
from tbservice.errors import MalformedRequest, TooManyRequests, Unavailable
from tbservice.types import Experiment

STATE_HEADER: Final = "Tbhub-Waits-For"
"""What the page waits for: its script asks for itself until the answer says something else."""

_MESSAGE_TEMPLATE: Final = Path(__file__).with_name("notice.html").read_text(encoding="utf-8")
_WAITING_TEMPLATE: Final = Path(__file__).with_name("waiting.html").read_text(encoding="utf-8")


def show_empty(experiment: Experiment, server: str) -> Response:
    """How to upload into an experiment that has no data; `server` is the URL uploaders reach this service by."""
    command = f"tbupload --logdir runs/ --experiment {experiment.experiment_id} --server {server}"
    about = (
        f'<p class="about" dir="auto">{html.escape(experiment.description)}</p>'
        if experiment.description
        else ""
    )
    content = (
        f"{about}<p>Nothing has been uploaded to this experiment yet. Whoever may write to it does so with</p>"
        f'<pre tabindex="0"><code>{html.escape(command)}</code></pre>'
        "<p>where <code>runs/</code> is the directory your training writes its event files to.</p>"
    )
    name = experiment.name.strip()
    return _render("data", f"{name} is empty" if name else "This experiment is empty", content, 200)


def show_unavailable() -> Response:
    """The service is up, but not what it keeps its data in: 503, to be asked again."""
    content = "<p>The server is being restarted, or is out of capacity for a moment. Nothing was lost.</p>"
    answer = _render("server", "One moment, please", content, Unavailable.status)
    answer.headers["Retry-After"] = str(Unavailable.retry_after_seconds)
    return answer


def show_download_error(error: TooManyRequests | Unavailable) -> Response:
    """A file that cannot be sent now, and why; it stays as it is, since what it would go on to is no page."""
    content = (
        f'<p dir="auto">{html.escape(error.detail[:1].upper() + error.detail[1:])}.</p>'
        '<p><a href="">Try again</a>, or go <a href="../">back to the experiment</a>.</p>'
    )
    answer = _render("", "This file cannot be sent now", content, error.status)
    answer.headers["Retry-After"] = str(error.retry_after_seconds)
    return answer


def show_invalid_comparison(detail: str) -> Response:
    """The address names no comparison; `detail` says why not."""
    content = (
        f'<p dir="auto">{html.escape(detail)}.</p>'
        "<p>A comparison's address names each of its experiments, with a colon after the name and commas between:</p>"
        "<pre><code>/compare/before:&lt;id&gt;,after:&lt;id&gt;/</code></pre>"
    )
    return _render("", "This address names no comparison", content, MalformedRequest.status)


_POLICY: Final = (
    f"default-src 'none'; style-src {content_hash(_MESSAGE_TEMPLATE, 'style')}; script-src {content_hash(_WAITING_TEMPLATE, 'script')}; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)


def _render(state: str, title: str, content: str, status: int) -> Response:
    """A page that waits for `state`; with none, one that stays as it is."""
    content += _WAITING_TEMPLATE if state else ""
    page = Template(_MESSAGE_TEMPLATE).substitute(
        state=state, title=html.escape(title), content=content
    )
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-store"}
    return HTMLResponse(page, status, {**headers, STATE_HEADER: state} if state else headers)
