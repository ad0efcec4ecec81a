"""Refusal of parameters that would be ignored: unknown ones, also in a body, and repeated ones."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import Any, Final

from fastapi import Request
from fastapi._compat import field_annotation_is_sequence
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import ParamTypes
from fastapi.routing import APIRoute

from tbservice.errors import Invalid

_NAMES_SHOWN: Final = 3
"""Parameters that one error names."""

_NAME_CHARS_SHOWN: Final = 60
"""Characters of a parameter's name that an error shows."""


async def check_query_names(request: Request) -> None:
    """Raise Invalid for a parameter that the route does not describe, or that is repeated."""
    query = request.query_params
    if not query:
        return
    known = _list_known(request.scope["route"])
    unknown = [name for name in query if name not in known]
    problems = [_describe(name, tuple(known)) for name in unknown[:_NAMES_SHOWN]]
    if not unknown:
        counts = Counter(name for name, _ in query.multi_items())
        repeated = [name for name, count in counts.items() if count > 1 and not known[name]]
        problems = [f"query parameter {name!r} is repeated: send one" for name in repeated]
    if problems:
        raise Invalid("; ".join(problems))


def _list_known(route: APIRoute) -> dict[str, bool]:
    """Return the query parameters, also those that the route parses itself: which are lists."""
    # The fields of a query model are no Param: only those have an `in_`.
    parsed = {
        field.alias: field_annotation_is_sequence(field.field_info.annotation)
        for field in get_flat_params(route.dependant)
        if getattr(field.field_info, "in_", ParamTypes.query) is ParamTypes.query
    }
    described: list[dict[str, Any]] = (route.openapi_extra or {}).get("parameters", [])
    return parsed | {each["name"]: False for each in described if each["in"] == "query"}


def describe_unknown_field(route: APIRoute, name: str) -> str:
    """Return what to do about a field of a JSON body that the route does not take."""
    model = None if route.body_field is None else route.body_field.field_info.annotation
    known = tuple(getattr(model, "model_fields", ()))
    return _describe(name, known, "parameter")


def _describe(name: str, known: tuple[str, ...], kind: str = "query parameter") -> str:
    shown = name if len(name) <= _NAME_CHARS_SHOWN else f"{name[:_NAME_CHARS_SHOWN]}…"
    if not known:
        return f"unknown {kind} {shown!r}: this route has none"
    near = difflib.get_close_matches(name[:_NAME_CHARS_SHOWN], known, n=1)
    advice = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
    return f"unknown {kind} {shown!r}: {advice}"
