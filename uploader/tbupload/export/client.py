"""What an export asks the server for, besides points: what there is, tables as they are, and blobs."""

from __future__ import annotations

import hashlib
import json
import time
import urllib.parse
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import Any, Final

from tbupload.errors import BlobLost, Refused, Unreachable, Unreadable
from tbupload.export.plan import Job, SeriesListing
from tbupload.export.points import read_points, read_table
from tbupload.export.remote_series import DataClass, LostPoint, RemoteBlob, SeriesPart
from tbupload.http.client import RUNS
from tbupload.http.pagination import read_pages
from tbupload.http.response_schema import integer, mapping, record, string
from tbupload.http.retry import RetryPolicy
from tbupload.http.transport import Response, Transport

MEDIA_TYPES: Final = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}

_PREFETCH_BYTES_MAX: Final = 1 << 20
"""Blobs up to this size are asked for before it is their turn."""

_PREFETCHED_BLOBS: Final = 6
_CONCURRENT_READS: Final = 3
_NOT_FOUND: Final = 404
_GONE: Final = 410

_UNREADABLE: Final = "object_unreadable"

_SERIES_PER_PAGE: Final = 5_000
"""Series of which the server tells what it knows at a time."""


_SERIES: Final = record(
    {"series": mapping(mapping(record({"plugin": string, "count": integer()})))}
)


class ExportClient:
    """One experiment on one server. Raises Refused, and Unreachable also when an answer breaks off.

    Objects that the server fails to read are asked for again while the patience lasts, which is counted from the first
    of them: a store that starts again is waited for, and one that has lost a volume costs that time once.
    """

    def __init__(self, transport: Transport, patience: RetryPolicy, experiment_id: str) -> None:
        self._transport = transport
        self._patience = patience
        self._unreadable_since: float | None = None
        self._unreadable_attempts = 0
        self._experiment_id = experiment_id
        self._path = f"/api/v1/experiments/{urllib.parse.quote(experiment_id, safe='')}"

    def get_start_times(self) -> dict[str, float]:
        """The runs, and when each began, in seconds; 0 when that is not known."""
        answer = self._transport.request("GET", f"{self._path}/runs").json(RUNS)
        return {run["run"]: run["start_time"] or 0.0 for run in answer["runs"]}

    def list_series(self, kind: DataClass) -> SeriesListing:
        """All series of one kind, with what a plan is made of."""
        listed: dict[str, dict[str, dict[str, Any]]] = {}

        def read(after: str | None) -> Response:
            query = urllib.parse.urlencode({"limit": _SERIES_PER_PAGE, "after": after or ""})
            return self._transport.request("GET", f"{self._path}/{kind}?{query}")

        for page in read_pages(read, _SERIES):
            for run, tags in page["series"].items():
                known = {
                    tag: {"plugin": one["plugin"], "count": one["count"]}
                    for tag, one in tags.items()
                }
                listed.setdefault(run, {}).update(known)
        return listed

    def read_table(
        self, job: Job, chosen: str, left_out: Callable[[LostPoint], None]
    ) -> AbstractContextManager[Iterator[bytes]]:
        """A job's series in this format, as the server writes it; `left_out` is told of tensors that are lost."""
        query = {"format": chosen, **job.query()}
        if job.kind == "tensors":
            return closing(read_table(self._transport, self._experiment_id, query, left_out))
        body = json.dumps({"sampling": "all", **query}, ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json", "Accept": MEDIA_TYPES[chosen]}
        return self._transport.stream(
            "POST", f"{self._path}/{job.kind}/data", body=body, headers=headers
        )

    def read_points(self, job: Job, left_out: Callable[[LostPoint], None]) -> Iterator[SeriesPart]:
        """A job's series, in parts; `left_out` is told of tensors that are lost."""
        told = left_out if job.kind == "tensors" else None
        return read_points(self._transport, self._experiment_id, job.kind, job.query(), told)

    def check_readable(self, lost: Iterable[LostPoint]) -> None:
        """Raise Unreadable when some of these points are to be asked for again, after a wait."""
        unreadable = next((point for point in lost if point.is_unreadable), None)
        if unreadable is not None and self._wait_for_objects():
            raise Unreadable(unreadable.reason)

    def _wait_for_objects(self) -> bool:
        """Wait before an object that the server fails to read is asked for again; False at once without patience."""
        if self._unreadable_since is None:
            self._unreadable_since = time.monotonic()
        self._unreadable_attempts += 1
        attempt = self._unreadable_attempts - 1
        return self._patience.wait_before_retry(attempt, self._unreadable_since, None) is not None

    def read_blobs(self, blobs: Iterable[RemoteBlob]) -> Iterator[Iterator[bytes]]:
        """The bytes of each blob, in order, in pieces; small ones are asked for ahead, so that none is waited for.

        The pieces of one that the server has lost, or fails to read, raise BlobLost; the blobs after it can still be
        read.
        """
        waiting: deque[tuple[RemoteBlob, Future[bytes] | None]] = deque()
        with ThreadPoolExecutor(_CONCURRENT_READS, "blobs") as pool:
            for blob in blobs:
                is_small = blob.size <= _PREFETCH_BYTES_MAX
                waiting.append((blob, pool.submit(self._read_small, blob) if is_small else None))
                if len(waiting) > _PREFETCHED_BLOBS:
                    yield self._iter_blob(*waiting.popleft())
            while waiting:
                yield self._iter_blob(*waiting.popleft())

    def _iter_blob(self, blob: RemoteBlob, ahead: Future[bytes] | None) -> Iterator[bytes]:
        return self._read_blob(blob) if ahead is None else _iter_result(ahead)

    def _read_small(self, blob: RemoteBlob) -> bytes:
        return b"".join(self._read_blob(blob))

    def _read_blob(self, blob: RemoteBlob) -> Iterator[bytes]:
        digest = hashlib.sha256()
        size = 0
        with self._open_blob(blob) as pieces:
            for piece in pieces:
                digest.update(piece)
                size += len(piece)
                yield piece
        if size != blob.size:
            raise Unreachable("a blob is not whole", is_mid_response=True)
        if digest.digest() != blob.sha256:
            raise BlobLost("the object store has other bytes in its place")

    @contextmanager
    def _open_blob(self, blob: RemoteBlob) -> Iterator[Iterator[bytes]]:
        path = f"/api/v1/blobs/{urllib.parse.quote(blob.key, safe='')}"
        with ExitStack() as opened:
            while True:
                request = self._transport.stream(
                    "GET", path, headers={"Accept": "*/*"}, final_codes={_UNREADABLE}
                )
                try:
                    pieces = opened.enter_context(request)
                except Refused as refusal:
                    if refusal.code == _UNREADABLE and self._wait_for_objects():
                        continue
                    if refusal.status == _GONE or refusal.code == _UNREADABLE:
                        raise BlobLost(str(refusal)) from refusal
                    if refusal.status != _NOT_FOUND:
                        raise
                    raise Unreachable(
                        "a blob was replaced while it was exported", is_mid_response=True
                    ) from refusal
                break
            yield pieces


def _iter_result(ahead: Future[bytes]) -> Iterator[bytes]:
    yield ahead.result()
