"""A gRPC server in this process over the real database, with methods that tests need, and a client."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager

import grpc

from support.servers import live_service
from support.waiting import SECONDS_MAX
from tbservice.admission.worker_shares import WorkerShares
from tbservice.api.grpc.calls import CallRunner
from tbservice.api.grpc.listener import GrpcListener
from tbservice.local.embedded.ports import LOOPBACK, choose_ports
from tbservice.quotas.traffic import TrafficMeter

SERVICE = "tbhub.test.Calls"


class CallServer:
    """A running server: its shares, its loop, and the errors that it logged."""

    def __init__(self, settings, database, service, port, answers, more_handlers):
        self.port = port or choose_ports(["grpc"], {})["grpc"]
        self.shares = WorkerShares(settings.database_pool_size)
        self.failures = []
        self.loop = None
        self._settings = settings.model_copy(update={"host": LOOPBACK, "grpc_port": self.port})
        self._database = database
        self._service = service
        self._answers = answers
        self._more_handlers = more_handlers
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def start(self):
        self._thread.start()
        assert self._ready.wait(SECONDS_MAX)

    def stop(self):
        self.loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive()

    async def _serve(self):
        self.loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        meter = TrafficMeter(self._database)
        runner = CallRunner(self._database, self.shares, meter, self._log_failure)
        methods = {
            name: runner.handler(f"Calls/{name}", answer) for name, answer in self._answers.items()
        }
        handlers = [grpc.method_handlers_generic_handler(self._service, methods)]
        handlers += self._more_handlers(runner)
        listener = GrpcListener(self._settings, handlers, 1.0)
        await listener.start()
        self._ready.set()
        await self._stopped.wait()
        await listener.wait_stopped()

    def _log_failure(self, error):
        self.failures.append(error)
        return f"id-{len(self.failures)}"


@contextmanager
def call_server(
    settings, database, *, service=SERVICE, port=None, more_handlers=lambda _runner: [], **answers
):
    """Serve these methods, coroutine functions of a `Call`, until the block ends.

    And what `more_handlers` returns for the `CallRunner`.
    """
    server = CallServer(settings, database, service, port, answers, more_handlers)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def live_grpc_service(settings, directory, **more):
    """Run `tbservice serve` with a gRPC port; yield the service and that port."""
    port = choose_ports(["grpc"], {})["grpc"]
    more = {"TBHUB_GRPC_PORT": str(port)} | more
    with live_service(settings, directory / "log", **more) as live:
        yield live, port


@contextmanager
def raw_client(port, token=None, service=SERVICE):
    """Yield `call(method, message, **options)`, which returns the reply's bytes."""
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(f"{LOOPBACK}:{port}", options) as channel:

        def call(method, message=b"", *, timeout=SECONDS_MAX, more=(), start=False):
            rpc = channel.unary_unary(f"/{service}/{method}")
            function = rpc.future if start else rpc
            return function(message, timeout=timeout, metadata=(*metadata, *more))

        call.channel = channel
        yield call


def failure(call):
    """Return the status, the text and the error code of a call that must fail."""
    try:
        reply = call()
    except grpc.RpcError as error:
        trailing = dict(error.trailing_metadata() or ())
        return error.code().name, error.details(), trailing.get("tbhub-code")
    raise AssertionError(reply)
