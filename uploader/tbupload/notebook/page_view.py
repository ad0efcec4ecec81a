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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

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


ENDED: Final = frozenset({"finished", "failed", "killed"})
"""Statuses after which nothing follows, unless the training is resumed."""


@dataclass(frozen=True)
class Place:
    """An experiment, or one run of it, and how it is read."""

    server: str
    experiment_id: str
    token: str | None = field(repr=False)
    cacert: Path | None = None
    run: str | None = None

    def connect(self, retry_policy: RetryPolicy) -> Transport:
        """Return a connection that says nothing. Raise UsageError without the certificates."""
        return Transport(self.server, self.token, self.cacert, retry_policy, lambda _text: None)


def find_place(url: str | None, token: str | None, options: Sequence[str]) -> Place | None:
    """Return the experiment of a background upload with these options; None without its `url`."""
    if url is None:
        return None
    server, _, experiment_id = url.rstrip("/").rpartition("/experiment/")
    cacert = next((text for text in options if text.startswith(_CACERT)), "").removeprefix(_CACERT)
    access = token or find_access(None, os.environ, link=server).token
    return Place(server, experiment_id, access, Path(cacert) if cacert else None)


@dataclass(frozen=True)
class View:
    """HTML that a notebook shows; `tag` is the scalar of its chart, None if it is not known.

    `has_ended` says that nothing will change.
    """

    html: str
    has_chart: bool = False
    tag: str | None = None
    has_ended: bool = True


def render(place: Place | None, height: int | None = None, *, may_frame: bool = True) -> View:
    """Return a link to an experiment, and its page if that may be in frames.

    Else with a chart of the scalar that the page shows first, as it is now; so it is for a run.

    The browser still refuses the frame in a notebook whose origin the server does not name. If the
    server does not answer, or refuses, it is a link with the reason. None is no experiment yet.
    """
    if place is None:
        return View("<p>tbupload: there is no experiment yet</p>")
    url = f"{place.server}/experiment/{place.experiment_id}/"
    path = f"/api/v1/experiments/{place.experiment_id}"
    try:
        transport = place.connect(RetryPolicy(RETRY_SECONDS))
        experiment = transport.request("GET", path).json(EXPERIMENT)
        runs = 1
        if place.run is None:
            runs = len(transport.request("GET", f"{path}/runs").json(RUNS)["runs"])
    except (ServerError, UsageError) as error:
        return View(_render_link(url, url, str(error)))

    is_framed = may_frame and place.run is None and _is_framed(url, place.token, place.cacert)
    if re.match(r"https?://", experiment["url"]):
        url = experiment["url"]  # the server's public one
    name = " ".join(experiment["name"].split())[:NAME_CHARACTERS_MAX] or url
    if place.run is None:
        link = _render_link(url, name, _summarise(experiment, runs))
    else:
        run = place.run[:NAME_CHARACTERS_MAX] or "(no name)"
        link = _render_link(f"{url}about?{urlencode({'run': place.run})}", f"{name} / {run}", "")
    if is_framed:
        return View(link + _render_frame(url, name, height or HEIGHT_PIXELS))
    chart, tag = _render_chart(transport, place)
    return View(link + chart, bool(chart), tag, experiment.get("status") in ENDED)


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
    more = f" · {html.escape(about)}" if about else ""
    return (
        f'<p><a href="{html.escape(url)}" target="_blank" rel="noopener noreferrer">'
        f"<bdi>{html.escape(name)}</bdi></a>{more}</p>"
    )


def _render_chart(transport: Transport, place: Place) -> tuple[str, str | None]:
    """Return a chart as a picture, which runs no script, and its tag; empty if there is none."""
    query = "" if place.run is None else f"?{urlencode({'run': place.run})}"
    address = f"/experiment/{place.experiment_id}/card.svg{query}"
    try:
        drawn = transport.request("GET", address)
    except (ServerError, UsageError):  # no scalars, or a server that needs a tag
        return "", None
    content = base64.b64encode(drawn.body).decode()
    picture = f'<img src="data:image/svg+xml;base64,{content}" alt="" style="max-width: 100%">'
    shown = parse_qs(urlsplit(drawn.headers.get("Content-Location", "")).query)
    return picture, shown.get("tag", [None])[0]


def _render_frame(url: str, name: str, height: int) -> str:
    return (
        f'<iframe src="{html.escape(url)}" title="{html.escape(name)}" width="100%" '
        f'height="{height:d}" style="border: 0" referrerpolicy="no-referrer"></iframe>'
    )
