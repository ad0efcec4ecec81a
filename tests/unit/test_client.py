"""The client against a misbehaving server on loopback: what it retries, for how long, and what it
reports.
"""

import gzip
import http.client
import json
import threading
import tracemalloc

import pytest

from support.faulty_server import EXPERIMENT, Reply, faulty_server, refusal
from tbupload.errors import Conflict, Refused, Unreachable
from tbupload.http.account import AccountClient
from tbupload.http.client import Client
from tbupload.http.connection_pool import find_proxy
from tbupload.http.request_slots import SUCCESSES_PER_SLOT, RequestSlots
from tbupload.http.response_body import retry_after_seconds
from tbupload.http.retry import RetryPolicy
from tbupload.http.transport import Transport
from tbwire import wire_pb2

LATER = refusal(503, "unavailable", headers={"Retry-After": "0"})
RESULT = Reply(body=wire_pb2.WriteResult(scalars=7).SerializeToString())


@pytest.fixture
def server():
    with faulty_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr("tbupload.http.retry.FIRST_RETRY_DELAY_SECONDS", 0.001)


@pytest.fixture
def said():
    return []


@pytest.fixture
def connect(server, said):
    def connect(give_up_seconds=5.0, url=None, retry=None, *, token="tbh_secret", kind=Client):
        retry = retry or RetryPolicy(give_up_seconds)
        return kind(Transport(url or server.url, token, None, retry, said.append))

    return connect


def test_requests_carry_token_and_answers_are_json(server, connect):
    assert connect().get_experiment("abc") == EXPERIMENT
    assert server.requests[0].headers["Authorization"] == "Bearer tbh_secret"
    assert server.requests[0].path == "/api/v1/experiments/abc"


def test_body_is_sent_in_timed_small_parts(server, connect, monkeypatch):
    sizes = []
    send = http.client.HTTPConnection.send
    monkeypatch.setattr(
        http.client.HTTPConnection,
        "send",
        lambda self, data: sizes.append(len(data)) or send(self, data),
    )
    server.replies = [LATER, RESULT]
    body = bytes(range(256)) * 8_000
    connect().write_batch("abc", body)
    assert [request.body for request in server.requests] == [body] * 2
    assert server.requests[1].headers["Content-Length"] == str(len(body))
    assert max(sizes) <= 1 << 16


def test_without_token_none_is_sent(server, connect):
    connect(token=None).get_experiment("abc")
    assert "Authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    "fault",
    [
        LATER,
        refusal(408),
        refusal(500),
        refusal(502),
        refusal(504),
        Reply(fault="drop"),
        Reply(body=RESULT.body * 50, fault="half"),
    ],
    ids=["503", "408", "500", "502", "504", "drop", "half"],
)
def test_batch_that_met_fault_is_sent_again_as_it_was(server, connect, said, fault):
    server.replies = [fault, fault, RESULT]
    result, is_repeat = connect().write_batch("abc", b"the batch")
    assert (result.scalars, is_repeat) == (7, True)
    assert [request.body for request in server.requests] == [b"the batch"] * 3
    assert "trying again" in said[0]
    assert "answers again" in said[-1]


def test_experiment_is_created_once_per_key(server, connect):
    server.replies = [Reply(fault="drop"), LATER, Reply(201)]
    connect().create_experiment(name="", description="", visibility="private")
    keys = {request.headers["Idempotency-Key"] for request in server.requests}
    assert len(server.requests) == 3
    assert len(keys) == 1


def test_two_creations_have_two_keys(server, connect):
    client = connect()
    for _ in range(2):
        client.create_experiment(name="", description="", visibility="private")
    assert len({request.headers["Idempotency-Key"] for request in server.requests}) == 2


def test_token_is_not_made_twice_when_answer_is_lost(server, connect):
    server.replies = [Reply(fault="drop")]
    with pytest.raises(Unreachable, match="not known"):
        connect(kind=AccountClient).create_token(None, {"scopes": ["read"]})
    assert len(server.requests) == 1


