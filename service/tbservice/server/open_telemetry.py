"""Traces by OpenTelemetry; imported only where an endpoint is set, because it is optional."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from typing import Final

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

EXPORT_SECONDS_MAX: Final = 5
"""Seconds that sending spans, and the last ones at the end, may take."""


class OpenTelemetry:
    """A tracer that sends spans by OTLP over HTTP, from a thread of this process.

    The variables `OTEL_…` of OpenTelemetry for samplers, headers and resources apply.
    """

    def __init__(self, endpoint: str) -> None:
        release = version("tbhub")
        resource = Resource.create({"service.version": release})
        if str(resource.attributes["service.name"]).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": "tbhub"}))
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint, timeout=EXPORT_SECONDS_MAX)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("tbservice", release)

    def stop(self) -> None:
        """Send the last spans, for at most `EXPORT_SECONDS_MAX`."""
        self._provider.shutdown()

    def span(self, name: str) -> AbstractContextManager[object]:
        """Open a span; of an error, nothing is kept: its text may quote what a tenant sent."""
        return self._tracer.start_as_current_span(
            name, record_exception=False, set_status_on_exception=False
        )

    def begin(self, name: str) -> trace.Span:
        """Begin a span that is ended elsewhere."""
        return self._tracer.start_span(name)

    @contextmanager
    def request(self, headers: Mapping[str, str]) -> Iterator[RequestSpan]:
        """Open the outermost span of a request, in the client's trace if it has sent one."""
        parent = TraceContextTextMapPropagator().extract(headers)
        with self._tracer.start_as_current_span(
            "request",
            parent,
            trace.SpanKind.SERVER,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield RequestSpan(span)

    def current_id(self) -> str:
        """Return the current trace's id, in hex; empty if there is none."""
        context = trace.get_current_span().get_span_context()
        return trace.format_trace_id(context.trace_id) if context.is_valid else ""


class RequestSpan:
    """The outermost span of a request."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def describe(self, name: str, attributes: Mapping[str, str | int], *, failed: bool) -> None:
        """Set name, attributes and status."""
        self._span.update_name(name)
        self._span.set_attributes(dict(attributes))
        if failed:
            self._span.set_status(trace.StatusCode.ERROR)
