"""The server's HTTP API as methods: one for each call the uploader makes."""

from __future__ import annotations

import base64
import gzip
import itertools
import math
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from tbupload.events.points import Blob
from tbupload.http.api_schemas import (
    CHANGED,
    DIGESTS,
    FIRST_STREAMS,
    LIMITS,
    OBJECT_CHECKS,
    RECORDS,
    RUNS,
    SERIES,
    SERIES_PAGE,
    STREAMS,
    TENSOR_SERIES,
    parse_content,
    parse_cursor,
    parse_limits,
)
from tbupload.http.blob_upload import BlobUpload
from tbupload.http.connection_pool import is_loopback
from tbupload.http.experiment_calls import ExperimentCalls
from tbupload.http.json_calls import experiment_path
from tbupload.http.response_schema import Json, check, unreadable_answer
from tbupload.http.transport import Transport
from tbupload.http.wire_limits import WireLimits
from tbwire import wire_pb2
from tbwire.messages import parse
from tbwire.points import DATA_CLASSES, DataClassName

COMPRESSED_BYTES_MIN: Final = 1024
"""Size from which a batch is compressed for a server on another machine."""

SERIES_PAGE_ITEMS: Final = 1_000
"""Series on a page of their listing."""

PROTOBUF: Final = {"Content-Type": "application/x-protobuf", "Accept": "application/x-protobuf"}


@dataclass(frozen=True)
class ExperimentStreams:
    """State of an experiment that an uploader needs before it resumes the upload.

    `cursors` may be iterated once, and is fetched page by page: there may be hundreds of thousands.
    """

    experiment_id: str
    url: str
    limits: WireLimits
    cursors: Iterable[wire_pb2.Cursor]


class Client(ExperimentCalls):
    """Calls the API of one server.

    Every method raises Unreachable and Refused as `Transport.request` does. JSON objects are
    returned as they are, checked against a schema; additional fields are allowed.
    """

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._compresses = not is_loopback(transport.server)

    def get_streams(self, experiment_id: str) -> ExperimentStreams:
        """Return the experiment's URL, the server's limits, and the cursor of every stream."""
        pages = self._get_pages(experiment_path(experiment_id, "streams"), {}, STREAMS)
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
        path = experiment_path(experiment_id, "blobs", digest.hex())
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
            "POST", experiment_path(experiment_id, "batches"), body=body, headers=headers
        )
        try:
            return parse(wire_pb2.WriteResult, response.body), response.was_retried
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
        path = f"{experiment_path(experiment_id, 'runs', 'hparams')}?{query}"
        answer = self._json("PUT", path, {"hparams": hparams}).json(CHANGED)
        return bool(answer["changed"])

    def list_runs(self, experiment_id: str) -> list[str]:
        """Return the names of the experiment's runs."""
        listing = self._transport.request("GET", experiment_path(experiment_id, "runs")).json(RUNS)
        return [run["run"] for run in listing["runs"]]

    def list_series(
        self, experiment_id: str, data_class: DataClassName, run: str, tags: Sequence[str]
    ) -> Json:
        """Return the stored series, of these tags: {tag: {max_step, max_wall_time, ...}}."""
        fields = {"run": [run], "tag": list(tags)}
        listing = self._json("POST", experiment_path(experiment_id, data_class), fields).json(
            SERIES
        )
        stored: Json = listing.get(run, {})
        return stored

    def measure_runs(self, experiment_id: str, runs: Sequence[str]) -> tuple[int, int]:
        """Return the numbers of series and of points of these runs together."""
        series = points = 0
        for data_class in DATA_CLASSES:
            fields = {"run": list(runs), "limit": SERIES_PAGE_ITEMS}
            path = experiment_path(experiment_id, data_class)
            for page in self._post_pages(path, fields, SERIES_PAGE, bytes_max=math.inf):
                counts = [
                    each["count"] for tags in page["series"].values() for each in tags.values()
                ]
                series += len(counts)
                points += sum(counts)
        return series, points

    def get_limits(self, experiment_id: str) -> WireLimits:
        """Return the server's limits, with a token that may only read.

        The listing of streams, which contains them as well, needs the scope to write.
        """
        page = self._json("POST", experiment_path(experiment_id, "digests"), {"run": []}).json(
            LIMITS
        )
        return parse_limits(page["limits"])

    def list_digests(self, experiment_id: str, runs: Sequence[str]) -> Iterator[Json]:
        """Yield a digest of each series of these runs.

        Each is {run, tag, plugin, data_class, count, sha256, metadata_sha256}.
        """
        for page in self._post_pages(
            experiment_path(experiment_id, "digests"), {"run": list(runs)}, DIGESTS
        ):
            yield from page["series"]

    def check_objects(
        self, experiment_id: str, runs: Sequence[str], *, is_deep: bool
    ) -> Iterator[Json]:
        """Yield pages of {objects, bytes, faults}: blobs of these runs missing in the object store.

        Each fault is {run, tag, plugin, first_step, points, sha256, size, problem}. With `is_deep`
        the server reads and hashes every object.
        """
        fields = {"run": list(runs), "deep": is_deep}
        return self._post_pages(
            experiment_path(experiment_id, "digests", "objects"), fields, OBJECT_CHECKS
        )

    def read_records(self, experiment_id: str, run: str, tag: str) -> Iterator[bytes]:
        """Yield a series' points in step order, in chunks of `tbwire.digests` records.

        Raises:
            Refused: There is no such series (404).
        """
        path, fields = (
            experiment_path(experiment_id, "digests", "records"),
            {"run": run, "tag": tag},
        )
        # Without a limit on the sum of the pages: they are processed one by one.
        for page in self._post_pages(path, fields, RECORDS, bytes_max=math.inf):
            try:
                yield base64.b64decode(page["records"])
            except ValueError:
                raise unreadable_answer("records: no base64 where some should be") from None

    def read_metadata_content(self, experiment_id: str, run: str, tag: str) -> bytes:
        """Return the plugin's content in a tensor series' metadata; empty without such a series."""
        fields = {"run": [run], "tag": [tag]}
        listing = self._json("POST", experiment_path(experiment_id, "tensors"), fields).json(
            TENSOR_SERIES
        )
        return parse_content(listing, run, tag)
