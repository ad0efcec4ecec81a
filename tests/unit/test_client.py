"""The client against a server on loopback that misbehaves: what is repeated, for how long, and what is said."""

import gzip
import http.client
import json
import threading
import time

import pytest

from support.faulty_server import Reply, faulty_server, refusal
from tbupload.errors import Conflict, Refused, Unreachable, UsageError
from tbupload.sending.client import Client
from tbupload.sending.patience import Patience
from tbupload.sending.transport import Transport, _proxy
from tbwire import wire_pb2

LATER = refusal(503, "unavailable", headers={"Retry-After": "0"})
RESULT = Reply(body=wire_pb2.WriteResult(scalars=7).SerializeToString())


@pytest.fixture
def server():
    with faulty_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr("tbupload.sending.patience.FIRST_DELAY_SECONDS", 0.001)


@pytest.fixture
def said():
    return []


@pytest.fixture
def connect(server, said):
    def connect(give_up_seconds=5.0, url=None, patience=None, *, token="tbh_secret"):
        patience = patience or Patience(give_up_seconds)
        return Client(Transport(url or server.url, token, None, patience, said.append))

    return connect


def test_requests_carry_the_token_and_answers_are_json(server, connect):
    server.replies = [Reply(body=b'{"name": "x"}')]
    assert connect().get_experiment("abc") == {"name": "x"}
    assert server.requests[0].headers["Authorization"] == "Bearer tbh_secret"
    assert server.requests[0].path == "/api/v1/experiments/abc"


def test_a_body_is_sent_in_small_pieces_as_on_a_slow_line_each_has_a_time_of_its_own(server, connect, monkeypatch):
    sizes = []
    send = http.client.HTTPConnection.send
    monkeypatch.setattr(
        http.client.HTTPConnection, "send", lambda self, data: sizes.append(len(data)) or send(self, data)
    )
    server.replies = [LATER, RESULT]
    body = bytes(range(256)) * 8_000
    connect().write_batch("abc", body)
    assert [request.body for request in server.requests] == [body] * 2
    assert server.requests[1].headers["Content-Length"] == str(len(body))
    assert max(sizes) <= 1 << 16


def test_without_a_token_none_is_sent(server, connect):
    connect(token=None).get_experiment("abc")
    assert "Authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    "fault",
    [
        LATER,
        refusal(429, headers={"Retry-After": "0"}),
        refusal(500),
        refusal(502),
        refusal(504),
        Reply(fault="drop"),
        Reply(body=RESULT.body * 50, fault="half"),
    ],
    ids=["503", "429", "500", "502", "504", "drop", "half"],
)
def test_a_batch_that_met_a_fault_is_sent_again_as_it_was(server, connect, said, fault):
    server.replies = [fault, fault, RESULT]
    result, is_repeat = connect().write_batch("abc", b"the batch")
    assert (result.scalars, is_repeat) == (7, True)
    assert [request.body for request in server.requests] == [b"the batch"] * 3
    assert "trying again" in said[0]
    assert "answers again" in said[-1]


def test_an_experiment_is_created_under_one_key_however_often_it_is_asked(server, connect):
    server.replies = [Reply(fault="drop"), LATER, Reply(201, b'{"experiment_id": "abc"}')]
    connect().create_experiment(name="", description="", visibility="private")
    keys = {request.headers["Idempotency-Key"] for request in server.requests}
    assert len(server.requests) == 3
    assert len(keys) == 1


def test_two_creations_have_two_keys(server, connect):
    client = connect()
    for _ in range(2):
        client.create_experiment(name="", description="", visibility="private")
    assert len({request.headers["Idempotency-Key"] for request in server.requests}) == 2


def test_a_token_is_not_made_twice_when_the_answer_is_lost(server, connect):
    server.replies = [Reply(fault="drop")]
    with pytest.raises(Unreachable, match="not known"):
        connect().create_token("abc", {"scopes": ["read"]})
    assert len(server.requests) == 1


def test_retry_after_is_waited_for(server, connect):
    server.replies = [refusal(429, headers={"Retry-After": "1"}), Reply()]
    start = time.monotonic()
    connect().get_experiment("abc")
    assert time.monotonic() - start >= 1.0


def test_a_wait_longer_than_patience_is_not_begun(server, connect):
    server.replies = [refusal(503, headers={"Retry-After": "3600"})]
    start = time.monotonic()
    with pytest.raises(Unreachable, match="the detail of"):
        connect(give_up_seconds=5.0).get_experiment("abc")
    assert time.monotonic() - start < 3.0


def test_a_server_that_is_down_is_tried_until_patience_ends(connect, server, said):
    server.server.server_close()
    with pytest.raises(Unreachable, match="cannot connect"):
        connect(give_up_seconds=1.0).get_experiment("abc")
    assert len(said) == 1


def test_after_an_orderly_stop_a_server_that_is_away_is_not_tried_for_ever(connect, server, monkeypatch):
    monkeypatch.setattr("tbupload.sending.patience.STOP_GRACE_SECONDS", 0.5)
    server.replies = [LATER]
    patience = Patience(float("inf"))
    threading.Timer(0.3, patience.stop).start()
    with pytest.raises(Unreachable):
        connect(patience=patience).get_experiment("abc")


