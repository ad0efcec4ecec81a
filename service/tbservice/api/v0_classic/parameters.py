"""Parameters of the classic API's routes: errors are 400, as in the original, instead of 422."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Depends, Request

from tbservice.errors import MalformedRequest

PREFIX: Final = "/api/v0/experiments/{experiment_id}"

_DIGITS_MAX: Final = 9


def _describe_parameter(name: str, description: str) -> dict[str, Any]:
    """Return the OpenAPI description of a required query parameter that is validated here.

    A parameter that FastAPI validates would be answered with 422 if it is missing.
    """
    return {
        "name": name,
        "in": "query",
        "required": True,
        "schema": {"type": "string"},
        "description": description,
    }


_RUN: Final = _describe_parameter("run", "Name of the run")

# `openapi_extra` of routes with the dependencies `Run`, `RunAndTag` and `RunAndTagName`.
WANTS_RUN: Final = {"parameters": [_RUN]}
WANTS_RUN_AND_TAG: Final = {"parameters": [_RUN, _describe_parameter("tag", "Name of the tag")]}
WANTS_RUN_AND_TAGNAME: Final = {
    "parameters": [_RUN, _describe_parameter("tagname", "Name of the tag")]
}


def _run(request: Request) -> str:
    run = request.query_params.get("run")
    if run is None:
        raise MalformedRequest("the parameter 'run' is missing")
    return run


def _run_and_tag(request: Request) -> tuple[str, str]:
    return _require_both(request, "tag")


def _run_and_tagname(request: Request) -> tuple[str, str]:
    return _require_both(request, "tagname")


Run = Annotated[str, Depends(_run)]
RunAndTag = Annotated[tuple[str, str], Depends(_run_and_tag)]
RunAndTagName = Annotated[tuple[str, str], Depends(_run_and_tagname)]


def _require_both(request: Request, tag_parameter: str) -> tuple[str, str]:
    run, tag = request.query_params.get("run"), request.query_params.get(tag_parameter)
    if run is None or tag is None:
        raise MalformedRequest(f"the parameters 'run' and '{tag_parameter}' are both required")
    return run, tag


def parse_integer(name: str, value: str, minimum: int) -> int:
    """Return the parameter's value as an integer of at least `minimum`.

    Raises MalformedRequest otherwise, and also for more than 9 digits.
    """
    if not (
        value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX and int(value) >= minimum
    ):
        raise MalformedRequest(f"'{name}' must be an integer of at least {minimum}")
    return int(value)
