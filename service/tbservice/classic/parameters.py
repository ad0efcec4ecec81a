"""What the routes of the classic API have in common: their parameters, which are refused with 400 as they were then."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query

from tbservice.errors import Malformed

PREFIX: Final = "/api/v0/experiments/{experiment_id}"

_DIGITS_MAX: Final = 9

Run = Annotated[str | None, Query(description="A run's name")]
Tag = Annotated[str | None, Query(description="A tag's name")]


def both(run: str | None, tag: str | None) -> tuple[str, str]:
    """The two of them. Raises Malformed when one is missing."""
    if run is None or tag is None:
        raise Malformed("both a run and a tag are needed")
    return run, tag


def number(name: str, value: str, least: int) -> int:
    """A whole number that is not under `least`. Raises Malformed, as the framework would answer 422."""
    if not (value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX and int(value) >= least):
        raise Malformed(f"{name} must be a whole number, at least {least}")
    return int(value)