TOO_MANY = refusal(429, "too_many_requests", headers={"Retry-After": "0"})


def test_throttled_batch_is_sent_again_and_it_is_said_once(server, connect, said):
    client = connect()
    for _ in range(2):
        server.replies = [TOO_MANY, refusal(429), RESULT]
        result, _ = client.write_batch("abc", b"the batch")
        assert result.scalars == 7
    assert [request.body for request in server.requests] == [b"the batch"] * 6
    (sentence,) = said
    assert "the server asks to wait (HTTP 429: the detail of too_many_requests)" in sentence


def test_throttled_token_is_made_once(server, connect):
    server.replies = [TOO_MANY, Reply(201, b'{"token": "tbh_x"}')]
    created = connect(kind=AccountClient).create_token(None, {"scopes": ["read"]})
    assert created == {"token": "tbh_x"}
    assert len(server.requests) == 2


def test_throttled_stream_is_asked_for_again(server):
    server.replies = [TOO_MANY, Reply(body=b"content")]
    transport = Transport(server.url, None, None, RetryPolicy(5.0), lambda _: None)
    with transport.stream("GET", "/x") as pieces:
        assert b"".join(pieces) == b"content"


def test_throttled_for_too_long_is_unreachable(server, connect):
    server.replies = [refusal(429, headers={"Retry-After": "30"})]
    with pytest.raises(Unreachable, match=r"HTTP 429.*it asks to wait 30 s"):
        connect(give_up_seconds=1.0).get_experiment("abc")


def test_request_slots_halve_and_come_back():
    slots = RequestSlots(4)
    slots.halve()
    with slots.acquire(), slots.acquire():
        third = threading.Thread(target=lambda: take_and_leave(slots), daemon=True)
        third.start()
        third.join(0.1)
        assert third.is_alive()
    third.join(60)
    assert not third.is_alive()
    for _ in range(2 * SUCCESSES_PER_SLOT):
        slots.succeed()
    with slots.acquire(), slots.acquire(), slots.acquire(), slots.acquire():
        pass


def take_and_leave(slots):
    with slots.acquire():
        pass


@pytest.mark.parametrize(
    "value", ["²", "1e9", "-5", "Wed, 99 Nov", "Mon, 01 Jan 0001 00:00:00 GMT", "9" * 400, ""]
)
def test_retry_after_that_says_nothing_is_ignored(server, connect, value):
    server.replies = [
        refusal(503, headers={"Retry-After": value.encode().decode("latin-1")}),
        Reply(),
    ]
    assert connect().get_experiment("abc") == EXPERIMENT


def test_retry_after_is_bounded():
    assert retry_after_seconds("999999999") == 300.0
    assert retry_after_seconds("Fri, 31 Dec 9999 23:59:59 GMT") == 300.0
    assert retry_after_seconds("Thu, 01 Jan 1970 00:00:00 GMT") == 0.0


def test_error_answer_shows_id_in_log(server, connect):
    server.replies = [refusal(500, "internal", id="req-7f3a")]
    with pytest.raises(Unreachable, match=r"HTTP 500: the detail of internal \(id req-7f3a\)"):
        connect(give_up_seconds=0.001).get_experiment("abc")


def test_compressed_answer_nobody_asked_for_is_refused(server, connect):
    bomb = gzip.compress(bytes(50_000_000))
    for status in (200, 404):
        server.replies = [Reply(status, bomb, {"Content-Encoding": "gzip"})]
        tracemalloc.start()
        with pytest.raises(Refused):
            connect().get_experiment("abc")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
        tracemalloc.stop()


def test_answer_over_limit_is_refused(server, connect, monkeypatch):
    monkeypatch.setattr("tbupload.http.transport.RESPONSE_BYTES_MAX", 1000)
    server.replies = [Reply(body=b" " * 1001)]
    with pytest.raises(Refused, match="over the limit of 1,000 bytes"):
        connect().get_experiment("abc")
    monkeypatch.setattr("tbupload.http.response_body.RESPONSE_SECONDS_MAX", -1.0)
    server.replies = [Reply()]
    with pytest.raises(Refused, match="over the limit of -1 s"):
        connect().get_experiment("abc")


