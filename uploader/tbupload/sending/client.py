"""The server's HTTP interface as functions: one method for each thing the uploader asks of it."""

from __future__ import annotations

import gzip
import json
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError

from tbupload.errors import Refused
from tbupload.sending.batches import WireLimits
from tbupload.sending.transport import Answer, Json, Transport, is_loopback
from tbwire import wire_pb2

COMPRESSED_BYTES_MIN: Final = 1024
"""A shorter batch is sent as it is."""

PAGE_ITEMS: Final = 100

PROTOBUF: Final = {"Content-Type": "application/x-protobuf", "Accept": "application/x-protobuf"}


@dataclass(frozen=True, slots=True)
class Streams:
    """What an uploader has to know of an experiment before it goes on with it."""

    experiment_id: str
    url: str
    limits: WireLimits
    cursors: list[wire_pb2.Cursor]


class Client:
    """Speaks with one server. Every method raises Unreachable and Refused, as `Transport.request` says."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._compresses = not is_loopback(transport.server)

    def create_experiment(self, *, name: str, description: str, visibility: str) -> Json:
        """Creates an experiment: {experiment_id, url, name, ...}. A repeated request still makes one."""
        fields = {"name": name, "description": description, "visibility": visibility}
        return self._json("POST", "/api/v1/experiments", fields, {"Idempotency-Key": str(uuid.uuid4())}).json()

    def get_experiment(self, experiment_id: str) -> Json:
        """The experiment's own fields."""
        return self._transport.request("GET", _path(experiment_id)).json()

    def list_experiments(self, query: str | None = None) -> Iterator[Json]:
        """Every experiment of the token's workspace, newest first; `query` searches names and descriptions."""
        fields = {} if query is None else {"q": query}
        for page in self._pages("/api/v1/experiments", {**fields, "limit": str(PAGE_ITEMS)}):
            yield from page["experiments"]

    def update_experiment(self, experiment_id: str, fields: Mapping[str, str]) -> Json:
        """Changes name, description or visibility, whichever `fields` has; the others stay."""
        return self._json("PATCH", _path(experiment_id), fields).json()

    def delete_experiment(self, experiment_id: str) -> None:
        """Deletes an experiment and all its data."""
        self._transport.request("DELETE", _path(experiment_id))

    def get_streams(self, experiment_id: str) -> Streams:
        """Where the experiment is, what the server takes, and the cursor of every stream."""
        pages = list(self._pages(_path(experiment_id, "streams"), {}))
        cursors = [_cursor(fields) for page in pages for fields in page["streams"]]
        return Streams(pages[0]["experiment_id"], pages[0]["url"], _limits(pages[0]["limits"]), cursors)

    def put_blob(self, experiment_id: str, digest: bytes, content: bytes) -> None:
        """Stores a blob under its SHA-256, for a batch to refer to; doing it again changes nothing."""
        headers = {"Content-Type": "application/octet-stream"}
        self._transport.request("PUT", _path(experiment_id, "blobs", digest.hex()), body=content, headers=headers)

    def write_batch(self, experiment_id: str, body: bytes) -> tuple[wire_pb2.WriteResult, bool]:
        """Sends a serialized WriteBatch; answers the result, and whether it had to be sent more than once.

        Committed whole or not at all. Raises Conflict when a segment does not go on where its stream's cursor is.
        """
        headers = dict(PROTOBUF)
        if self._compresses and len(body) >= COMPRESSED_BYTES_MIN:
            body = gzip.compress(body, compresslevel=1)
            headers["Content-Encoding"] = "gzip"
        answer = self._transport.request("POST", _path(experiment_id, "batches"), body=body, headers=headers)
        try:
            return wire_pb2.WriteResult.FromString(answer.body), answer.is_repeat
        except DecodeError as error:
            raise Refused("the answer is not one of a tbhub server: check the server's address", status=200) from error

    def create_token(self, experiment_id: str, fields: Mapping[str, Any]) -> Json:
        """Makes a token for one experiment from {scopes, label?, expires_at?}; its secret is in this answer only."""
        return self._json("POST", _path(experiment_id, "tokens"), fields, may_repeat=False).json()

    def list_tokens(self, experiment_id: str) -> list[Json]:
        """The experiment's tokens, without their secrets."""
        tokens: list[Json] = self._transport.request("GET", _path(experiment_id, "tokens")).json()["tokens"]
        return tokens

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
        may_repeat: bool = True,
    ) -> Answer:
        return self._transport.request(
            method,
            path,
            body=json.dumps(fields).encode(),
            headers={"Content-Type": "application/json", **(headers or {})},
            may_repeat=may_repeat,
        )

    def _pages(self, path: str, query: Mapping[str, str]) -> Iterator[Json]:
        after: str | None = None
        while True:
            fields = dict(query) if after is None else {**query, "after": after}
            page = self._transport.request("GET", f"{path}?{urllib.parse.urlencode(fields)}").json()
            yield page
            after = page.get("next")
            if after is None:
                return


def _path(*parts: str) -> str:
    quoted = "/".join(urllib.parse.quote(part, safe="") for part in parts)
    return f"/api/v1/experiments/{quoted}"


def _limits(fields: Json) -> WireLimits:
    """What the server says of them; an older one may not know them all."""
    return WireLimits(**{name: int(fields[name]) for name in WireLimits.__dataclass_fields__ if name in fields})


def _cursor(fields: Json) -> wire_pb2.Cursor:
    stream = wire_pb2.Stream(
        run=fields["run"],
        file_name=fields["file_name"],
        first_record_digest=bytes.fromhex(fields["first_record_digest"]),
        generation=fields["generation"],
        filters_digest=bytes.fromhex(fields["filters_digest"]),
    )
    skipped = [wire_pb2.Skipped(reason=reason, count=count) for reason, count in fields["skipped"].items()]
    return wire_pb2.Cursor(stream=stream, offset=fields["offset"], checksum=fields["checksum"], skipped=skipped)
