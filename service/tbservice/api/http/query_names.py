"""Refusal of query parameters that a route does not have: a misspelled one must not be ignored."""

from __future__ import annotations

import difflib
from typing import Any, Final

from fastapi import Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import ParamTypes
from fastapi.routing import APIRoute

from tbservice.errors import Invalid

_NAMES_SHOWN: Final = 3
"""Unknown parameters that one error names."""

_NAME_CHARS_SHOWN: Final = 60
"""Characters of an unknown parameter's name that an error shows."""


async def refuse_unknown_query(request: Request) -> None:
    """Raise Invalid if the query has a parameter that the request's route does not describe."""
    names = request.query_params.keys()
    if not names:
        return
    known = _list_known(request.scope["route"])
    unknown = [name for name in names if name not in known]
    if unknown:
        raise Invalid("; ".join(_describe(name, known) for name in unknown[:_NAMES_SHOWN]))


def _list_known(route: APIRoute) -> tuple[str, ...]:
    """Return the names of the route's query parameters, those it parses itself included."""
    # The fields of a query model are no Param: only those have an `in_`.
    parsed = [
        field.alias
        for field in get_flat_params(route.dependant)
        if getattr(field.field_info, "in_", ParamTypes.query) is ParamTypes.query
    ]
    described: list[dict[str, Any]] = (route.openapi_extra or {}).get("parameters", [])
    return (*parsed, *(each["name"] for each in described if each["in"] == "query"))


def _describe(name: str, known: tuple[str, ...]) -> str:
    shown = name if len(name) <= _NAME_CHARS_SHOWN else f"{name[:_NAME_CHARS_SHOWN]}…"
    if not known:
        return f"unknown query parameter {shown!r}: this route has none"
    near = difflib.get_close_matches(name[:_NAME_CHARS_SHOWN], known, n=1)
    advice = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
    return f"unknown query parameter {shown!r}: {advice}"
