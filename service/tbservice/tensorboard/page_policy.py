"""The Content-Security-Policies of TensorBoard's page and of its frames.

They are as TensorBoard's own (`Respond` in `tensorboard/backend/http_util.py`), but without other
sites, and with paths: a page may load what is below its own address and TensorBoard's files, and
nothing else of this origin, where other experiments and perhaps the reader's own pages are.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request

from tbservice.api.http.dependencies import get_settings
from tbservice.pages.base.frame import frame_ancestors
from tbservice.pages.stock_page import bar, page_auth
from tbservice.tensorboard import assets

_HOST: Final = re.compile(r"[a-z0-9.-]+(:[0-9]+)?")
"""Hosts that a policy can name: no IPv6 address."""

FILE_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
"""Policy of TensorBoard's scripts, fonts and pictures: none loads anything."""


def make_page_policy(request: Request) -> str:
    """Return the policy of the page in the request's path."""
    files = _source(request, f"{assets.PREFIX}/")
    return _make_policy(
        request,
        f"{files} {bar.SCRIPT_HASH}",
        f"frame-src {_own(request)}; {frame_ancestors(request)}",
    )


def make_projector_policy(request: Request) -> str:
    """Return the policy of the projector's frame.

    The projector compiles functions for its linear algebra, from text that no tenant controls.
    `unsafe-eval` is for its frame only, not for the page around it. All pages around a frame count
    as its ancestors, also the one that has ours in a frame.
    """
    script = f"{_own(request, 'data/plugin/projector/projector_binary.js')} 'unsafe-eval'"
    return _make_policy(request, script, frame_ancestors(request, "'self'"))


def _make_policy(request: Request, script: str, frames: str) -> str:
    own, files = _own(request), _source(request, f"{assets.PREFIX}/")
    return (
        f"default-src 'none'; base-uri 'none'; connect-src {own}; font-src {files} data:; "
        f"form-action 'none'; img-src {own} data: blob:; media-src {own}; script-src {script}; "
        f"style-src 'unsafe-inline'; worker-src {own} {files}; {frames}"
    )


def _own(request: Request, path: str = "") -> str:
    """Return the source of what is below the address of the request's page, or of one file."""
    return _source(request, page_auth.page_path(request) + path)


def _source(request: Request, path: str) -> str:
    """Return the source expression of a path of this origin; of all of it if it has no such name.

    That is a name of this service: a proxy may have put another one into the header `Host`.
    """
    host = request.headers.get("host", "").lower()
    settings = get_settings(request)
    names = {
        urlsplit(url).netloc.lower() for url in (settings.public_url, settings.content_url) if url
    }
    if host not in names or not _HOST.fullmatch(host):
        return "'self'"
    return host + path.replace(",", "%2C").replace(";", "%3B")  # which end a source (CSP, 2.2)