def test_listing_that_repeats_page_is_refused(server, connect):
    pages = [Reply(body=json.dumps({"experiments": [], "next": name}).encode()) for name in "abca"]
    server.replies = pages
    with pytest.raises(Refused, match="the same page comes again"):
        list(connect().list_experiments())
    assert len(server.requests) == 4


def test_listing_without_end_is_refused(server, connect, monkeypatch):
    monkeypatch.setattr("tbupload.http.json_calls.LISTING_PAGES_MAX", 3)
    server.replies = [
        Reply(body=json.dumps({"experiments": [], "next": f"{n}"}).encode()) for n in range(9)
    ]
    with pytest.raises(Refused, match="more than 3 pages"):
        list(connect().list_experiments())


def test_retry_wait_beyond_timeout_is_not_begun(server, connect):
    server.replies = [refusal(503, headers={"Retry-After": "20"})]  # a second one would succeed
    with pytest.raises(Unreachable, match="the detail of"):
        connect(give_up_seconds=5.0).get_experiment("abc")


def test_server_that_is_down_is_tried_until_retry_timeout(connect, server, said):
    server.server.server_close()
    with pytest.raises(Unreachable, match="cannot connect"):
        connect(give_up_seconds=1.0).get_experiment("abc")
    assert len(said) == 1


def test_absent_server_is_not_retried_after_stop(connect, server, monkeypatch):
    monkeypatch.setattr("tbupload.http.retry.UNREACHABLE_GRACE_SECONDS", 0.5)
    server.replies = [LATER]
    retry = RetryPolicy(float("inf"))
    threading.Timer(0.3, retry.stop_token.stop).start()
    with pytest.raises(Unreachable):
        connect(retry=retry).get_experiment("abc")


def test_abandoned_upload_waits_no_more(connect, server):
    server.replies = [refusal(503, headers={"Retry-After": "60"})]  # a second one would succeed
    retry = RetryPolicy(float("inf"))
    threading.Timer(0.2, retry.stop_token.cancel).start()
    with pytest.raises(Unreachable):
        connect(retry=retry).get_experiment("abc")


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "tbupload login"),
        (403, "may not do this"),
        (404, "detail of"),
        (413, "does not take"),
        (422, "detail of"),
    ],
)
def test_final_refusal_is_not_repeated_and_says_what_to_do(server, connect, status, advice):
    server.replies = [refusal(status)]
    with pytest.raises(Refused, match=advice) as caught:
        connect().write_batch("abc", b"x")
    assert caught.value.status == status
    assert len(server.requests) == 1


def test_conflict_carries_where_to_go_back_to(server, connect):
    server.replies = [refusal(409, "cursor_conflict", segment=2, offset=4096, checksum=99)]
    with pytest.raises(Conflict) as caught:
        connect().write_batch("abc", b"x")
    conflict = caught.value
    assert (conflict.code, conflict.segment, conflict.offset, conflict.checksum) == (
        "cursor_conflict",
        2,
        4096,
        99,
    )


def test_redirect_is_not_followed_with_token(server, connect):
    server.replies = [Reply(302, headers={"Location": "https://elsewhere.example/"})]
    with pytest.raises(Refused, match=r"elsewhere\.example"):
        connect().get_experiment("abc")
    assert len(server.requests) == 1


def test_answer_of_something_else_is_recognized(server, connect):
    server.replies = [Reply(body=b"<html>a router's page</html>")]
    with pytest.raises(Refused, match="not one of a tbhub server"):
        connect().get_experiment("abc")
    with pytest.raises(Refused, match="not one of a tbhub server"):
        connect().write_batch("abc", b"x")


