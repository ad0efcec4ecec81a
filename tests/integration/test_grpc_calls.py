"""How a gRPC call is run: tokens, shares, limits, errors and cancellation, over real connections."""

import asyncio
import socket
import threading
from contextlib import ExitStack

import grpc
import httpx2
import pytest

from support.grpc_calls import SECONDS_MAX, SERVICE, call_server, failure, raw_client
from support.servers import fetch
from support.uploading import wait_until
from tbservice import errors, limits
from tbservice.admission.worker_shares import CALLER_REQUESTS_ITEMS_MAX
from tbservice.api.grpc.calls import GRPC_DETAIL_CHARS_MAX, status_of
from tbservice.auth import secrets
from tbservice.local.embedded.ports import LOOPBACK

NEEDS_TOKEN = (
    "UNAUTHENTICATED",
    (
        "a token is needed: send the metadata 'authorization: Bearer <token>', "
        "or call through `tbupload grpc-forward`, which adds it"
    ),
    "unauthenticated",
)
UNKNOWN_TOKEN = ("UNAUTHENTICATED", "this token is unknown, expired or revoked", "unauthenticated")


async def length(call):
    """Answer how many bytes the message has, counted in a thread."""
    return b"%d" % await call.in_thread(len, call.message)


def make_error(kind):
    """Make an error of the server: one of them is made of figures."""
    is_quota = kind is errors.QuotaExceeded
    return kind("points", "points", 2, 2, 1, "workspace") if is_quota else kind("the detail")


@pytest.fixture
def server(settings, database):
    async def fail(call):
        name = call.message.decode()
        raise make_error(getattr(errors, name)) if hasattr(errors, name) else KeyError(name)

    with call_server(settings, database, Length=length, Fail=fail) as server:
        yield server


@pytest.fixture
def call(server, owner_token):
    with raw_client(server.port, owner_token) as call:
        yield call


def test_call_with_token_is_answered(call):
    assert call("Length", b"x" * 100_000) == b"100000"
    assert call("Length", b"") == b"0"


def test_call_without_valid_token_is_unauthenticated(server, owner_token):
    with raw_client(server.port) as call:
        assert failure(lambda: call("Length")) == NEEDS_TOKEN
        for scheme in (f"Basic {owner_token}", "Bearer", f"Bearer{owner_token}", ""):
            status, text, _ = failure(
                lambda scheme=scheme: call("Length", more=(("authorization", scheme),))
            )
            assert (status, text) == (
                "UNAUTHENTICATED",
                "the metadata 'authorization' must be 'Bearer <token>'",
            )
    for unknown in (secrets.generate_token(), "malformed"):
        with raw_client(server.port, unknown) as call:
            assert failure(lambda call=call: call("Length")) == UNKNOWN_TOKEN


def test_call_without_token_sends_no_message(server):
    """Its bytes stay with the client: a server that received them could be filled by anybody."""
    with raw_client(server.port) as call:
        assert failure(lambda: call("Length", b"x" * 15_000_000)) == NEEDS_TOKEN
    assert not server.shares.body_bytes._used


@pytest.mark.parametrize(
    "name", [name for name in vars(errors) if name[0].isupper() and name != "ClassVar"]
)
def test_error_has_status_code_and_text(call, name):
    kind = getattr(errors, name)
    if not issubclass(kind, errors.ServiceError) or name in {"ServiceError", "CursorConflict"}:
        return
    error = make_error(kind)
    expected = (status_of(error).name, error.detail, kind.code)
    assert expected[0] not in {"OK", "UNKNOWN", "INTERNAL"}
    assert failure(lambda: call("Fail", name.encode())) == expected


def test_unexpected_error_has_id_and_no_details(server, call):
    status, text, code = failure(lambda: call("Fail", b"private"))
    assert (status, code) == ("INTERNAL", "internal")
    assert text.endswith("under error id id-1")
    assert "private" not in text
    assert [str(error) for error in server.failures] == ["'private'"]


def test_error_text_is_cut_to_what_trailers_hold(settings, database, owner_token):
    async def fail(_call):
        raise errors.Invalid("\N{GRINNING FACE}" * 20_000)

    with (
        call_server(settings, database, Fail=fail) as server,
        raw_client(server.port, owner_token) as call,
    ):
        status, text, _ = failure(lambda: call("Fail"))
        assert (status, len(text)) == ("INVALID_ARGUMENT", GRPC_DETAIL_CHARS_MAX)


