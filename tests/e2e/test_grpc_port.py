"""The gRPC port of `tbservice serve`: health, reflection, TLS, workers, and how it starts and stops."""

import signal
import socket

import grpc
import httpx2
import psutil
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from support import zygote
from support.grpc_calls import failure, live_grpc_service, raw_client
from support.process_kills import workers_of
from support.servers import environment_of, live_service
from support.tls_proxy import make_certificate
from support.uploading import wait_until
from tbservice.local.embedded.ports import LOOPBACK, choose_ports

pytestmark = pytest.mark.own_database

HEALTH = "grpc.health.v1.Health"
REFLECTION = "grpc.reflection.v1alpha.ServerReflection"
NAMES = (
    "",
    "grpc.health.v1.Health",
    "manager.v1beta1.Suggestion",
    "api.v1.beta1.DBManager",
    "api.v1.beta1.Suggestion",
    "api.v1.beta1.EarlyStopping",
)
SERVING, NOT_SERVING = 1, 2


def check(call, name="", seconds=10):
    """Return the state of a service by its name."""
    request = health_pb2.HealthCheckRequest(service=name).SerializeToString()
    return health_pb2.HealthCheckResponse.FromString(call("Check", request, timeout=seconds)).status


def tbservice(settings, *arguments, **more):
    """Run a command that must end with one line on stderr; return that line."""
    done = zygote.run(arguments, environment_of(settings) | more)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    return done.stderr


def test_grpc_port_answers_health_under_katib_names(settings, tmp_path):
    with (
        live_grpc_service(settings, tmp_path) as (live, port),
        raw_client(port, service=HEALTH) as call,
    ):
        wait_until(lambda: check(call, "manager.v1beta1.Suggestion") == SERVING)
        before = checks_counted(live)
        assert {name: check(call, name) for name in NAMES} == dict.fromkeys(NAMES, SERVING)
        assert failure(lambda: check(call, "api.v1.beta1.Other"))[0] == "NOT_FOUND"
        assert failure(lambda: call("Check", b"\xff"))[0] == "INVALID_ARGUMENT"
        assert failure(lambda: call("Watch"))[0] == "UNIMPLEMENTED"
        assert checks_counted(live) == before + len(NAMES)
    assert f"gRPC on port {port}" in (tmp_path / "log").read_text()


def checks_counted(live):
    """Return how many health checks the metrics have counted."""
    counter = 'tbhub_grpc_calls_total{method="Health/Check",status="OK"} '
    scrape = httpx2.get(f"{live.url}/metrics", trust_env=False).text
    return float(scrape.partition(counter)[2].split()[0])


def test_grpc_health_is_not_serving_without_database(servers, settings, tmp_path):
    database = settings.database_url.get_secret_value().rpartition("/")[2].partition("?")[0]
    with (
        live_grpc_service(settings, tmp_path) as (_, port),
        raw_client(port, service=HEALTH) as call,
        servers.instance.postgres.connect_as_superuser("postgres") as superuser,
    ):
        superuser.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
        superuser.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database]
        )
        wait_until(lambda: check(call) == NOT_SERVING)
        superuser.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")
        wait_until(lambda: check(call) == SERVING)


def test_grpc_reflection_lists_services_and_messages(settings, tmp_path):
    with (
        live_grpc_service(settings, tmp_path) as (_, port),
        grpc.insecure_channel(f"{LOOPBACK}:{port}") as channel,
    ):
        reflect = channel.stream_stream(
            f"/{REFLECTION}/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        asked = [
            reflection_pb2.ServerReflectionRequest(list_services="*"),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=HEALTH),
        ]
        listed, described = reflect(iter(asked), timeout=10)
        names = {service.name for service in listed.list_services_response.service}
        assert names == {HEALTH, REFLECTION, *(name for name in NAMES if name.startswith("api."))}
        assert described.file_descriptor_response.file_descriptor_proto


def test_grpc_is_off_by_default(settings, tmp_path):
    port = choose_ports(["service"], {})["service"]
    with live_service(settings, port, tmp_path / "log") as live:
        assert listening_ports(psutil.Process(live.process.pid)) == {port}


def test_grpc_option_replaces_setting(settings, tmp_path):
    ports = choose_ports(["service", "grpc", "other"], {})
    program = ("-m", "tbservice", "serve", "--grpc-port", str(ports["grpc"]))
    more = {"TBHUB_GRPC_PORT": str(ports["other"])}
    with (
        live_service(settings, ports["service"], tmp_path / "log", program=program, **more),
        raw_client(ports["grpc"], service=HEALTH) as call,
    ):
        assert check(call) == SERVING


def test_grpc_workers_share_port(settings, tmp_path):
    """Each of them answers: new connections reach one that runs while the other does not."""
    with live_grpc_service(settings, tmp_path, TBHUB_GRPC_PORT="0", TBHUB_WORKERS="2") as (live, _):
        port = int((tmp_path / "log").read_text().partition("gRPC on port ")[2].partition(",")[0])
        workers = workers_of(live)
        wait_until(lambda: all(port in listening_ports(worker) for worker in workers))
        for worker in workers:
            worker.suspend()
            try:
                wait_until(lambda: answers(port))
            finally:
                worker.resume()
        live.process.send_signal(signal.SIGTERM)
        assert live.process.wait(15) == 0
    assert "forced exit" not in (tmp_path / "log").read_text()


def answers(port):
    """Whether a new connection is answered: the kernel chooses the worker that gets it."""
    with raw_client(port, service=HEALTH) as call:
        try:
            return check(call, seconds=1) == SERVING
        except grpc.RpcError:
            return False


def listening_ports(process):
    return {
        connection.laddr.port
        for connection in process.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    }


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
            reply = channel.unary_unary(f"/{HEALTH}/Check")(b"", timeout=10)
            assert health_pb2.HealthCheckResponse.FromString(reply).status == SERVING
        with raw_client(port, service=HEALTH) as call:
            assert failure(lambda: check(call))[0] == "UNAVAILABLE"
    assert len((tmp_path / "log").read_text().splitlines()) == 1  # nothing of gRPC's own
