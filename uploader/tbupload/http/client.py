"""The server's HTTP interface as functions: one method for each thing the uploader asks of it."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import math
import urllib.parse
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError

from tbupload.events.points import Blob
from tbupload.http.blob_upload import BlobUpload
from tbupload.http.pagination import read_pages
from tbupload.http.response_schema import (
    Json,
    Schema,
    anything,
    array,
    check,
    identifier,
    integer,
    mapping,
    nullable,
    number,
    plain,
    record,
    string,
    unreadable_answer,
)
from tbupload.http.transport import Response, Transport, is_loopback
from tbupload.http.wire_limits import WireLimits
from tbupload.limits import LISTING_BYTES_MAX, WIRE_LIMIT_MAX
from tbwire import wire_pb2

COMPRESSED_BYTES_MIN: Final = 1024
"""A shorter batch is sent as it is."""

PAGE_ITEMS: Final = 100

EXPERIMENT: Final = record(
    {"experiment_id": identifier, "url": string, "name": string, "created_at": string}, rest=plain
)
EXPERIMENTS: Final = record({"experiments": array(EXPERIMENT)})
LIMITS: Final = record({"limits": mapping(plain)})
STREAMS: Final = record(
    {"streams": array(anything)}
)  # each is checked when it is turned into a cursor
FIRST_STREAMS: Final = record(
    {"experiment_id": identifier, "url": string, "limits": mapping(plain)}
)
RUNS: Final = record({"runs": array(record({"run": string, "start_time": nullable(number)}))})
DIGESTS: Final = record(
    {
        "series": array(
            record(
                {
                    **dict.fromkeys(
                        ("run", "tag", "plugin", "data_class", "sha256", "metadata_sha256"), string
                    ),
                    "count": integer(),
                }
            )
        )
    }
)
RECORDS: Final = record({"records": string})
NEW_TOKEN: Final = record({"token": string}, rest=plain)
TOKEN: Final = record(
    {
        **dict.fromkeys(("id", "prefix", "label"), string),
        **dict.fromkeys(("revoked_at", "expires_at"), nullable(string)),
        "scopes": array(string),
    },
    rest=plain,
)
OBJECT_FAULT: Final = record(
    {
        "run": string,
        "tag": string,
        "first_step": integer(-(2**63)),
        "sha256": string,
        "problem": string,
    }
)
OBJECT_CHECKS: Final = record(
    {"objects": integer(), "bytes": integer(), "faults": array(OBJECT_FAULT)}
)
TOKENS: Final = record({"tokens": array(TOKEN)})

REQUIRED_LIMITS: Final = (
    "batch_bytes_max",
    "blob_inline_bytes_max",
    "blob_bytes_max",
    "tensor_bytes_max",
    "name_chars_max",
    "metadata_bytes_max",
)
"""Limits that every server tells; without them nothing could be sent."""

PROTOBUF: Final = {"Content-Type": "application/x-protobuf", "Accept": "application/x-protobuf"}


@dataclass(frozen=True, slots=True)
class ExperimentStreams:
    """What an uploader has to know of an experiment before it goes on with it.

    `cursors` are fetched page by page while they are gone through, once: there may be hundreds of thousands.
    """

    experiment_id: str
    url: str
    limits: WireLimits
    cursors: Iterable[wire_pb2.Cursor]


class Client:
    """Speaks with one server. Every method raises Unreachable and Refused, as `Transport.request` says."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._compresses = not is_loopback(transport.server)

    def create_experiment(
        self, *, name: str, description: str, visibility: str, request_key: str | None = None
    ) -> Json:
        """Creates an experiment: {experiment_id, url, name, ...}. A repeated request still makes one.

        The same `request_key` another time, by another process as well, answers the experiment that it made.
        """
        fields = {"name": name, "description": description, "visibility": visibility}
        return self._json(
            "POST",
            "/api/v1/experiments",
            fields,
            {"Idempotency-Key": request_key or str(uuid.uuid4())},
        ).json(EXPERIMENT)

    def get_experiment(self, experiment_id: str) -> Json:
        """The experiment's own fields."""
        return self._transport.request("GET", _path(experiment_id)).json(EXPERIMENT)

    def list_experiments(self, query: str | None = None) -> Iterator[Json]:
        """Every experiment of the token's workspace, newest first; `query` searches names and descriptions."""
        fields = {} if query is None else {"q": query}
        for page in self._get_pages(
            "/api/v1/experiments", {**fields, "limit": str(PAGE_ITEMS)}, EXPERIMENTS
        ):
            yield from page["experiments"]

    def update_experiment(self, experiment_id: str, fields: Mapping[str, str]) -> Json:
        """Changes name, description or visibility, whichever `fields` has; the others stay."""
        return self._json("PATCH", _path(experiment_id), fields).json(EXPERIMENT)

    def delete_experiment(self, experiment_id: str) -> None:
        """Deletes an experiment and all its data."""
        self._transport.request("DELETE", _path(experiment_id))

    def get_streams(self, experiment_id: str) -> ExperimentStreams:
        """Where the experiment is, what the server takes, and the cursor of every stream."""
        pages = self._get_pages(_path(experiment_id, "streams"), {}, STREAMS)
        first = next(pages)
        check(first, FIRST_STREAMS)
        cursors = (
            _cursor(fields)
            for page in itertools.chain([first], pages)
            for fields in page["streams"]
        )
        return ExperimentStreams(
            first["experiment_id"], first["url"], _limits(first["limits"]), cursors
        )

    def upload_blob(
        self, experiment_id: str, digest: bytes, blob: Blob, *, is_repair: bool = False
    ) -> None:
        """Stores a blob under its SHA-256, for a batch to refer to; what the server has of it is not sent again.

        With `is_repair` all of it is sent again, and takes the place of an object that may be damaged.
        Raises Conflict (`blob_missing`) when the file that the blob lies in has other bytes by now.
        """
        path = _path(experiment_id, "blobs", digest.hex())
        BlobUpload(self._transport, path, blob, is_repair=is_repair).run()

    def write_batch(self, experiment_id: str, body: bytes) -> tuple[wire_pb2.WriteResult, bool]:
        """Sends a serialized WriteBatch; answers the result, and whether it had to be sent more than once.

        Committed whole or not at all. Raises Conflict when a segment does not go on where its stream's cursor is.
        """
        headers = dict(PROTOBUF)
        if self._compresses and len(body) >= COMPRESSED_BYTES_MIN:
            body = gzip.compress(body, compresslevel=1)
            headers["Content-Encoding"] = "gzip"
        answer = self._transport.request(
            "POST", _path(experiment_id, "batches"), body=body, headers=headers
        )
        try:
            return wire_pb2.WriteResult.FromString(answer.body), answer.was_retried
        except DecodeError as error:
            raise unreadable_answer() from error

    def list_runs(self, experiment_id: str) -> list[str]:
        """The names of the experiment's runs."""
        answer = self._transport.request("GET", _path(experiment_id, "runs")).json(RUNS)
        return [run["run"] for run in answer["runs"]]

    def get_limits(self, experiment_id: str) -> WireLimits:
        """What the server takes, for those who may only read."""
        page = self._json("POST", _path(experiment_id, "digests"), {"run": []}).json(LIMITS)
        return _limits(page["limits"])

    def list_digests(self, experiment_id: str, runs: Sequence[str]) -> Iterator[Json]:
        """What proves each series of these runs: {run, tag, plugin, data_class, count, sha256, metadata_sha256}."""
        for page in self._post_pages(_path(experiment_id, "digests"), {"run": list(runs)}, DIGESTS):
            yield from page["series"]

    def check_objects(
        self, experiment_id: str, runs: Sequence[str], *, is_deep: bool
    ) -> Iterator[Json]:
        """Pages of {objects, bytes, faults}: what the server's object store has lost of these runs' blobs.

        Each fault is {run, tag, plugin, first_step, points, sha256, size, problem}. A deep check reads all bytes.
        """
        fields = {"run": list(runs), "deep": is_deep}
        return self._post_pages(_path(experiment_id, "digests", "objects"), fields, OBJECT_CHECKS)

    def read_records(self, experiment_id: str, run: str, tag: str) -> Iterator[bytes]:
        """A series' points in step order, in pieces: records of `tbwire.digests`. Refused (404) when there is none."""
        path, fields = _path(experiment_id, "digests", "records"), {"run": run, "tag": tag}
        for page in self._post_pages(
            path, fields, RECORDS, bytes_max=math.inf
        ):  # nobody keeps them
            try:
                yield base64.b64decode(page["records"])
            except ValueError:
                raise unreadable_answer("records: no base64 where some should be") from None

    def create_token(self, experiment_id: str, fields: Mapping[str, Any]) -> Json:
        """Makes a token for one experiment from {scopes, label?, expires_at?}; its secret is in this answer only."""
        return self._json("POST", _path(experiment_id, "tokens"), fields, may_retry=False).json(
            NEW_TOKEN
        )

    def list_tokens(self, experiment_id: str) -> list[Json]:
        """The experiment's tokens, without their secrets."""
        pages = self._get_pages(_path(experiment_id, "tokens"), {}, TOKENS)
        return [token for page in pages for token in page["tokens"]]

    def revoke_token(self, experiment_id: str, token_id: str) -> None:
        """Makes a token worthless at once."""
        self._transport.request("DELETE", _path(experiment_id, "tokens", token_id))

    def _json(
        self,
        method: str,
        path: str,
        fields: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        *,
        may_retry: bool = True,
    ) -> Response:
        return self._transport.request(
            method,
            path,
            body=json.dumps(fields).encode(),
            headers={"Content-Type": "application/json", **(headers or {})},
            may_retry=may_retry,
        )

    def _get_pages(self, path: str, query: Mapping[str, str], schema: Schema) -> Iterator[Json]:
        def read(after: str | None) -> Response:
            fields = dict(query) if after is None else {**query, "after": after}
            return self._transport.request("GET", f"{path}?{urllib.parse.urlencode(fields)}")

        return read_pages(read, schema)

    def _post_pages(
        self,
        path: str,
        fields: Mapping[str, Any],
        schema: Schema,
        *,
        bytes_max: float = LISTING_BYTES_MAX,
    ) -> Iterator[Json]:
        def read(after: str | None) -> Response:
            return self._json("POST", path, {**fields, "after": after or ""})

        return read_pages(read, schema, bytes_max=bytes_max)


