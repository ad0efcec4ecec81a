"""Run gRPC calls in the event loop of the worker, each within the shares of its caller.

A call is handled as a stream of messages, also where it has one request and one reply, which look
the same to clients. So the request is received only when its caller is known and has memory for it,
and a reply counts as unread until the connection has taken it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import grpc

from tbservice import limits, metrics, traces
from tbservice.admission.admitted import AdmittedRequest, admit
from tbservice.admission.callers import CallerLookup, address_caller, site_of
from tbservice.admission.fair_queue import FairQueue
from tbservice.admission.worker_shares import WorkerShares
from tbservice.api.grpc.call import Call
from tbservice.api.grpc.metadata import Context, peer_host, read_secret
from tbservice.audit.acting import begin_request
from tbservice.auth import grants
from tbservice.db.database import Database
from tbservice.errors import (
    MalformedRequest,
    RequestTimeout,
    ServiceError,
    Unauthenticated,
    Unavailable,
)
from tbservice.quotas.traffic import TrafficMeter

GRPC_MESSAGE_SECONDS_MAX: Final = 60.0
"""Seconds a client may take to send the message of a gRPC call.

Meanwhile the call holds `GRPC_MESSAGE_BYTES_MAX` of its caller's share of request bodies.
"""

GRPC_OPEN_CALLS_ITEMS_MAX: Final = 32
"""Calls (items) of health and reflection, which need no token, that one worker answers at once.

All addresses together have a quarter of it, each of them half of that.
"""

GRPC_OPEN_CALL_SECONDS_MAX: Final = 10.0
"""Seconds after which a call of health or reflection is ended."""

Answer = Callable[[Call], Awaitable[bytes]]
OpenAnswer = Callable[[Context], Awaitable[None]]
Statuses = Mapping[grpc.StatusCode, grpc.StatusCode]

_log = logging.getLogger(__name__)

GRPC_DETAIL_CHARS_MAX: Final = 500
"""Characters of an error's text in a gRPC status.

