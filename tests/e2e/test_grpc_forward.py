"""`tbupload grpc-forward`, a process between clients without a token and the gRPC port of a service."""

import os
import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from support import zygote
from support.grpc_calls import call_server, failure, live_grpc_service, raw_client
from support.grpc_forwarder import forwarder
from support.subprocesses import run_to_end
from support.tls_proxy import tls_proxy
from support.waiting import SECONDS_MAX, wait_until
from tbservice.errors import Invalid, TooManyRequests, Unavailable
from tbservice.local.embedded.ports import LOOPBACK, choose_ports

KATIB = "api.v1.beta1.DBManager"


async def describe(call):
    """Answer the metadata of the call, and the size of its message."""
    metadata = dict(call.metadata)
    kept = {name: value for name, value in metadata.items() if name.startswith("x-")}
    return f"{metadata['authorization']} {kept} {len(call.message)}".encode()


@pytest.fixture
def server(settings, database):
    with call_server(settings, database, service=KATIB, Describe=describe) as server:
        yield server


def test_forwarder_adds_token_and_passes_katib_keys(server, owner_token):
    with (
        forwarder(f"http://{LOOPBACK}:{server.port}", owner_token) as process,
        raw_client(process.port, service=KATIB) as call,
    ):
        more = (("x-katib-experiment", "sweep"), ("x-other", "1"), ("authorization", "Bearer mine"))
        kept = {"x-katib-experiment": "sweep"}
        expected = f"Bearer {owner_token} {kept} 15000000"
        assert call("Describe", b"x" * 15_000_000, more=more).decode() == expected
        with raw_client(process.port) as other:
            assert failure(lambda: other("Describe"))[0] == "UNIMPLEMENTED"
    assert process.said == ""


def test_forwarder_passes_errors_on_and_reports_them(settings, database, owner_token):
    async def fail(_call):
        raise Invalid("do it\x1b[31m otherwise")

    with (
        call_server(settings, database, service=KATIB, Fail=fail) as server,
        forwarder(f"http://{LOOPBACK}:{server.port}", owner_token) as process,
        raw_client(process.port, service=KATIB) as call,
    ):
        expected = ("INVALID_ARGUMENT", "do it\x1b[31m otherwise", "invalid")
        assert failure(lambda: call("Fail")) == expected
    line = f"tbupload: /{KATIB}/Fail: INVALID_ARGUMENT: do it\\x1b[31m otherwise\n"
    assert process.said == line


def test_forwarder_repeats_calls_that_were_not_handled(settings, database, owner_token):
    errors = [Unavailable("away"), TooManyRequests("busy"), Unavailable("away")]

    async def answer(_call):
        if errors:
            raise errors.pop()
        return b"done"

    with (
        call_server(settings, database, service=KATIB, Work=answer) as server,
        forwarder(f"http://{LOOPBACK}:{server.port}", owner_token) as process,
        raw_client(process.port, service=KATIB) as call,
    ):
        assert call("Work") == b"done"
    assert (errors, process.said) == ([], "")


def test_forwarder_bridges_restart_of_server(settings, database, owner_token):
    port = choose_ports(["grpc"], {})["grpc"]
    with (
        forwarder(f"http://{LOOPBACK}:{port}", owner_token, "--experiment", "mine") as process,
        raw_client(process.port, service=KATIB) as call,
    ):
        other = (("x-katib-experiment", "other"),)
        for size in (1, 7):
            with socket.create_server((LOOPBACK, port)) as server:
                running = call("Describe", b"x" * size, more=other, start=True)
                server.accept()[0].close()  # it has tried once
            with call_server(settings, database, service=KATIB, port=port, Describe=describe):
                kept = {"x-katib-experiment": "mine"}
                assert running.result().decode() == f"Bearer {owner_token} {kept} {size}"
    assert process.said == ""


