"""Metrics of every request, by its route's template.

Not by its path, which contains an experiment's id: metrics must not disclose ids, and the number of
label values must be bounded.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tbservice import metrics
from tbservice.admission.refusals import ERROR_CODE_KEY
from tbservice.api.http.methods import METHODS

_UNMATCHED: Final = "unmatched"

TEMPLATE_KEY: Final = "tbhub.route_template"
"""Key of a request's scope: the template of its route, once the request is processed."""


class MetricsMiddleware:
    """Middleware that observes route, method, status, duration and error code of each request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._templates: dict[int, str] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Observe one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()
        status = 500  # if no response starts, the server failed
        code = ""

        async def observing_send(message: Message) -> None:
            nonlocal status, code
            if message["type"] == "http.response.start":
                status = message["status"]
                code = scope.get(ERROR_CODE_KEY, "")
            await send(message)

        try:
            await self._app(scope, receive, observing_send)
        except Exception:
            code = "internal"
            raise
        finally:
            template = scope[TEMPLATE_KEY] = self._template(scope)
            method = scope["method"] if scope["method"] in METHODS else "other"
            metrics.observe_request(template, method, status, time.perf_counter() - begin)
            if code:
                metrics.observe_error(template, code)

    def _template(self, scope: Scope) -> str:
        route = scope.get("route")
        if route is None:
            return _UNMATCHED
        if self._templates is None:
            self._templates = dict(_list_mounted_templates(scope["app"].routes, ""))
        path: str = getattr(route, "path", _UNMATCHED)
        return self._templates.get(id(route), path)


def set_error_code(scope: Scope, code: str) -> None:
    """Set the error code of a request, which is observed when its response starts."""
    scope[ERROR_CODE_KEY] = code


def _list_mounted_templates(routes: Iterable[BaseRoute], prefix: str) -> Iterable[tuple[int, str]]:
    """Yield id() and full template of each mount and its routes, which know only their own part."""
    for route in routes:
        if isinstance(route, Mount):
            yield id(route), prefix + route.path
            yield from _list_mounted_templates(route.routes, prefix + route.path)
        elif isinstance(route, Route) and prefix:
            yield id(route), prefix + route.path
