"""What the routes of the classic API have in common: their parameters, which are refused with 400 as they were then."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Depends, Request

from tbservice.errors import MalformedRequest

PREFIX: Final = "/api/v0/experiments/{experiment_id}"

_DIGITS_MAX: Final = 9


def _describe_parameter(name: str, description: str) -> dict[str, Any]:
    """Return a required query parameter's description; the framework would answer 422 where it is missing."""
    return {
        "name": name,
        "in": "query",
        "required": True,
        "schema": {"type": "string"},
        "description": description,
    }


_RUN: Final = _describe_parameter("run", "A run's name")

WANTS_RUN: Final = {"parameters": [_RUN]}
WANTS_RUN_AND_TAG: Final = {"parameters": [_RUN, _describe_parameter("tag", "A tag's name")]}
WANTS_RUN_AND_TAGNAME: Final = {
    "parameters": [_RUN, _describe_parameter("tagname", "A tag's name")]
}
"""What the OpenAPI document says of routes that depend on the following."""


def _run(request: Request) -> str:
    run = request.query_params.get("run")
    if run is None:
        raise MalformedRequest("run is missing")
    return run


def _run_and_tag(request: Request) -> tuple[str, str]:
    return _require_both(request.query_params.get("run"), request.query_params.get("tag"))


def _run_and_tagname(request: Request) -> tuple[str, str]:
    return _require_both(request.query_params.get("run"), request.query_params.get("tagname"))


Run = Annotated[str, Depends(_run)]
RunAndTag = Annotated[tuple[str, str], Depends(_run_and_tag)]
RunAndTagName = Annotated[tuple[str, str], Depends(_run_and_tagname)]


def _require_both(run: str | None, tag: str | None) -> tuple[str, str]:
    if run is None or tag is None:
        raise MalformedRequest("both a run and a tag are needed")
    return run, tag


def parse_integer(name: str, value: str, least: int) -> int:
    """A whole number that is not under `least`. Raises MalformedRequest, as the framework would answer 422."""
    if not (
        value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX and int(value) >= least
    ):
        raise MalformedRequest(f"{name} must be a whole number, at least {least}")
    return int(value)