def test_forwarder_without_server_repeats_only_what_may_be(owner_token):
    """Not what its caller no longer waits for, nor validations, which Katib's controller repeats
    itself: ten answers and nine pauses of 3 seconds have to fit into its 60 seconds.
    """
    port = choose_ports(["grpc"], {})["grpc"]
    with (
        forwarder(f"http://{LOOPBACK}:{port}", owner_token, "--retry-timeout", "60") as process,
        ExitStack() as stack,
    ):
        for service, method in (
            ("api.v1.beta1.Suggestion", "ValidateAlgorithmSettings"),
            ("api.v1.beta1.EarlyStopping", "ValidateEarlyStoppingSettings"),
            ("grpc.health.v1.Health", "Check"),
        ):
            call = stack.enter_context(raw_client(process.port, service=service))
            begin = time.monotonic()
            status, _, _ = failure(lambda call=call, method=method: call(method, timeout=60))
            assert (method, status) == (method, "UNAVAILABLE")
            assert time.monotonic() - begin < 30
        call = stack.enter_context(raw_client(process.port, service=KATIB))
        # On a busy machine, the caller gives up before the forwarder's answer arrives.
        given_up = {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
        assert failure(lambda: call("Describe", timeout=1))[0] in given_up


def test_forwarder_passes_health_and_reflection_on(settings, owner_token, tmp_path):
    with (
        live_grpc_service(settings, tmp_path) as (_, port),
        forwarder(f"http://{LOOPBACK}:{port}", owner_token) as process,
    ):
        with raw_client(process.port, service="grpc.health.v1.Health") as call:
            assert health_pb2.HealthCheckResponse.FromString(call("Check")).status == 1
        with grpc.insecure_channel(f"{LOOPBACK}:{process.port}") as channel:
            reflect = channel.stream_stream(
                "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                reflection_pb2.ServerReflectionRequest.SerializeToString,
                reflection_pb2.ServerReflectionResponse.FromString,
            )
            asked = [reflection_pb2.ServerReflectionRequest(list_services="*")] * 2
            answers = list(reflect(iter(asked), timeout=SECONDS_MAX))
    assert len(answers) == 2
    assert answers[0].list_services_response.service


def test_forwarder_speaks_tls_with_given_authority(server, owner_token, tmp_path):
    with tls_proxy(server.port, tmp_path) as proxy:
        with (
            forwarder(proxy.url, owner_token, "--cacert", proxy.ca_file) as process,
            raw_client(process.port, service=KATIB) as call,
        ):
            assert call("Describe", b"x").endswith(b" 1")
        with (
            forwarder(proxy.url, owner_token, "--retry-timeout", "1") as process,
            raw_client(process.port, service=KATIB) as call,
        ):
            begin = time.monotonic()
            assert failure(lambda: call("Describe", timeout=60))[0] == "UNAVAILABLE"
            assert time.monotonic() - begin < 30


def test_forwarder_ends_after_calls_in_progress(settings, database, owner_token):
    free = threading.Event()

    async def answer(call):
        await call.in_thread(free.wait, 20)
        return b"done"

    with (
        call_server(settings, database, service=KATIB, Work=answer) as server,
        forwarder(f"http://{LOOPBACK}:{server.port}", owner_token) as process,
        raw_client(process.port, service=KATIB) as call,
    ):
        running = call("Work", start=True)
        wait_until(lambda: server.shares.turns._used)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: not is_listening(process.port))
        free.set()
        assert running.result() == b"done"
        assert process.wait(SECONDS_MAX) == 0


@pytest.mark.parametrize(
    ("arguments", "token", "line"),
    [
        (["--listen", "nowhere"], "tb_x", "--listen 'nowhere' is not HOST:PORT"),
        (["--server", "http://127.0.0.1:1"], "", "no token for http://127.0.0.1:1"),
        (["--cacert", "/nowhere.pem"], "tb_x", "/nowhere.pem: No such file"),
        (["--experiment", "größe"], "tb_x", "--experiment must be printable ASCII"),
    ],
)
def test_forwarder_wrong_usage_is_one_line(arguments, token, line):
    done = run_forward("--server", "http://127.0.0.1:1", *arguments, token=token)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert line in done.stderr


def test_forwarder_address_in_use_is_one_line(server):
    taken = f"{LOOPBACK}:{server.port}"
    done = run_forward("--server", "http://127.0.0.1:1", "--listen", taken, token="tb_x")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert f"cannot listen on {taken}" in done.stderr


def test_forwarder_without_grpcio_names_extra():
    script = (
        "import sys; sys.modules['grpc'] = None; from tbupload.cli import main; sys.exit(main())"
    )
    done = run_to_end(
        [sys.executable, "-c", script, "grpc-forward", "--server", "http://127.0.0.1:1"],
        env=os.environ | {"TBHUB_TOKEN": "tb_x", "TBHUB_CONFIG": os.devnull},
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "pip install grpcio" in done.stderr


def is_listening(port):
    with socket.socket() as client:
        return client.connect_ex((LOOPBACK, port)) == 0


def run_forward(*arguments, token):
    environment = os.environ | {"TBHUB_TOKEN": token, "TBHUB_CONFIG": os.devnull}
    return zygote.run(["grpc-forward", *arguments], environment, program="tbupload")
