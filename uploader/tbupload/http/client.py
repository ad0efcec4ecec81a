"""The server's HTTP API as methods: one for each call the uploader makes."""

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
from tbupload.http.api_schemas import (
    CHANGED,
    DIGESTS,
    EXPERIMENT,
    EXPERIMENTS,
    FIRST_STREAMS,
    LIMITS,
    NEW_TOKEN,
    OBJECT_CHECKS,
    RECORDS,
    RUNS,
    SERIES,
    STREAMS,
    TENSOR_SERIES,
    TOKENS,
    parse_content,
    parse_cursor,
    parse_limits,
)
from tbupload.http.blob_upload import BlobUpload
from tbupload.http.connection_pool import is_loopback
from tbupload.http.pagination import read_pages
from tbupload.http.response_schema import Json, Schema, check, unreadable_answer
from tbupload.http.transport import Response, Transport
from tbupload.http.wire_limits import WireLimits
from tbupload.limits import LISTING_BYTES_MAX
from tbwire import wire_pb2
from tbwire.points import DataClassName

COMPRESSED_BYTES_MIN: Final = 1024
"""Size from which a batch is compressed for a server on another machine."""

PAGE_ITEMS: Final = 100
"""Experiments on a page of their listing."""

CREATED: Final = 201  # RFC 9110, section 15.3.2

PROTOBUF: Final = {"Content-Type": "application/x-protobuf", "Accept": "application/x-protobuf"}


@dataclass(frozen=True, slots=True)
class ExperimentStreams:
    """What an uploader has to know of an experiment before it resumes the upload.

    `cursors` may be iterated once, and is fetched page by page: there may be hundreds of thousands.
    """

    experiment_id: str
    url: str
    limits: WireLimits
    cursors: Iterable[wire_pb2.Cursor]


