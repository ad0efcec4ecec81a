"""Which methods an address takes: several routes may share one path, and each knows only its own methods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.routing import BaseRoute, Match, Mount
from starlette.types import Scope

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""Every method that a route of the service may take."""


def allowed_methods(routes: Iterable[BaseRoute], scope: Scope) -> list[str]:
    """Return the methods that the request's path takes, for the `Allow` header of a 405.

    `routes` are the application's; `scope` may already be that of a mounted one.
    """
    root_path = scope.get("app_root_path", scope.get("root_path", ""))
    routes = list(routes)
    return [
        m for m in METHODS if _is_matched(routes, {**scope, "root_path": root_path, "method": m})
    ]


def _is_matched(routes: Iterable[BaseRoute], scope: Scope) -> bool:
    for route in routes:
        match, child_scope = route.matches(scope)
        if match is Match.FULL and (
            not isinstance(route, Mount) or _is_matched(route.routes, {**scope, **child_scope})
        ):
            return True
    return False
