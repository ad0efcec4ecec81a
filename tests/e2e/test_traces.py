"""Traces of a running service, as a collector receives them by OTLP over HTTP."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import sys
import threading

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.batches import scalars, segment, stream
from support.servers import environment_of, fetch, live_api, live_service
from support.subprocesses import run_to_end
from tbservice.local.embedded.ports import LOOPBACK, choose_ports

pytestmark = pytest.mark.own_database

PARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


class Collector(http.server.ThreadingHTTPServer):
    """Keeps the spans that are sent to it, read with OpenTelemetry's own messages."""

    def __init__(self):
        super().__init__((LOOPBACK, 0), Receiver)
        self.spans = []
        self.resources = []

    @property
    def endpoint(self):
        return f"http://{LOOPBACK}:{self.server_port}/v1/traces"


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.server.resources.append(resource_spans.resource)
            for scope_spans in resource_spans.scope_spans:
                self.server.spans += scope_spans.spans
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        """Keep quiet."""


@contextlib.contextmanager
def collecting():
    with Collector() as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        yield collector
        collector.shutdown()


def attributes(span):
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def upload(service):
    with live_api(service.url, service.new_owner()) as api:
        experiment = api.new_experiment(name="a secret name")
        api.write(experiment, segment(stream("a secret run"), 0, 9, scalars("a secret tag", [1])))
    return experiment


def test_request_is_a_tree_of_spans_without_tenants_data(settings, tmp_path):
    with collecting() as collector:
        more = {"TBHUB_TRACES_ENDPOINT": collector.endpoint, "TBHUB_WORKERS": "2"}
        with live_service(settings, tmp_path / "service.log", **more) as service:
            experiment = upload(service)
            fetch(
                f"{service.url}/api/v1/experiments/{experiment}?token=a_secret_token",
                headers={"traceparent": PARENT, "X-Request-ID": "r1"},
            )
        spans = {span.name: span for span in collector.spans}  # sent when the service stopped
    route = "/api/v1/experiments/{experiment_id}"
    write = spans[f"POST {route}/batches"]
    assert spans["batch transaction"].parent_span_id == write.span_id
    inside = [s for s in collector.spans if s.parent_span_id == spans["batch transaction"].span_id]
    assert [span.name for span in inside] == ["database transaction"]
    assert attributes(write)["http.response.status_code"] == 200
    read = spans[f"GET {route}"]
    assert read.trace_id.hex() == PARENT.split("-")[1]
    assert attributes(read)["tbhub.request_id"] == "r1"
    sent = b"".join(span.SerializeToString() for span in collector.spans)
    assert b"secret" not in sent
    assert experiment.encode() not in sent
    named = {each.key: each.value.string_value for each in collector.resources[0].attributes}
    assert named["service.name"] == "tbhub"


def test_service_works_and_stops_without_its_collector(settings, tmp_path):
    port, absent = choose_ports(["service", "absent"], {}).values()
    log = tmp_path / "service.log"
    more = {"TBHUB_TRACES_ENDPOINT": f"http://{LOOPBACK}:{absent}/v1/traces"}
    with live_service(settings, log, port=port, **more) as service:
        assert upload(service)
    assert "Failed to export" in log.read_text()


def test_missing_package_is_one_line(settings):
    program = (
        "import sys; sys.modules['opentelemetry.sdk'] = None; "
        "from tbservice.cli import main; sys.exit(main(['serve']))"
    )
    ended = run_to_end(
        [sys.executable, "-c", program],
        env=environment_of(settings) | {"TBHUB_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"},
    )
    assert ended.returncode != 0
    assert "pip install 'tbhub[traces]'" in ended.stderr
    assert "Traceback" not in ended.stderr
