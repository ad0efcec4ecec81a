"""A gRPC proxy for Katib's services that adds the token, and TLS, and repeats calls.

Katib's components can send neither, and repeat nothing: a collector whose report fails kills its
trial. So a call that the server did not handle (it restarts, or is busy) is sent again for a while.
"""

from __future__ import annotations

import asyncio
import math
import random
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NoReturn

import grpc

from tbupload.errors import UsageError
from tbupload.forward.addresses import GrpcTarget

FORWARDED_MESSAGE_BYTES_MAX: Final = 64 << 20
"""Bytes of a gRPC message to be forwarded; the server has a limit of its own."""

_KATIB: Final = ("/api.v1.beta1.",)
_PROBES: Final = ("/grpc.health.v1.Health/Check",)
_VALIDATIONS: Final = (
    "/api.v1.beta1.Suggestion/ValidateAlgorithmSettings",
    "/api.v1.beta1.EarlyStopping/ValidateEarlyStoppingSettings",
)
_REFLECTION: Final = ("/grpc.reflection.",)
_PASSED_KEYS: Final = "x-katib-"
_EXPERIMENT_KEY: Final = "x-katib-experiment"
_ERROR_CODE_KEY: Final = "tbhub-code"

_PAUSE_SECONDS_MIN: Final = 0.1
_PAUSE_SECONDS_MAX: Final = 2.0
_CALL_SECONDS_MAX: Final = 120.0
"""Seconds of a call to the server; Katib's own components set none, or at most these."""

_VALIDATION_RETRY_SECONDS_MAX: Final = 2.0
"""Seconds for which a validation is repeated.

Katib's controller itself repeats it ten times, 3 seconds apart, and takes the end of its deadline
of 60 seconds for consent: so ten answers, and the pauses between them, must fit in.
"""

_ANSWER_SECONDS: Final = 0.2
"""Seconds before the caller's deadline at which the last error is passed on: a deadline that has
passed says nothing of the cause.
"""

_STOP_SECONDS: Final = 5.0
"""Seconds that calls in progress may take at a stop."""

_CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)
_SERVER_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),  # a port that is in use is an error
    ("grpc.max_receive_message_length", FORWARDED_MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
)

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ForwardOptions:
    """Options of a forwarder: where to listen, what to call, and what to add."""

    listen: tuple[str, ...]
    target: GrpcTarget
    token: str
    certificates: bytes | None = None
    """Authorities to trust, as PEM; None for those of gRPC."""

    experiment: str | None = None
    """The experiment of trials that the server cannot tell by their names."""

    retry_seconds: float = 60.0
    """How long to repeat a call, within the caller's deadline."""


class Forwarder(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Forwards the calls of Katib's services, of health checks and of reflection."""

    def __init__(self, options: ForwardOptions, warn: Callable[[str], None]) -> None:
        """Connect to nothing yet; `warn` gets a line for each call that failed."""
        self._options = options
        self._warn = warn
        added = [("authorization", f"Bearer {options.token}")]
        if options.experiment is not None:
            added.append((_EXPERIMENT_KEY, options.experiment))
        self._added: Metadata = tuple(added)
        self._channel: Any = None

    async def run(self, when_ready: Callable[[list[str]], None]) -> None:
        """Forward until SIGTERM or SIGINT.

        `when_ready` gets the addresses. Raises UsageError for an address that cannot be used.
        """
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        server = grpc.aio.server(options=_SERVER_OPTIONS)
        server.add_generic_rpc_handlers((self,))
        addresses = [_bind(server, address) for address in self._options.listen]
        self._channel = self._open_channel()
        async with self._channel:
            await server.start()
            when_ready(addresses)
            await stopped.wait()
            await server.stop(_STOP_SECONDS)

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a method; None for one that is not forwarded."""
        method: str = handler_call_details.method
        if method.startswith(_KATIB) or method in _PROBES:
            return grpc.unary_unary_rpc_method_handler(partial(self._forward, method))
        if method.startswith(_REFLECTION):
            return grpc.stream_stream_rpc_method_handler(partial(self._forward_stream, method))
        return None

    def _retry_seconds(self, method: str) -> float:
        """Return for how long a call of the method is repeated."""
        if method in _PROBES:  # a probe asks for the state of now
            return 0.0
        limit = _VALIDATION_RETRY_SECONDS_MAX if method in _VALIDATIONS else math.inf
        return min(limit, self._options.retry_seconds)

    async def _forward(self, method: str, request: bytes, context: Any) -> bytes:
        """Return the server's reply, or end the call with the server's error."""
        began = time.monotonic()
        remaining = context.time_remaining()
        deadline = began + min(_CALL_SECONDS_MAX, remaining or _CALL_SECONDS_MAX)
        retry_until = min(deadline - _ANSWER_SECONDS, began + self._retry_seconds(method))
        metadata = self._metadata(context)
        call = self._channel.unary_unary(method)
        pause = _PAUSE_SECONDS_MIN
        while True:
            timeout = max(0.0, deadline - time.monotonic())
            try:
                reply: bytes = await call(request, metadata=metadata, timeout=timeout)
            except grpc.aio.AioRpcError as error:
                left = retry_until - time.monotonic()
                if not _may_repeat(error) or left <= 0:
                    await self._fail(method, error, context)
            else:
                return reply
            jitter = random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
            await asyncio.sleep(min(left, pause * jitter))
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    async def _fail(self, method: str, error: Any, context: Any) -> NoReturn:
        self._warn(f"{method}: {error.code().name}: {error.details()}")
        code = _error_code(error)
        trailing = ((_ERROR_CODE_KEY, code),) if code else ()
        await context.abort(error.code(), error.details() or "", trailing)
        raise AssertionError("abort raises")

    async def _forward_stream(
        self, method: str, requests: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[bytes]:
        call = self._channel.stream_stream(method)(
            requests, metadata=self._metadata(context), timeout=context.time_remaining()
        )
        try:
            async for reply in call:
                yield reply
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")

    def _metadata(self, context: Any) -> Metadata:
        """Return the metadata to send: what is added, and Katib's own keys of the caller."""
        names = {name for name, _ in self._added}
        passed = (
            (key, value)
            for key, value in context.invocation_metadata() or ()
            if key.startswith(_PASSED_KEYS) and isinstance(value, str) and key not in names
        )
        return (*self._added, *passed)

    def _open_channel(self) -> Any:
        target = self._options.target
        if not target.is_secure:
            return grpc.aio.insecure_channel(target.address, _CHANNEL_OPTIONS)
        credentials = grpc.ssl_channel_credentials(self._options.certificates)
        return grpc.aio.secure_channel(target.address, credentials, _CHANNEL_OPTIONS)


def _bind(server: Any, address: str) -> str:
    """Return the address with the port that was bound, which differs if it was 0."""
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise UsageError(f"cannot listen on {address}: it is in use or not allowed") from error
    return f"{address.rpartition(':')[0]}:{port}"


def _may_repeat(error: Any) -> bool:
    """Return whether the server did not handle the call: it was away, or too busy."""
    return bool(
        error.code() is grpc.StatusCode.UNAVAILABLE or _error_code(error) == "too_many_requests"
    )


def _error_code(error: Any) -> str:
    for key, value in error.trailing_metadata() or ():
        if key == _ERROR_CODE_KEY:
            return str(value)
    return ""