def _path(*parts: str) -> str:
    quoted = "/".join(urllib.parse.quote(part, safe="") for part in parts)
    return f"/api/v1/experiments/{quoted}"


def _limits(fields: Json) -> WireLimits:
    """The server's limits, none over what the reader has memory for."""
    known = {name: fields[name] for name in WireLimits.__dataclass_fields__ if name in fields}
    check(known, mapping(integer(0)))
    missing = set(REQUIRED_LIMITS) - {name for name, limit in known.items() if limit}
    if missing:
        raise unreadable_answer(f"limits: {min(missing)!r} is missing")
    return WireLimits(**{name: min(limit, WIRE_LIMIT_MAX) for name, limit in known.items()})


def _cursor(fields: Json) -> wire_pb2.Cursor:
    """The cursor in a listing's fields: protobuf checks their types and ranges."""
    try:
        return _checked_cursor(fields)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise unreadable_answer("streams: no cursor where one should be") from None


def _checked_cursor(fields: Json) -> wire_pb2.Cursor:
    stream = wire_pb2.Stream(
        run=fields["run"],
        file_name=fields["file_name"],
        first_record_digest=bytes.fromhex(fields["first_record_digest"]),
        generation=fields["generation"],
        filters_digest=bytes.fromhex(fields["filters_digest"]),
    )
    skipped = [
        wire_pb2.Skipped(reason=reason, count=count) for reason, count in fields["skipped"].items()
    ]
    return wire_pb2.Cursor(
        stream=stream, offset=fields["offset"], checksum=fields["checksum"], skipped=skipped
    )
