"""Metrics and the trace of every request, by its route's template.

Not by its path, which contains an experiment's id: metrics must not disclose ids, and the number of
label values must be bounded. A trace has no path, query, headers and address either: they hold ids,
names and tokens.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tbservice import metrics, traces
from tbservice.admission.refusals import ERROR_CODE_KEY
from tbservice.api.http.methods import METHODS
from tbservice.api.http.request_id import REQUEST_ID

_UNMATCHED: Final = "unmatched"

_SERVER_ERROR: Final = 500


class ObservationMiddleware:
    """Middleware that observes route, method, status, duration and error code of each request.

    Add it inside of the one for request ids, and outside of those that refuse requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._templates: dict[int, str] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Observe one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()
        status = _SERVER_ERROR  # if no response starts, the server failed
        code = ""

        async def observing_send(message: Message) -> None:
            nonlocal status, code
            if message["type"] == "http.response.start":
                status = message["status"]
                code = scope.get(ERROR_CODE_KEY, "")
            await send(message)

        with traces.request(Headers(scope=scope)) as span:
            try:
                await self._app(scope, receive, observing_send)
            except Exception:
                code = "internal"
                raise
            finally:
                template, method = self._template(scope), scope["method"]
                label = method if method in METHODS else "other"
                metrics.observe_request(template, label, status, time.perf_counter() - begin)
                if code:
                    metrics.observe_error(template, code)
                _describe(span, method, template, status)

    def _template(self, scope: Scope) -> str:
        route = scope.get("route")
        if route is None:
            return _UNMATCHED
        if self._templates is None:
            self._templates = dict(_list_mounted_templates(scope["app"].routes, ""))
        path: str = getattr(route, "path", _UNMATCHED)
        return self._templates.get(id(route), path)


def _describe(span: traces.Request, method: str, template: str, status: int) -> None:
    """Set name and attributes of a request's span, as OpenTelemetry names them."""
    known = method if method in METHODS else "_OTHER"
    attributes: dict[str, str | int] = {
        "http.request.method": known,
        "http.route": template,
        "http.response.status_code": status,
        "tbhub.request_id": REQUEST_ID.get(),
    }
    span.describe(f"{known} {template}", attributes, failed=status >= _SERVER_ERROR)


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
