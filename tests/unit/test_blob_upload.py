"""Uploading a blob: the server is asked first, parts are sent from its offset, with the bytes that
were hashed.
"""

import hashlib
import json

import pytest

from support.faulty_server import Reply, faulty_server, refusal
from tbupload.errors import Conflict, Refused, Unreachable
from tbupload.events.points import FileBlob
from tbupload.http import blob_upload
from tbupload.http.client import Client
from tbupload.http.retry import RetryPolicy
from tbupload.http.transport import Transport

CONTENT = bytes(range(256)) * 10
PATH = f"/api/v1/experiments/abc/blobs/{hashlib.sha256(CONTENT).hexdigest()}"
KEPT = Reply(status=204, body=b"")


@pytest.fixture
def server():
    with faulty_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(blob_upload, "CHECK_FIRST_BYTES_MIN", 1000)


@pytest.fixture
def retry():
    return RetryPolicy(5.0)


@pytest.fixture
def put(server, retry):
    client = Client(Transport(server.url, "token", None, retry, lambda _: None))
    return lambda blob=CONTENT: client.upload_blob("abc", hashlib.sha256(CONTENT).digest(), blob)


@pytest.fixture
def file_blob(tmp_path):
    path = tmp_path / "tfevents"
    path.write_bytes(b"before" + CONTENT + b"after")
    return FileBlob(path, len(b"before"), len(CONTENT), hashlib.sha256(CONTENT).digest())


def state(received, *, stored=False, piece=1000):
    content = {"is_stored": stored, "received_bytes": received, "piece_bytes": piece}
    return Reply(body=json.dumps(content).encode())


def sent(server):
    return [
        (request.method, request.path.removeprefix(PATH), request.body)
        for request in server.requests
    ]


def test_small_blob_is_sent_without_asking(server, put):
    server.replies = [KEPT]
    put(CONTENT[:999])
    assert sent(server) == [("PUT", "", CONTENT[:999])]


def test_blob_that_is_there_is_not_sent(server, put, file_blob):
    server.replies = [state(2560, stored=True)]
    put()
    put(file_blob)
    assert sent(server) == [("GET", "?size=2560", b"")] * 2


def test_blob_no_longer_than_piece_is_sent_whole(server, put, file_blob):
    for blob in (CONTENT, file_blob):
        server.replies = [state(0, piece=2560), KEPT]
        server.requests.clear()
        put(blob)
        assert sent(server) == [("GET", "?size=2560", b""), ("PUT", "", CONTENT)]


@pytest.mark.parametrize("received", [0, 1000, 2000, 2560])
def test_large_blob_resumes_at_part_that_server_needs(server, put, file_blob, received):
    offsets = [offset for offset in (0, 1000, 2000) if offset >= min(received, 2000)]
    server.replies = [
        state(received),
        *[state(offset + 1000) for offset in offsets[:-1]],
        state(2560, stored=True),
    ]
    put(file_blob)
    pieces = [
        ("PUT", f"?offset={offset}&size=2560", CONTENT[offset : offset + 1000])
        for offset in offsets
    ]
    assert sent(server)[1:] == pieces


def test_what_server_has_lost_is_sent_again_but_not_for_ever(server, put, file_blob):
    server.replies = [state(1000), state(0), state(1000), state(2000), state(2560, stored=True)]
    put(file_blob)
    assert [path for _, path, _ in sent(server)][1:3] == [
        "?offset=1000&size=2560",
        "?offset=0&size=2560",
    ]
    server.replies = [state(0)]
    with pytest.raises(Unreachable, match="losing"):
        put(file_blob)


@pytest.mark.parametrize("change", ["removed", "truncated", "other bytes"])
@pytest.mark.parametrize("piece", [1000, 5000])
def test_file_that_changed_in_meantime_is_to_be_read_again(server, put, file_blob, change, piece):
    server.replies = [state(0, piece=piece), refusal(422, "invalid")]
    if change == "removed":
        file_blob.path.unlink()
    elif change == "truncated":
        file_blob.path.write_bytes(b"before" + CONTENT[:900])
    with pytest.raises(Conflict, match="replaced or removed") as caught:
        put(file_blob)
    assert (caught.value.code, caught.value.segment, caught.value.offset) == (
        "blob_missing",
        None,
        None,
    )


def test_blob_in_memory_that_is_refused_is_refused(server, put):
    server.replies = [refusal(422, "invalid")]
    with pytest.raises(Refused) as caught:
        put(CONTENT[:10])
    assert not isinstance(caught.value, Conflict)


def test_upload_that_was_abandoned_sends_no_further_pieces(server, put, file_blob, retry):
    server.replies = [state(0), state(1000)]
    retry.stop_token.cancel()
    with pytest.raises(Unreachable, match="ended"):
        put(file_blob)
    assert [method for method, _, _ in sent(server)] == ["GET"]