class Client:
    """Calls the API of one server.

    Every method raises Unreachable and Refused as `Transport.request` does. JSON objects are
    returned as they are, checked against a schema; additional fields are allowed.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._compresses = not is_loopback(transport.server)

    def create_experiment(
        self, *, name: str, description: str, visibility: str, request_key: str | None = None
    ) -> Json:
        """Create an experiment and return its fields: {experiment_id, url, name, ...}.

        Idempotent for a `request_key`: another call with it, also by another process, returns the
        experiment of the first one.
        """
        fields = {"name": name, "description": description, "visibility": visibility}
        return self._json(
            "POST",
            "/api/v1/experiments",
            fields,
            {"Idempotency-Key": request_key or str(uuid.uuid4())},
        ).json(EXPERIMENT)

    def get_or_create_experiment(
        self, *, name: str, description: str, visibility: str
    ) -> tuple[Json, bool]:
        """Return the fields of the experiment of this name, and whether it was created now.

        An existing one is unchanged. Of several clients at the same time, one creates it.

        Raises:
            Conflict: Several experiments have the name.
        """
        fields = {"name": name, "description": description, "visibility": visibility}
        answer = self._json("POST", "/api/v1/experiments", {**fields, "unique_name": True})
        return answer.json(EXPERIMENT), answer.status == CREATED

    def get_experiment(self, experiment_id: str) -> Json:
        """Return the experiment's fields."""
        return self._transport.request("GET", _path(experiment_id)).json(EXPERIMENT)

    def list_experiments(self, query: str | None = None) -> Iterator[Json]:
        """Yield the experiments of the token's workspace, newest first.

        `query` selects those with this text in their name or description.
        """
        fields = {} if query is None else {"q": query}
        for page in self._get_pages(
            "/api/v1/experiments", {**fields, "limit": str(PAGE_ITEMS)}, EXPERIMENTS
        ):
            yield from page["experiments"]

    def update_experiment(self, experiment_id: str, fields: Mapping[str, str]) -> Json:
        """Change the given ones of name, description and visibility; return all fields."""
        return self._json("PATCH", _path(experiment_id), fields).json(EXPERIMENT)

    def delete_experiment(self, experiment_id: str) -> None:
        """Delete an experiment with all its data."""
        self._transport.request("DELETE", _path(experiment_id))

    def get_streams(self, experiment_id: str) -> ExperimentStreams:
        """Return the experiment's URL, the server's limits, and the cursor of every stream."""
        pages = self._get_pages(_path(experiment_id, "streams"), {}, STREAMS)
        first = next(pages)
        check(first, FIRST_STREAMS)
        cursors = (
            parse_cursor(fields)
            for page in itertools.chain([first], pages)
            for fields in page["streams"]
        )
        return ExperimentStreams(
            first["experiment_id"], first["url"], parse_limits(first["limits"]), cursors
        )

    def upload_blob(
        self, experiment_id: str, digest: bytes, blob: Blob, *, is_repair: bool = False
    ) -> None:
        """Store a blob under its SHA-256, for batches to refer to. Idempotent.

        Args:
            experiment_id: The experiment that may refer to it.
            digest: Its SHA-256.
            blob: The content. Parts the server has already are not sent.
            is_repair: Send all of it, to replace an object that may be damaged.

        Raises:
            Conflict: The file that contains the blob has changed (`blob_missing`).
        """
        path = _path(experiment_id, "blobs", digest.hex())
        BlobUpload(self._transport, path, blob, is_repair=is_repair).run()

    def write_batch(self, experiment_id: str, body: bytes) -> tuple[wire_pb2.WriteResult, bool]:
        """Send a serialized WriteBatch; return the result, and whether the request was retried.

        The batch is committed in one transaction. Idempotent: a segment behind its stream's cursor
        is ignored.

        Raises:
            Conflict: A segment does not start at its stream's cursor, which the error contains.
        """
        headers = dict(PROTOBUF)
        if self._compresses and len(body) >= COMPRESSED_BYTES_MIN:
            body = gzip.compress(body, compresslevel=1)
            headers["Content-Encoding"] = "gzip"
        response = self._transport.request(
            "POST", _path(experiment_id, "batches"), body=body, headers=headers
        )
        try:
            return wire_pb2.WriteResult.FromString(response.body), response.was_retried
        except DecodeError as error:
            raise unreadable_answer() from error

    def set_hparams(
        self,
        experiment_id: str,
        run: str,
        hparams: Mapping[str, float | str | bool | None],
        *,
        only_if_absent: bool,
    ) -> bool:
        """Set hyperparameters of a run; return whether that changed anything. Idempotent.

        Others that the run has are kept. With `only_if_absent` nothing is set if it has any.
        """
        query = urllib.parse.urlencode({"run": run, "if_absent": str(only_if_absent).lower()})
        path = f"{_path(experiment_id, 'runs', 'hparams')}?{query}"
        answer = self._json("PUT", path, {"hparams": hparams}).json(CHANGED)
        return bool(answer["changed"])

    def list_runs(self, experiment_id: str) -> list[str]:
        """Return the names of the experiment's runs."""
        listing = self._transport.request("GET", _path(experiment_id, "runs")).json(RUNS)
        return [run["run"] for run in listing["runs"]]

    def list_series(
        self, experiment_id: str, data_class: DataClassName, run: str, tags: Sequence[str]
    ) -> Json:
        """Return those of a run's series that are stored: {tag: {max_step, max_wall_time, ...}}."""
        fields = {"run": [run], "tag": list(tags)}
        listing = self._json("POST", _path(experiment_id, data_class), fields).json(SERIES)
        stored: Json = listing.get(run, {})
        return stored

    def get_limits(self, experiment_id: str) -> WireLimits:
        """Return the server's limits, with a token that may only read.

        The listing of streams, which contains them as well, needs the scope to write.
        """
        page = self._json("POST", _path(experiment_id, "digests"), {"run": []}).json(LIMITS)
        return parse_limits(page["limits"])

    def list_digests(self, experiment_id: str, runs: Sequence[str]) -> Iterator[Json]:
        """Yield a digest of each series of these runs.

        Each is {run, tag, plugin, data_class, count, sha256, metadata_sha256}.
        """
        for page in self._post_pages(_path(experiment_id, "digests"), {"run": list(runs)}, DIGESTS):
            yield from page["series"]

    def check_objects(
        self, experiment_id: str, runs: Sequence[str], *, is_deep: bool
    ) -> Iterator[Json]:
        """Yield pages of {objects, bytes, faults}: blobs of these runs missing in the object store.

        Each fault is {run, tag, plugin, first_step, points, sha256, size, problem}. With `is_deep`
        the server reads and hashes every object.
        """
        fields = {"run": list(runs), "deep": is_deep}
        return self._post_pages(_path(experiment_id, "digests", "objects"), fields, OBJECT_CHECKS)

    def read_records(self, experiment_id: str, run: str, tag: str) -> Iterator[bytes]:
        """Yield a series' points in step order, in chunks of `tbwire.digests` records.

        Raises:
            Refused: There is no such series (404).
        """
        path, fields = _path(experiment_id, "digests", "records"), {"run": run, "tag": tag}
        # Without a limit on the sum of the pages: they are processed one by one.
        for page in self._post_pages(path, fields, RECORDS, bytes_max=math.inf):
            try:
                yield base64.b64decode(page["records"])
            except ValueError:
                raise unreadable_answer("records: no base64 where some should be") from None

    def read_metadata_content(self, experiment_id: str, run: str, tag: str) -> bytes:
        """Return the plugin's content in a tensor series' metadata; empty without such a series."""
        fields = {"run": [run], "tag": [tag]}
        listing = self._json("POST", _path(experiment_id, "tensors"), fields).json(TENSOR_SERIES)
        return parse_content(listing, run, tag)

    def create_token(self, experiment_id: str, fields: Mapping[str, Any]) -> Json:
        """Create a token for one experiment from {scopes, label?, expires_at?}.

        Its secret is in this answer only. A request that may have been processed is not repeated.
        """
        return self._json("POST", _path(experiment_id, "tokens"), fields, may_retry=False).json(
            NEW_TOKEN
        )

    def list_tokens(self, experiment_id: str) -> list[Json]:
        """Return the experiment's tokens, without their secrets."""
        pages = self._get_pages(_path(experiment_id, "tokens"), {}, TOKENS)
        return [token for page in pages for token in page["tokens"]]

    def revoke_token(self, experiment_id: str, token_id: str) -> None:
        """Revoke a token, at once."""
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


def _path(*segments: str) -> str:
    quoted = "/".join(urllib.parse.quote(segment, safe="") for segment in segments)
    return f"/api/v1/experiments/{quoted}"
