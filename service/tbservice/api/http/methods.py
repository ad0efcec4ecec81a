"""The methods of the service, and those of one path: several routes may share a path."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.routing import BaseRoute, Match, Mount
from starlette.types import Scope

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""All methods that routes of the service may have."""


def allowed_methods(routes: Iterable[BaseRoute], scope: Scope) -> list[str]:
    """Return the methods of the request's path, for `Allow` in a 405 (RFC 9110, section 15.5.6).

    `routes` are the application's; `scope` may be that of a mounted application.
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
