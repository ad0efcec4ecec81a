"""Routers of the API.

The application takes the routes as they are. Included by `FastAPI.include_router`, each would be
built a second time, at the first request: 0.2 s for all, and again for each application.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute

from tbservice.api.http.grant_route import GrantRoute
from tbservice.api.http.openapi_errors import ERROR_RESPONSES
from tbservice.api.http.query_names import check_query_names


def make_router(
    *,
    ignores_unknown_query: bool = False,
    route_class: type[GrantRoute] = GrantRoute,
    **options: Any,
) -> APIRouter:
    """Return a router whose routes describe the errors of every route.

    They refuse query parameters that they do not have, and repeated ones that are no lists, unless
    `ignores_unknown_query`: probes add some of their own to a URL, and clients of the classic API
    some to the queries that it names, as TensorBoard's own page does. The name of a route's
    function is its operation id. `options` are those of `APIRouter`.
    """
    dependencies = [] if ignores_unknown_query else [Depends(check_query_names)]
    return APIRouter(
        dependencies=dependencies,
        responses=ERROR_RESPONSES,
        route_class=route_class,
        generate_unique_id_function=_get_name,
        **options,
    )


def _get_name(route: APIRoute) -> str:
    """Return the operation id: generated clients name their functions by it."""
    return route.name