def test_failed_call_is_one_log_line(call, caplog):
    failure(lambda: call("Fail", b"Invalid"))
    failure(lambda: call("Fail", b"NotFound"))
    lines = [record.getMessage() for record in caplog.records if "Calls/" in record.getMessage()]
    assert lines == [
        "Calls/Fail: INVALID_ARGUMENT: the detail",
        "Calls/Fail: NOT_FOUND: the detail",
    ]


def test_message_over_limit_is_refused(server, call):
    limit = limits.GRPC_MESSAGE_BYTES_MAX
    assert call("Length", b"x" * limit) == b"%d" % limit
    status, text, _ = failure(lambda: call("Length", b"x" * (limit + 1)))
    assert status == "RESOURCE_EXHAUSTED"
    assert str(limit) in text
    assert call("Length", b"x") == b"1"
    assert not server.shares.body_bytes._used


def test_call_without_message_is_invalid(call, owner_token):
    stream = call.channel.stream_unary(f"/{SERVICE}/Length")
    metadata = (("authorization", f"Bearer {owner_token}"),)
    status, text, _ = failure(lambda: stream(iter(()), metadata=metadata, timeout=20))
    assert status == "INVALID_ARGUMENT"
    assert "no message" in text
    assert call("Length", b"x") == b"1"


def test_slow_client_holds_no_turn(server, call, owner_token, monkeypatch):
    """Calls whose message never comes are ended, and others are answered meanwhile."""
    silent = threading.Event()

    def nothing():
        silent.wait(3 * SECONDS_MAX)
        yield b""

    stream = call.channel.stream_unary(f"/{SERVICE}/Length")
    options = {"metadata": (("authorization", f"Bearer {owner_token}"),), "timeout": SECONDS_MAX}
    stalled = [stream.future(nothing(), **options) for _ in range(3)]
    wait_until(lambda: server.shares.body_bytes._used == 3 * limits.GRPC_MESSAGE_BYTES_MAX)
    assert call("Length", b"x") == b"1"
    assert not any(each.done() for each in stalled)
    for each in stalled:
        each.cancel()

    monkeypatch.setattr("tbservice.api.grpc.calls.GRPC_MESSAGE_SECONDS_MAX", 0.1)
    expected = "DEADLINE_EXCEEDED", "the message did not arrive within 0.1 seconds", "too_slow"
    assert failure(stream.future(nothing(), **options).result) == expected
    silent.set()
    wait_until(lambda: not server.shares.body_bytes._used)
    assert not server.shares.turns._used


def test_workspace_has_its_share_of_turns(settings, database, owner_token):
    running, most, lock, free = [0], [0], threading.Lock(), threading.Event()

    def work():
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        free.wait(SECONDS_MAX)
        with lock:
            running[0] -= 1

    async def answer(call):
        await call.in_thread(work)
        return b"done"

    with (
        call_server(settings, database, Work=answer) as server,
        raw_client(server.port, owner_token) as call,
    ):
        calls = [call("Work", start=True) for _ in range(20)]
        wait_until(lambda: running[0] == CALLER_REQUESTS_ITEMS_MAX)
        free.set()
        assert [each.result() for each in calls] == [b"done"] * 20
    assert most[0] == CALLER_REQUESTS_ITEMS_MAX


def test_queue_of_caller_is_bounded(settings, database, owner_token, monkeypatch):
    monkeypatch.setattr(limits, "QUEUE_WAIT_SECONDS_MAX", 0.5)
    free = threading.Event()

    async def answer(call):
        await call.in_thread(free.wait, SECONDS_MAX)
        return b"done"

    with (
        call_server(settings, database, Work=answer) as server,
        raw_client(server.port, owner_token) as call,
    ):
        first = [call("Work", start=True) for _ in range(2)]
        wait_until(lambda: server.shares.turns._used == 2)
        status, _, code = failure(lambda: call("Work"))
        assert (status, code) == ("RESOURCE_EXHAUSTED", "too_many_requests")
        free.set()
        assert [each.result() for each in first] == [b"done"] * 2


