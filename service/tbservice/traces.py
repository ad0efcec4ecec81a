"""Traces: the time that each part of a request takes, as spans of OpenTelemetry.

Off, and almost free, unless `start` was called. Names of spans are constants of this source and
templates of routes, as the labels of metrics are: a trace holds no data of a tenant.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol


class Request(Protocol):
    """The outermost span of a request."""

    def describe(self, name: str, attributes: Mapping[str, str | int], *, failed: bool) -> None:
        """Set the name and the attributes of the request, before its end."""


class OpenSpan(Protocol):
    """A span that was begun."""

    def end(self) -> None:
        """End it."""


class Tracer(Protocol):
    """Tracer of OpenTelemetry, as far as we use it."""

    def span(self, name: str) -> AbstractContextManager[object]:
        """See `traces.span`; each method does what the function of its name says."""

    def begin(self, name: str) -> OpenSpan:
        """Begin a span."""

    def request(self, headers: Mapping[str, str]) -> AbstractContextManager[Request]:
        """Begin the outermost span of a request."""

    def current_id(self) -> str:
        """Return the current trace's id."""


class _Untraced:
    def describe(self, name: str, attributes: Mapping[str, str | int], *, failed: bool) -> None:
        """Do nothing."""


_OFF: Final = nullcontext()
_UNTRACED: Final = nullcontext(_Untraced())

_tracer: Tracer | None = None


def start(tracer: Tracer | None) -> None:
    """Send spans to this tracer from now on; None: nowhere."""
    global _tracer  # noqa: PLW0603 - one of the process, as the registry of metrics
    _tracer = tracer


def span(name: str) -> AbstractContextManager[object]:
    """Time a part of the request that this task or thread processes."""
    return _OFF if _tracer is None else _tracer.span(name)


def begin(name: str) -> OpenSpan | None:
    """Begin a span that ends elsewhere, with `end`; None if traces are off."""
    return None if _tracer is None else _tracer.begin(name)


def end(begun: OpenSpan | None) -> None:
    """End what `begin` has begun."""
    if begun is not None:
        begun.end()


def request(headers: Mapping[str, str]) -> AbstractContextManager[Request]:
    """Begin the outermost span of a request, in the client's trace if it has sent `traceparent`."""
    return _UNTRACED if _tracer is None else _tracer.request(headers)


def current_id() -> str:
    """Return the id of the trace that this task or thread works for, in hex; empty if none."""
    return "" if _tracer is None else _tracer.current_id()
