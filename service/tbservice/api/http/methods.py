"""The methods of the service, and those of one path: several routes may share a path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from starlette.routing import BaseRoute, Match, Mount
from starlette.types import Scope

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""All methods that the service may answer; HEAD is answered wherever GET is."""


def allowed_methods(routes: Iterable[BaseRoute], scope: Scope) -> list[str]:
    """Return the methods of the request's path, for `Allow` in a 405 (RFC 9110, section 15.5.6).

    They are the methods of the first matching route, and of others with its path:
    `/experiments/deleted` is no experiment. `routes` are the application's; `scope` may be that of
    a mounted application.
    """
    root_path = scope.get("app_root_path", scope.get("root_path", ""))
    scope = {**scope, "root_path": root_path}
    routes = list(routes)
    path = next((path for _, path in _list_matches(routes, scope)), "")
    return [m for m in METHODS if _find_path(routes, scope, m) == path]


def _find_path(routes: Iterable[BaseRoute], scope: Scope, method: str) -> str | None:
    """Return the path of the route that answers the method; None if there is none."""
    scope = {**scope, "method": "GET" if method == "HEAD" else method}
    return next((path for match, path in _list_matches(routes, scope) if match is Match.FULL), None)


def _list_matches(routes: Iterable[BaseRoute], scope: Scope) -> Iterator[tuple[Match, str]]:
    """Yield the path of each route that matches the request's, and whether its method does."""
    for route in routes:
        match, child_scope = route.matches(scope)
        if match is Match.NONE:
            continue
        if isinstance(route, Mount):
            yield from _list_matches(route.routes, {**scope, **child_scope})
        else:
            yield match, getattr(route, "path", "")