def test_an_abandoned_upload_waits_no_more(connect, server):
    server.replies = [refusal(503, headers={"Retry-After": "60"})]
    patience = Patience(float("inf"))
    threading.Timer(0.2, patience.abandon).start()
    start = time.monotonic()
    with pytest.raises(Unreachable):
        connect(patience=patience).get_experiment("abc")
    assert time.monotonic() - start < 5.0


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "tbupload login"),
        (403, "may not do this"),
        (404, "no such experiment"),
        (413, "does not take"),
        (422, "detail of"),
    ],
)
def test_a_final_refusal_is_not_repeated_and_says_what_to_do(server, connect, status, advice):
    server.replies = [refusal(status)]
    with pytest.raises(Refused, match=advice) as caught:
        connect().write_batch("abc", b"x")
    assert caught.value.status == status
    assert len(server.requests) == 1


def test_a_conflict_carries_where_to_go_back_to(server, connect):
    server.replies = [refusal(409, "cursor_conflict", segment=2, offset=4096, checksum=99)]
    with pytest.raises(Conflict) as caught:
        connect().write_batch("abc", b"x")
    conflict = caught.value
    assert (conflict.code, conflict.segment, conflict.offset, conflict.checksum) == ("cursor_conflict", 2, 4096, 99)


def test_a_redirect_is_not_followed_with_the_token(server, connect):
    server.replies = [Reply(302, headers={"Location": "https://elsewhere.example/"})]
    with pytest.raises(Refused, match=r"elsewhere\.example"):
        connect().get_experiment("abc")
    assert len(server.requests) == 1


def test_an_answer_of_something_else_is_recognized(server, connect):
    server.replies = [Reply(body=b"<html>a router's page</html>")]
    with pytest.raises(Refused, match="not one of a tbhub server"):
        connect().get_experiment("abc")
    with pytest.raises(Refused, match="not one of a tbhub server"):
        connect().write_batch("abc", b"x")


def test_lists_are_read_to_their_last_page(server, connect):
    pages = [
        {"experiments": [{"experiment_id": "a"}], "next": "the+cursor"},
        {"experiments": [{"experiment_id": "b"}], "next": None},
    ]
    server.replies = [Reply(body=json.dumps(page).encode()) for page in pages]
    assert [each["experiment_id"] for each in connect().list_experiments("a b")] == ["a", "b"]
    assert "q=a+b" in server.requests[0].path
    assert "after=the%2Bcursor" in server.requests[1].path


def test_streams_come_with_their_cursors_and_the_limits(server, connect):
    limits = {"batch_bytes_max": 1, "blob_inline_bytes_max": 2, "blob_bytes_max": 3, "tensor_bytes_max": 4}
    limits |= {"name_chars_max": 5, "metadata_bytes_max": 6, "a_limit_of_a_newer_server": 7}
    stream = {"run": "r", "file_name": "f", "first_record_digest": "00ff", "generation": 2, "filters_digest": "aa"}
    stream |= {"offset": 10, "checksum": 4294967295, "skipped": {"bad": 3}}
    page = {"experiment_id": "abc", "url": "http://x/", "limits": limits, "streams": [stream], "next": None}
    server.replies = [Reply(body=json.dumps(page).encode())]
    streams = connect().get_streams("abc")
    (cursor,) = streams.cursors
    assert streams.limits.metadata_bytes_max == 6
    assert streams.limits.tensor_rank_max == 64  # of a server that does not say
    assert (cursor.stream.first_record_digest, cursor.offset, cursor.checksum) == (b"\x00\xff", 10, 4294967295)
    assert [(skipped.reason, skipped.count) for skipped in cursor.skipped] == [("bad", 3)]


def test_batches_are_compressed_on_their_way_to_another_machine_only(server, connect, monkeypatch):
    server.replies = [RESULT]
    body = b"x" * 5000
    connect().write_batch("abc", body)
    assert server.requests[0].body == body
    monkeypatch.setattr("tbupload.sending.client.is_loopback", lambda _server: False)
    connect().write_batch("abc", body)
    assert server.requests[1].headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(server.requests[1].body) == body


def test_connections_are_used_again(server, connect):
    handled = []
    process_request = server.server.process_request
    server.server.process_request = lambda *arguments: (handled.append(1), process_request(*arguments))
    client = connect()
    for _ in range(5):
        client.get_experiment("abc")
    assert len(server.requests) == 5
    assert len(handled) == 1


def test_proxies_come_from_the_environment_and_never_lead_to_this_machine(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert _proxy("https://tbhub.example") is None
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example:3128")
    monkeypatch.setenv("HTTP_PROXY", "http://other.example:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example")
    assert _proxy("https://tbhub.example") == "http://proxy.example:3128"
    assert _proxy("http://tbhub.example") == "http://other.example:3128"
    assert _proxy("https://inside.example:8443") is None
    assert _proxy("http://127.0.0.1:6060") is None


def test_a_request_goes_through_the_proxy_with_its_credentials(server, connect, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.url.replace("http://", "http://user:pass%20word@"))
    monkeypatch.delenv("NO_PROXY", raising=False)
    connect(url="http://tbhub.example").get_experiment("abc")
    assert server.requests[0].path == "http://tbhub.example/api/v1/experiments/abc"
    assert server.requests[0].headers["Proxy-Authorization"] == "Basic dXNlcjpwYXNzIHdvcmQ="


def test_a_certificate_file_that_is_missing_is_a_usage_error(tmp_path, said):
    with pytest.raises(UsageError, match="--cacert"):
        Transport("https://tbhub.example", None, tmp_path / "missing.pem", Patience(1.0), said.append)
