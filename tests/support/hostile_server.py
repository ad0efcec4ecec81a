"""A hostile server: it answers every route that the client requests, and spoils the answers of one
of them.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from support.faulty_server import EXPERIMENT, FaultyServer, Reply, Request, refusal, running
from tbwire import frames, read_pb2, wire_pb2
from tbwire import tensorboard_pb2 as pb

LIMITS = {
    "batch_bytes_max": 16 << 20,
    "blob_inline_bytes_max": 256 << 10,
    "blob_bytes_max": 1 << 30,
    "tensor_bytes_max": 4 << 20,
    "name_chars_max": 10_000,
    "metadata_bytes_max": 4 << 20,
    "packed_points_max": 8_192,
}
STREAM = {
    "run": "old",
    "file_name": "f",
    "first_record_digest": "00" * 32,
    "generation": 0,
    "filters_digest": "aa",
}
STREAM |= {"offset": 10, "checksum": 7, "skipped": {"a reason": 1}}
TOKEN = {
    "id": "t1",
    "scopes": ["read"],
    "label": "l",
    "prefix": "tbh_ab",
    "expires_at": None,
    "revoked_at": None,
}
LINK = {
    "id": "l1",
    "label": "l",
    "prefix": "tbh_ab",
    "created_at": "2026-01-01T00:00:00Z",
    **dict.fromkeys(("runs", "tags", "expires_at", "revoked_at", "last_used_at")),
    "anonymous": False,
    "frozen": True,
}
DIGEST = {"run": ".", "tag": "loss", "plugin": "scalars", "data_class": "scalar", "count": 1}
DIGEST |= {"sha256": "00" * 32, "metadata_sha256": "00" * 32}
RECORDS = {"records": base64.b64encode(bytes(24)).decode(), "next": None}
SERIES = {"plugin": "scalars", "count": 1, "last_value": 0.5}
DESCRIBED = {**SERIES, "data_class": "scalar", "max_step": 1, "max_wall_time": 1.5}
DESCRIBED["summary_metadata"] = {
    "plugin": "scalars",
    "display_name": "",
    "description": "d",
    "content": base64.b64encode(b"content").decode(),
}
WRITTEN = {**EXPERIMENT, "properties": {"a": "b"}, "origin": {"host": "h"}, "tags": ["x"]}
COLUMNS = {"hparamInfos": [{"name": "lr", "type": "DATA_TYPE_FLOAT64"}]}
METRIC = {"name": {"group": "eval", "tag": "loss"}, "value": "NaN", "trainingStep": 1}
SESSION = {"name": "a", "startTimeSecs": 5.0, "endTimeSecs": 0.0, "status": "STATUS_RUNNING"}
SESSION |= {"modelUri": "", "monitorUrl": "", "metricValues": [METRIC]}
GROUP = {"name": "g", "hparams": {"lr": 0.5}, "sessions": [SESSION]}
NEW = {"plugin": "scalars", "steps": [1], "wall_times": [1.5], "values": [0.5]}
PORTION = {"cursor": "c", "more": False, "removed": [], "points": {"a": {"loss": NEW}}}
BLOB = bytes(range(64))
TARGETED_MAX = 10

_STEPS, _TIMES = np.array([1], "<i8").tobytes(), np.array([1.5], "<f8").tobytes()


def _frames(kind: str) -> bytes:
    """Return the points of one series of this kind, as frames."""
    part = read_pb2.Part(is_last=True)
    data_class = {"scalars": 1, "tensors": 2, "blob_sequences": 3}[kind]
    metadata = pb.SummaryMetadata(plugin_data={"plugin_name": "scalars"}, data_class=data_class)
    part.series.run, part.series.tag, part.series.plugin, part.series.data_class = (
        "a",
        "loss",
        "scalars",
        data_class,
    )
    part.series.summary_metadata, part.series.total = metadata.SerializeToString(), 1
    columns = getattr(part, kind)
    columns.steps, columns.wall_times = _STEPS, _TIMES
    if kind == "scalars":
        columns.values64 = _TIMES
    elif kind == "tensors":
        columns.tensors.add(dtype=1, shape=[1], data=bytes(4))
    else:
        digest = hashlib.sha256(BLOB).digest()
        columns.sequences.add().blobs.add(
            key="k", sha256=digest, size=len(BLOB), content_type="image/png"
        )
    sent = [read_pb2.Frame(begin={"sampling": "all"}), read_pb2.Frame(part=part)]
    return b"".join(
        map(frames.encode_frame, [*sent, read_pb2.Frame(end={"series": 1, "points": 1})])
    )


def _data(request: Request, kind: str) -> Reply:
    accept = request.headers.get("Accept", "")
    query = json.loads(request.body)
    table = b"PAR1 table PAR1" if "parquet" in accept + query.get("format", "") else b"run,tag\n"
    if "lost" in query:
        return Reply(body=_with_lost(_table_frames(table) if "format" in query else _frames(kind)))
    return Reply(body=_frames(kind) if accept == frames.MEDIA_TYPE else table)


def _table(request: Request, _name: str) -> Reply:
    is_parquet = "parquet" in request.headers.get("Accept", "")
    return Reply(body=b"PAR1 table PAR1" if is_parquet else b"run,tag\n")


def _table_frames(table: bytes) -> bytes:
    sent = [read_pb2.Frame(begin={"sampling": "all"}), read_pb2.Frame(table=table)]
    return b"".join(
        map(frames.encode_frame, [*sent, read_pb2.Frame(end={"series": 1, "points": 1})])
    )


def _with_lost(content: bytes) -> bytes:
    """Return the frames with a lost point after the first."""
    first, *rest = frames.decode_frames([content])
    lost = read_pb2.LostPoint(
        run="a", tag="loss", step=2, detail="the object is missing\x1b]0;x\x07"
    )
    return b"".join(map(frames.encode_frame, [first, read_pb2.Frame(lost=lost), *rest]))


def _write(request: Request) -> Reply:
    result = wire_pb2.WriteResult(scalars=1)
    for segment in wire_pb2.WriteBatch.FromString(request.body).segments:
        result.cursors.add(stream=segment.stream, offset=segment.end, checksum=segment.end_checksum)
    return Reply(body=result.SerializeToString())


def _tail(_request: Request) -> Reply:
    end = {"code": "not_found", "detail": "the experiment is gone"}
    events = [("points", PORTION), ("points", PORTION), ("end", end)]
    lines = [f"event: {name}\ndata: {json.dumps(content)}\n\n" for name, content in events]
    return Reply(body="".join(lines).encode(), headers={"Content-Type": "text/event-stream"})


def _fixed(content: object) -> Callable[..., Reply]:
    return lambda *_: Reply(body=json.dumps(content).encode())


UPLOAD = {
    "upload_id": "0123456789abcdef",
    "status": "failed",
    "status_of": "training",
    "detail": "exit code 3",
    "started_at": "2026-01-31T12:00:00Z",
    "ended_at": None,
    "origin": {"host": "gpu7"},
    "packages": ["numpy==2.1"],
}
ROUTES = [
    ("POST", r"batches", _write),
    (
        "GET",
        r"streams",
        _fixed({**EXPERIMENT, "limits": LIMITS, "streams": [STREAM], "next": None}),
    ),
    (
        "GET",
        r"blobs/\w+",
        _fixed({"is_stored": False, "received_bytes": 0, "piece_bytes": 1 << 30}),
    ),
    ("PUT", r"blobs/\w+", lambda _: Reply(204, b"")),
    ("GET", r"runs", _fixed({"runs": [{"run": "a", "start_time": 1.5}]})),
    ("POST", r"hparams/experiment", _fixed(COLUMNS)),
    ("POST", r"hparams/session_groups", _fixed({"sessionGroups": [GROUP], "totalSize": 1})),
    ("GET", r"names", _fixed({"a": ["loss"]})),
    ("POST", r"digests", _fixed({"limits": LIMITS, "series": [DIGEST], "next": None})),
    ("POST", r"digests/records", _fixed(RECORDS)),
    ("POST", r"links", _fixed({**LINK, "token": "tbh_secret", "url": "http://x/"})),
    ("GET", r"links", _fixed({"links": [LINK]})),
    ("PATCH", r"links/\w+", _fixed(LINK)),
    ("DELETE", r"links/\w+", lambda _: Reply(204, b"")),
    ("POST", r"tokens", _fixed({**TOKEN, "token": "tbh_secret"})),
    ("GET", r"tokens", _fixed({"tokens": [TOKEN]})),
    ("DELETE", r"tokens/\w+", lambda _: Reply(204, b"")),
    ("GET", r"uploads", _fixed({"uploads": [UPLOAD], "next": None})),
    ("PUT", r"uploads/\w+", lambda _: Reply(204, b"")),
    ("PATCH", r"uploads/\w+", lambda _: Reply(204, b"")),
    (
        "GET",
        r"(scalars|tensors|blob_sequences)",
        _fixed({"series": {"a": {"loss": SERIES}}, "next": None}),
    ),
    (
        "POST",
        r"(scalars|tensors|blob_sequences)",
        _fixed({"series": {"a": {"loss": DESCRIBED}}, "next": None}),
    ),
    ("GET", r"tables/(\w+)", _table),
    ("POST", r"tables/(\w+)", _table),
    ("POST", r"(scalars|tensors|blob_sequences)/data", _data),
    ("POST", r"(scalars|tensors|blob_sequences)/tail", lambda request, _kind: _tail(request)),
    ("GET", r"", _fixed(WRITTEN)),
    ("PATCH", r"", _fixed(EXPERIMENT)),
    ("DELETE", r"", lambda _: Reply(204, b"")),
]


class HostileServer(FaultyServer):
    """Answers as the service does; `aim` replaces the answers to one (method, path).

    After TARGETED_MAX of these it answers 404: a tail does not end while there are points.
    """

    def __init__(self) -> None:
        super().__init__()
        self.server.handle_error = lambda *_: None  # a client that hangs up is what is wanted
        self.targeted = 0
        self.target: tuple[str, str] | None = None
        self.spoil: Callable[[Reply], Reply] = lambda reply: reply

    def take(self, request: Request) -> Reply:
        """Answer one request."""
        self.requests.append(request)
        reply = self._route(request)
        if (request.method, request.path.partition("?")[0]) != self.target:
            return reply
        self.targeted += 1
        return self.spoil(reply) if self.targeted <= TARGETED_MAX else refusal(404)

    def aim(self, target: tuple[str, str] | None, body: bytes = b"") -> None:
        """Answer the requests of this target with this body from now on."""
        self.target, self.targeted = target, 0
        self.spoil = lambda _: Reply(body=body)

    def _route(self, request: Request) -> Reply:
        path = request.path.partition("?")[0].removeprefix("/api/v1/")
        if path == "experiments":
            listed = {"experiments": [EXPERIMENT], "next": None}
            return _fixed(listed if request.method == "GET" else EXPERIMENT)()
        if path.startswith("blobs/"):
            return Reply(body=BLOB)
        for method, pattern, answer in ROUTES:
            match = re.fullmatch(rf"experiments/abc/?{pattern}", path)
            if match and request.method == method:
                return answer(request, *match.groups())
        raise AssertionError(f"a route that is not known here: {request.method} {path}")


@contextmanager
def hostile_server():
    """Run a HostileServer until the block ends."""
    with running(HostileServer()) as server:
        yield server


WRONG = [
    None,
    True,
    -1,
    2**70,
    1e308,
    "",
    "\x1b]0;x\x07\r\n\u202e",
    "\ud800",
    [],
    {},
    [[[[[[[[]]]]]]]],
    {"a": {"a": 1}},
]


def spoilt_json(content: object) -> Iterator[bytes]:
    """Yield the JSON with one value spoilt, for each value and each way, and texts that are no JSON
    object.
    """
    for path in list(_paths(content)):
        for wrong in WRONG:
            changed = copy.deepcopy(content)
            _put(changed, path, wrong)
            yield json.dumps(changed).encode()
        changed = copy.deepcopy(content)
        _put(changed, path, ...)
        yield json.dumps(changed).encode()


def spoilt_bytes(body: bytes) -> Iterator[bytes]:
    """Yield bytes that are neither JSON nor frames nor a message."""
    yield from (
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xff\xfe",
        b"NaN",
        b"\0" * 99,
    )
    yield from (
        b'{"experiment_id": ' + b"9" * 10_000 + b"}",
        b'{"next": 1e999}',
        b"<html>\x1b[2J</html>",
    )
    for place in range(0, len(body), max(1, len(body) // 40)):
        yield body[:place]
        yield body[:place] + b"\xff" + body[place + 1 :]
        yield body[:place] + b"\x7f\xff\xff\xff\xff" + body[place:]


def _paths(content: object, path: tuple = ()) -> Iterator[tuple]:
    items = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    for key, value in items:
        yield (*path, key)
        yield from _paths(value, (*path, key))


def _put(content, path: tuple, wrong: object) -> None:
    for key in path[:-1]:
        content = content[key]
    if wrong is ...:
        del content[path[-1]]
    else:
        content[path[-1]] = wrong