Clients refuse trailers over 8 KiB, and 4-byte characters take 12 bytes there.
"""
_ERROR_CODE_KEY: Final = "tbhub-code"
"""Key of the trailing metadata with the `code` of the error, as in JSON over HTTP."""
_STATUS: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    406: grpc.StatusCode.INVALID_ARGUMENT,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.ABORTED,
    410: grpc.StatusCode.DATA_LOSS,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    451: grpc.StatusCode.PERMISSION_DENIED,
    503: grpc.StatusCode.UNAVAILABLE,
    507: grpc.StatusCode.FAILED_PRECONDITION,
}
"""gRPC status by HTTP status. 413 and 507 are not RESOURCE_EXHAUSTED, at which clients repeat."""


class CallRunner:
    """The calls of one worker: their callers, their shares, and what clients get for errors."""

    def __init__(
        self,
        database: Database,
        shares: WorkerShares,
        meter: TrafficMeter,
        log_failure: Callable[[Exception], str],
    ) -> None:
        """Create it before the event loop runs.

        Args:
            database: Where tokens are looked up.
            shares: The shares of this worker, which HTTP uses too.
            meter: Counts calls for the quotas of workspaces, likewise.
            log_failure: Logs an unexpected error and returns its id in the log.
        """
        self._database = database
        self._shares = shares
        self._meter = meter
        self._log_failure = log_failure
        self._callers = CallerLookup(database)
        self._open_calls = FairQueue(
            "gRPC calls without a token",
            GRPC_OPEN_CALLS_ITEMS_MAX,
            GRPC_OPEN_CALLS_ITEMS_MAX,
        )

    def handler(
        self, name: str, answer: Answer, statuses: Statuses | None = None
    ) -> grpc.RpcMethodHandler:
        """Return the handler of a method that needs a token: `answer` returns the reply's bytes.

        Its clients get the values of `statuses` instead of the keys.
        """

        async def work(context: Context) -> None:
            await self._run_admitted(context, answer)

        return self._handler(name, work, statuses or {})

    def open_handler(self, name: str, answer: OpenAnswer) -> grpc.RpcMethodHandler:
        """Return the handler of a short method without a token: `answer` reads and writes itself.

        It must leave no trace of what the caller sent.
        """

        async def work(context: Context) -> None:
            caller = address_caller(peer_host(context.peer()))
            try:
                async with (
                    asyncio.timeout(GRPC_OPEN_CALL_SECONDS_MAX),
                    self._open_calls.turn(caller),
                ):
                    await answer(context)
            except TimeoutError as error:
                raise RequestTimeout(
                    f"this call may take {GRPC_OPEN_CALL_SECONDS_MAX:g} seconds"
                ) from error

        return self._handler(name, work, {})

    def _handler(
        self, name: str, work: Callable[[Context], Awaitable[None]], statuses: Statuses
    ) -> grpc.RpcMethodHandler:
        async def run(_messages: object, context: Context) -> None:
            await self._run(name, context, work, statuses)

        return grpc.stream_stream_rpc_method_handler(run)

    async def _run(
        self,
        name: str,
        context: Context,
        work: Callable[[Context], Awaitable[None]],
        statuses: Statuses,
    ) -> None:
        """Do the work, give a failed call its status and one log line, and record the call."""
        began = time.perf_counter()
        status = grpc.StatusCode.OK
        try:
            with traces.span(f"gRPC {name}"):
                await work(context)
        except asyncio.CancelledError:
            status = grpc.StatusCode.CANCELLED
            _log.warning("%s: ended by the client, its deadline, or a stop of the server", name)
            raise
        except Exception as error:  # noqa: BLE001 - every error becomes a status
            status, code, detail = self._explain(name, error, statuses)
            await context.abort(status, detail, ((_ERROR_CODE_KEY, code),))
        finally:
            metrics.observe_call(name, status.name, time.perf_counter() - began)

    def _explain(
        self, name: str, error: Exception, statuses: Statuses
    ) -> tuple[grpc.StatusCode, str, str]:
        """Log the error; return its status, code and text for the client."""
        if isinstance(error, ServiceError):
            status = statuses.get(status_of(error), status_of(error))
            cause = f" ({error.__cause__})" if isinstance(error, Unavailable) else ""
            _log.warning("%s: %s: %s%s", name, status.name, error.detail, cause)
            return status, error.code, _bounded_detail(error.detail)
        error_id = self._log_failure(error)
        detail = (
            "the server failed to handle this call and stored nothing of it; "
            f"its log has the details under error id {error_id}"
        )
        internal = grpc.StatusCode.INTERNAL
        return statuses.get(internal, internal), "internal", detail

    async def _run_admitted(self, context: Context, answer: Answer) -> None:
        metadata = tuple(context.invocation_metadata() or ())
        secret = read_secret(metadata)
        host = peer_host(context.peer())
        begin_request(site_of(host), "")
        traffic = self._meter.begin_request()
        caller = await self._callers.identify_token(secret, host)
        admitted = admit(caller, self._shares)
        if caller.is_anonymous:
            await self._check_token(admitted, secret)

        async with self._received(context, admitted) as message:
            await admitted.turn.wait()
            try:
                reply = await answer(Call(secret, metadata, message, admitted))
            finally:
                admitted.turn.finish()
        traffic.add_bytes(len(reply))
        await self._send(context, admitted, reply)

    async def _check_token(self, admitted: AdmittedRequest, secret: str) -> None:
        """Raise Unauthenticated for a token that is not valid, before its message is received."""
        digest = grants.parse_token_digest(secret)
        if digest is None:
            raise _unknown_token()
        await admitted.turn.wait()
        try:
            await Call(secret, (), b"", admitted).in_thread(self._look_up, digest)
        finally:
            admitted.turn.release()

    def _look_up(self, digest: bytes) -> None:
        with self._database.without_transaction() as db:
            if grants.find_caller(db, digest) is None:
                raise _unknown_token()

    @asynccontextmanager
    async def _received(self, context: Context, admitted: AdmittedRequest) -> AsyncIterator[bytes]:
        """Receive the message, and count its bytes against the caller's share until the end."""
        memory, caller = self._shares.body_bytes, admitted.caller
        await memory.wait(caller, limits.GRPC_MESSAGE_BYTES_MAX)
        reserved = limits.GRPC_MESSAGE_BYTES_MAX
        try:
            message = await _receive(context)
            memory.release(caller, reserved - len(message))
            reserved = len(message)
            await self._shares.body_rate.pause(caller, reserved)
            yield message
        finally:
            memory.release(caller, reserved)

    async def _send(self, context: Context, admitted: AdmittedRequest, reply: bytes) -> None:
        """Send the reply, which counts as unread until the connection has taken it."""
        unread, caller = self._shares.unread_bytes, admitted.caller
        unread.acquire(caller, len(reply))
        try:
            async with asyncio.timeout(limits.RESPONSE_STALL_SECONDS_MAX):
                await context.write(reply)
        except TimeoutError as error:
            raise RequestTimeout("the client did not read the reply in time") from error
        finally:
            unread.release(caller, len(reply))


async def _receive(context: Context) -> bytes:
    """Return the message of a call. Raises RequestTimeout, or MalformedRequest if none came."""
    try:
        async with asyncio.timeout(GRPC_MESSAGE_SECONDS_MAX):
            message = await context.read()
    except TimeoutError as error:
        raise RequestTimeout(
            f"the message did not arrive within {GRPC_MESSAGE_SECONDS_MAX:g} seconds"
        ) from error
    if not isinstance(message, bytes):  # grpc.aio.EOF
        limit: Final = f"{limits.GRPC_MESSAGE_BYTES_MAX} bytes (grpc_message_bytes_max)"
        raise MalformedRequest(f"the call has no message, or one over the limit of {limit}")
    return message


def _unknown_token() -> Unauthenticated:
    return Unauthenticated("this token is unknown, expired or revoked")


def status_of(error: ServiceError) -> grpc.StatusCode:
    """Return the status that a client gets for this error."""
    return _STATUS.get(error.status, grpc.StatusCode.INTERNAL)


def _bounded_detail(detail: str) -> str:
    """Return the text without its end if it is over `GRPC_DETAIL_CHARS_MAX`."""
    if len(detail) <= GRPC_DETAIL_CHARS_MAX:
        return detail
    return f"{detail[: GRPC_DETAIL_CHARS_MAX - 1]}…"
