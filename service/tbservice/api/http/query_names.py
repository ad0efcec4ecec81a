"""Refusal of parameters and fields that would be ignored: unknown ones, and repeated parameters."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Any, Final

from fastapi import Request
from fastapi._compat import field_annotation_is_sequence
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import ParamTypes
from fastapi.routing import APIRoute

from tbservice.errors import Invalid

_NAMES_SHOWN: Final = 3
"""Parameters or fields that one error names."""

_NAME_CHARS_SHOWN: Final = 60
"""Characters of a name that an error shows."""


async def check_query_names(request: Request) -> None:
    """Raise Invalid for a parameter that the route does not describe, or that is repeated."""
    query = request.query_params
    if not query:
        return
    known = _list_known(request.scope["route"])
    problems = describe_unknown("query parameter", query, known)
    if not problems:
        counts = Counter(name for name, _ in query.multi_items())
        repeated = [name for name, count in counts.items() if count > 1 and not known[name]]
        problems = "; ".join(f"query parameter {name!r} is repeated: send one" for name in repeated)
    if problems:
        raise Invalid(problems)


def describe_unknown(what: str, names: Iterable[str], known: Collection[str]) -> str:
    """Return what is wrong with the names that are not known, and what may be meant; "" if none is.

    Args:
        what: Kind of the names: "query parameter" or "field".
        names: The names of a request; the first few that are unknown are described.
        known: Names that the route has.
    """
    unknown = islice((name for name in names if name not in known), _NAMES_SHOWN)
    return "; ".join(_describe(what, name, tuple(known)) for name in unknown)


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


def _describe(what: str, name: str, known: tuple[str, ...]) -> str:
    shown = name if len(name) <= _NAME_CHARS_SHOWN else f"{name[:_NAME_CHARS_SHOWN]}…"
    if not known:
        return f"unknown {what} {shown!r}: this route has none"
    near = difflib.get_close_matches(name[:_NAME_CHARS_SHOWN], known, n=1)
    advice = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
    return f"unknown {what} {shown!r}: {advice}"
