"""What the routes of the classic API have in common: their parameters, which are refused with 400 as they were then."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Depends, Request

from tbservice.errors import Malformed

PREFIX: Final = "/api/v0/experiments/{experiment_id}"

_DIGITS_MAX: Final = 9


def _described(name: str, description: str) -> dict[str, Any]:
    """Return a required query parameter's description; the framework would answer 422 where it is missing."""
    return {
        "name": name,
        "in": "query",
        "required": True,
        "schema": {"type": "string"},
        "description": description,
    }


_RUN: Final = _described("run", "A run's name")

WANTS_RUN: Final = {"parameters": [_RUN]}
WANTS_RUN_AND_TAG: Final = {"parameters": [_RUN, _described("tag", "A tag's name")]}
WANTS_RUN_AND_TAGNAME: Final = {"parameters": [_RUN, _described("tagname", "A tag's name")]}
"""What the OpenAPI document says of routes that depend on the following."""


def _run(request: Request) -> str:
    run = request.query_params.get("run")
    if run is None:
        raise Malformed("run is missing")
    return run


def _run_and_tag(request: Request) -> tuple[str, str]:
    return _both(request.query_params.get("run"), request.query_params.get("tag"))


def _run_and_tagname(request: Request) -> tuple[str, str]:
    return _both(request.query_params.get("run"), request.query_params.get("tagname"))


Run = Annotated[str, Depends(_run)]
RunAndTag = Annotated[tuple[str, str], Depends(_run_and_tag)]
RunAndTagName = Annotated[tuple[str, str], Depends(_run_and_tagname)]


def _both(run: str | None, tag: str | None) -> tuple[str, str]:
    if run is None or tag is None:
        raise Malformed("both a run and a tag are needed")
    return run, tag


def number(name: str, value: str, least: int) -> int:
    """A whole number that is not under `least`. Raises Malformed, as the framework would answer 422."""
    if not (value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX and int(value) >= least):
        raise Malformed(f"{name} must be a whole number, at least {least}")
    return int(value)
