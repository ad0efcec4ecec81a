"""The gRPC port of `tbservice serve`: health, reflection, TLS, and what keeps it from starting."""

import socket

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from support import zygote
from support.grpc_calls import failure, live_grpc_service, raw_client
from support.servers import environment_of, fetch, live_service
from support.tls_proxy import make_certificate
from support.waiting import SECONDS_MAX
from tbservice.local.embedded.ports import LOOPBACK, choose_ports

pytestmark = pytest.mark.own_database

HEALTH = "grpc.health.v1.Health"
REFLECTION = "grpc.reflection.v1alpha.ServerReflection"
KATIB_NAMES = ("api.v1.beta1.DBManager", "api.v1.beta1.EarlyStopping")
"""Its service of suggestions is not serving before the libraries of the algorithms are loaded."""

SERVING = 1


def check(call, name="", seconds=SECONDS_MAX):
    """Return the state of a service by its name."""
    request = health_pb2.HealthCheckRequest(service=name).SerializeToString()
    return health_pb2.HealthCheckResponse.FromString(call("Check", request, timeout=seconds)).status


def tbservice(settings, *arguments, **more):
    """Run a command that must end with one line on stderr; return that line."""
    done = zygote.run(arguments, environment_of(settings) | more)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    return done.stderr


def test_grpc_port_of_option_answers_health_and_reflection(settings, tmp_path):
    ports = choose_ports(["grpc", "other"], {})
    options = ("--grpc-port", str(ports["grpc"]))
    more = {"TBHUB_GRPC_PORT": str(ports["other"])}
    with (
        live_grpc_service(settings, tmp_path, options=options, **more) as (live, _),
        raw_client(ports["grpc"], service=HEALTH) as call,
    ):
        assert check(call) == SERVING
        before = checks_counted(live)
        names = ("", HEALTH, *KATIB_NAMES)
        assert {name: check(call, name) for name in names} == dict.fromkeys(names, SERVING)
        assert failure(lambda: check(call, "api.v1.beta1.Other"))[0] == "NOT_FOUND"
        assert failure(lambda: call("Check", b"\xff"))[0] == "INVALID_ARGUMENT"
        assert failure(lambda: call("Watch"))[0] == "UNIMPLEMENTED"
        assert checks_counted(live) == before + len(names)
        listed, described = reflect(call.channel)
        services = {service.name for service in listed.list_services_response.service}
        assert services == {HEALTH, REFLECTION, *KATIB_NAMES, "api.v1.beta1.Suggestion"}
        assert described.file_descriptor_response.file_descriptor_proto
    assert f"gRPC on port {ports['grpc']}" in (tmp_path / "log").read_text()


def reflect(channel):
    """Return what reflection says of all services, and of the health service."""
    ask = channel.stream_stream(
        f"/{REFLECTION}/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    asked = [
        reflection_pb2.ServerReflectionRequest(list_services="*"),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=HEALTH),
    ]
    return ask(iter(asked), timeout=SECONDS_MAX)


def checks_counted(live):
    """Return how many health checks the metrics have counted."""
    counter = 'tbhub_grpc_calls_total{method="Health/Check",status="OK"} '
    scrape = fetch(f"{live.url}/metrics").text
    return float(scrape.partition(counter)[2].split()[0])


def test_grpc_is_off_by_default(settings, tmp_path):
    with live_service(settings, tmp_path / "log"):
        pass
    assert "gRPC" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_grpc_port_in_use_is_one_line(settings, workers):
    """Also by a server that shares its port, as a second `tbservice serve` would."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = tbservice(
            settings, "serve", TBHUB_PORT="0", TBHUB_GRPC_PORT=str(port), TBHUB_WORKERS=workers
        )
    assert f"port {port} of {LOOPBACK} is in use" in line


def test_grpc_without_tls_is_refused_beyond_loopback(settings, tmp_path):
    more = {"TBHUB_HOST": "0.0.0.0", "TBHUB_PORT": "0"}  # noqa: S104 - of a test
    line = tbservice(settings, "serve", TBHUB_GRPC_PORT="0", **more)
    assert "gRPC on 0.0.0.0 needs TLS" in line
    assert "TBHUB_GRPC_CERTIFICATE_FILE" in line
    line = tbservice(settings, "serve", TBHUB_GRPC_PORT="0", TBHUB_GRPC_KEY_FILE="/nowhere", **more)
    assert "both" in line
    more = {"TBHUB_HOST": more["TBHUB_HOST"], "TBHUB_GRPC_PLAINTEXT": "true"}
    with (
        live_grpc_service(settings, tmp_path, **more) as (_, port),
        raw_client(port, service=HEALTH) as call,
    ):
        assert check(call) == SERVING


def test_grpc_serves_tls_with_files_of_settings(settings, tmp_path):
    make_certificate(tmp_path, "localhost")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    files = {"TBHUB_GRPC_CERTIFICATE_FILE": str(certificate), "TBHUB_GRPC_KEY_FILE": str(key)}
    line = tbservice(
        settings,
        "serve",
        TBHUB_PORT="0",
        TBHUB_GRPC_PORT="0",
        **files | {"TBHUB_GRPC_KEY_FILE": str(broken)},
    )
    assert "cannot be used" in line
    with live_grpc_service(settings, tmp_path, **files) as (_, port):
        credentials = grpc.ssl_channel_credentials((tmp_path / "authority.pem").read_bytes())
        with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
            reply = channel.unary_unary(f"/{HEALTH}/Check")(b"", timeout=SECONDS_MAX)
            assert health_pb2.HealthCheckResponse.FromString(reply).status == SERVING
        with raw_client(port, service=HEALTH) as call:
            assert failure(lambda: check(call))[0] == "UNAVAILABLE"
    assert len((tmp_path / "log").read_text().splitlines()) == 1  # nothing of gRPC's own