def test_lists_are_read_to_their_last_page(server, connect):
    pages = [
        {"experiments": [{**EXPERIMENT, "experiment_id": "a"}], "next": "the+cursor"},
        {"experiments": [{**EXPERIMENT, "experiment_id": "b"}], "next": None},
    ]
    server.replies = [Reply(body=json.dumps(page).encode()) for page in pages]
    assert [each["experiment_id"] for each in connect().list_experiments("a b")] == ["a", "b"]
    assert "q=a+b" in server.requests[0].path
    assert "after=the%2Bcursor" in server.requests[1].path


def test_token_listing_follows_pages_and_needs_none(server, connect):
    known = {
        "prefix": "tbh_",
        "label": "",
        "scopes": ["read"],
        "expires_at": None,
        "revoked_at": None,
    }
    pages = [
        {"tokens": [{"id": "a", **known}], "next": "behind"},
        {"tokens": [{"id": "b", **known}]},
    ]
    server.replies = [Reply(body=json.dumps(page).encode()) for page in pages]
    assert [token["id"] for token in connect().list_tokens("abc")] == ["a", "b"]
    assert [request.path.partition("?")[2] for request in server.requests] == ["", "after=behind"]


def test_streams_come_with_their_cursors_and_limits(server, connect):
    limits = {
        "batch_bytes_max": 1,
        "blob_inline_bytes_max": 2,
        "blob_bytes_max": 3,
        "tensor_bytes_max": 4,
    }
    limits |= {"name_chars_max": 5, "metadata_bytes_max": 6, "a_limit_of_a_newer_server": 7}
    stream = {
        "run": "r",
        "file_name": "f",
        "first_record_digest": "00ff",
        "generation": 2,
        "filters_digest": "aa",
    }
    stream |= {"offset": 10, "checksum": 4294967295, "skipped": {"bad": 3}}
    page = {
        "experiment_id": "abc",
        "url": "http://x/",
        "limits": limits,
        "streams": [stream],
        "next": None,
    }
    server.replies = [Reply(body=json.dumps(page).encode())]
    streams = connect().get_streams("abc")
    (cursor,) = streams.cursors
    assert streams.limits.metadata_bytes_max == 6
    assert streams.limits.tensor_rank_max == 64  # of a server that does not say
    assert (cursor.stream.first_record_digest, cursor.offset, cursor.checksum) == (
        b"\x00\xff",
        10,
        4294967295,
    )
    assert [(skipped.reason, skipped.count) for skipped in cursor.skipped] == [("bad", 3)]


def test_batches_are_compressed_only_for_remote_server(server, connect, monkeypatch):
    server.replies = [RESULT]
    body = b"x" * 5000
    connect().write_batch("abc", body)
    assert server.requests[0].body == body
    monkeypatch.setattr("tbupload.http.client.is_loopback", lambda _server: False)
    connect().write_batch("abc", body)
    assert server.requests[1].headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(server.requests[1].body) == body


def test_connections_are_used_again(server, connect):
    handled = []
    process_request = server.server.process_request
    server.server.process_request = lambda *arguments: (
        handled.append(1),
        process_request(*arguments),
    )
    client = connect()
    for _ in range(5):
        client.get_experiment("abc")
    assert len(server.requests) == 5
    assert len(handled) == 1


def test_proxies_are_used_except_for_loopback(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert find_proxy("https://tbhub.example") is None
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example:3128")
    monkeypatch.setenv("HTTP_PROXY", "http://other.example:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example")
    assert find_proxy("https://tbhub.example") == "http://proxy.example:3128"
    assert find_proxy("http://tbhub.example") == "http://other.example:3128"
    assert find_proxy("https://inside.example:8443") is None
    assert find_proxy("http://127.0.0.1:6060") is None


def test_request_goes_through_proxy_with_its_credentials(server, connect, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.url.replace("http://", "http://user:pass%20word@"))
    monkeypatch.delenv("NO_PROXY", raising=False)
    connect(url="http://tbhub.example").get_experiment("abc")
    assert server.requests[0].path == "http://tbhub.example/api/v1/experiments/abc"
    assert server.requests[0].headers["Proxy-Authorization"] == "Basic dXNlcjpwYXNzIHdvcmQ="
