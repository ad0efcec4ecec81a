"""An experiment below a notebook's cell: a link with a summary, and the page or a chart.

Names are written by others, and the output of a cell is HTML in the notebook's page: everything is
escaped. No token is in it, because notebooks are stored and passed on.
"""

from __future__ import annotations

import base64
import html
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import urllib3

from tbupload.config import find_access
from tbupload.console.texts import counted
from tbupload.errors import ServerError, UsageError
from tbupload.http.api_schemas import EXPERIMENT, RUNS
from tbupload.http.connection_pool import make_pool
from tbupload.http.retry import RetryPolicy
from tbupload.http.transport import Transport

HEIGHT_PIXELS: Final = 800
"""Height of the frame, as that of `%tensorboard`."""

NAME_CHARACTERS_MAX: Final = 200
"""Characters of a name that are shown."""

RETRY_SECONDS: Final = 5.0
"""How long a cell waits for a server that does not respond."""

_CACERT: Final = "--cacert="

_ANCESTORS: Final = re.compile(r"frame-ancestors ([^;]*)")


def render_page(
    server: str,
    experiment_id: str,
    token: str | None,
    cacert: Path | None = None,
    height: int | None = None,
) -> str:
    """Return HTML with a link to an experiment, and with its page if that may be in frames.

    Else with a chart of the scalar that the page shows first, as it is now.

    The browser still refuses the frame in a notebook whose origin the server does not name. If the
    server does not answer, or refuses, it is a link with the reason.
    """
    url = f"{server}/experiment/{experiment_id}/"
    path = f"/api/v1/experiments/{experiment_id}"
    try:
        transport = Transport(server, token, cacert, RetryPolicy(RETRY_SECONDS), lambda _text: None)
        experiment = transport.request("GET", path).json(EXPERIMENT)
        runs = len(transport.request("GET", f"{path}/runs").json(RUNS)["runs"])
    except (ServerError, UsageError) as error:
        return _render_link(url, url, str(error))

    is_framed = _is_framed(url, token, cacert)
    if re.match(r"https?://", experiment["url"]):
        url = experiment["url"]  # the server's public one
    name = " ".join(experiment["name"].split())[:NAME_CHARACTERS_MAX] or url
    link = _render_link(url, name, _summarise(experiment, runs))
    if is_framed:
        return link + _render_frame(url, name, height or HEIGHT_PIXELS)
    return link + _render_chart(transport, experiment_id)


def render_upload(
    url: str | None, token: str | None, options: Sequence[str], height: int | None = None
) -> str:
    """Return the same of a background upload with these options; `url` is None if not known yet."""
    if url is None:
        return "<p>tbupload: there is no experiment yet</p>"
    server, _, experiment_id = url.rstrip("/").rpartition("/experiment/")
    cacert = next((text for text in options if text.startswith(_CACERT)), "").removeprefix(_CACERT)
    access = token or find_access(None, os.environ, link=server).token
    return render_page(server, experiment_id, access, Path(cacert) if cacert else None, height)


def _summarise(experiment: dict[str, Any], runs: int) -> str:
    """Return the number of runs, and when the last data came, in UTC."""
    text = counted(runs, "run")
    last = re.match(r"(\d+-\d+-\d+)T(\d+:\d+)", str(experiment.get("data_at")))
    return f"{text}, last data {last[1]} {last[2]} UTC" if last else f"{text}, no data yet"


def _is_framed(url: str, token: str | None, cacert: Path | None) -> bool:
    """Return whether the page, or the redirect to it, may be in a frame of any other page."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    timeout = urllib3.Timeout(RETRY_SECONDS)
    try:
        answer = make_pool(url, cacert).request(
            "HEAD", url, headers=headers, timeout=timeout, retries=False, redirect=False
        )
    except urllib3.exceptions.HTTPError:
        return False
    ancestors = _ANCESTORS.search(answer.headers.get("Content-Security-Policy", ""))
    return ancestors is not None and ancestors[1].strip() != "'none'"


def _render_link(url: str, name: str, about: str) -> str:
    return (
        f'<p><a href="{html.escape(url)}" target="_blank" rel="noopener noreferrer">'
        f"<bdi>{html.escape(name)}</bdi></a> · {html.escape(about)}</p>"
    )


def _render_chart(transport: Transport, experiment_id: str) -> str:
    """Return a chart as a picture, which runs no script; empty if there is none to draw."""
    try:
        drawn = transport.request("GET", f"/experiment/{experiment_id}/card.svg").body
    except (ServerError, UsageError):  # no scalars, or a server that needs a tag
        return ""
    content = base64.b64encode(drawn).decode()
    return f'<img src="data:image/svg+xml;base64,{content}" alt="" style="max-width: 100%">'


def _render_frame(url: str, name: str, height: int) -> str:
    return (
        f'<iframe src="{html.escape(url)}" title="{html.escape(name)}" width="100%" '
        f'height="{height:d}" style="border: 0" referrerpolicy="no-referrer"></iframe>'
    )