@pytest.mark.parametrize("way", ["cancel", "deadline"])
def test_cancelled_call_keeps_turn_until_thread_ends(settings, database, owner_token, way):
    free, ended = threading.Event(), threading.Event()

    def work():
        free.wait(SECONDS_MAX)
        ended.set()

    async def answer(call):
        await call.in_thread(work)
        return b"done"

    with (
        call_server(settings, database, Work=answer, Length=length) as server,
        raw_client(server.port, owner_token) as call,
    ):
        assert call("Length", b"x") == b"1"  # connected: the deadline is long from here
        running = call("Work", start=True, timeout=2 if way == "deadline" else SECONDS_MAX)
        wait_until(lambda: server.shares.turns._used)
        if way == "cancel":
            running.cancel()
        else:
            assert failure(running.result)[0] == "DEADLINE_EXCEEDED"
        assert call("Length", b"x") == b"1"  # over the same connection: the end has arrived before
        assert server.shares.turns._used == 1
        free.set()
        assert ended.wait(SECONDS_MAX)
        wait_until(lambda: not server.shares.turns._used and not server.shares.body_bytes._used)


def test_call_without_turn_lets_others_work(settings, database, owner_token):
    is_answered = asyncio.Event()

    async def wait(call):
        async with call.without_turn():
            await is_answered.wait()
        return b"waited"

    with (
        call_server(settings, database, Wait=wait, Length=length) as server,
        raw_client(server.port, owner_token) as call,
    ):
        waiting = [call("Wait", start=True) for _ in range(10)]
        assert call("Length", b"x") == b"1"
        server.loop.call_soon_threadsafe(is_answered.set)
        assert [each.result() for each in waiting] == [b"waited"] * 10


def test_reply_that_is_not_read_counts_as_unread(settings, database, owner_token):
    async def answer(_call):
        return b"x" * 8_000_000

    with (
        call_server(settings, database, Large=answer) as server,
        raw_client(server.port, owner_token) as call,
    ):
        assert len(call("Large")) == 8_000_000
        wait_until(lambda: not server.shares.unread_bytes._used)


def test_port_speaks_no_http1(server):
    with pytest.raises(httpx2.TransportError):
        fetch(f"http://{LOOPBACK}:{server.port}/healthz")


def test_unknown_method_is_unimplemented(call):
    assert failure(lambda: call("Nothing"))[0] == "UNIMPLEMENTED"


def test_connections_of_address_are_bounded(settings, database, owner_token, monkeypatch):
    monkeypatch.setattr("tbservice.api.grpc.listener.GRPC_ADDRESS_CONNECTIONS_ITEMS_MAX", 2)
    with (
        call_server(settings, database, Length=length) as server,
        raw_client(server.port, owner_token) as call,
        ExitStack() as many,
    ):
        assert call("Length", b"x") == b"1"
        address = LOOPBACK, server.port
        other = "127.0.0.2", 0
        held = [
            many.enter_context(socket.create_connection(address, SECONDS_MAX, other))
            for _ in range(5)
        ]
        wait_until(lambda: sum(map(has_ended, held)) == 3)
        assert call("Length", b"xx") == b"2"  # over the connection of before


def has_ended(connection):
    """Return whether the server has closed the connection; discard what it sent."""
    connection.setblocking(False)
    try:
        while connection.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        pass
    return True


def test_idle_connection_is_closed_and_client_opens_another(
    settings, database, owner_token, monkeypatch
):
    monkeypatch.setattr("tbservice.api.grpc.listener.GRPC_IDLE_CONNECTION_SECONDS_MAX", 0.5)
    with (
        call_server(settings, database, Length=length) as server,
        raw_client(server.port, owner_token) as call,
    ):
        states = []
        call.channel.subscribe(states.append)
        assert call("Length", b"x") == b"1"
        wait_until(lambda: grpc.ChannelConnectivity.READY in states)
        wait_until(lambda: states[-1] is grpc.ChannelConnectivity.IDLE)
        assert call("Length", b"xx") == b"2"


def test_stop_ends_calls_in_progress(settings, database, owner_token):
    has_begun = threading.Event()

    async def wait(call):
        has_begun.set()
        async with call.without_turn():
            await asyncio.sleep(60)
        return b""

    with ExitStack() as clients:
        with call_server(settings, database, Wait=wait) as server:
            call = clients.enter_context(raw_client(server.port, owner_token))
            running = call("Wait", start=True)
            assert has_begun.wait(20)
        assert failure(running.result)[0] in {"CANCELLED", "UNAVAILABLE"}
