"""`ExportClient`: the requests of an export, for listings, points, tables and blobs."""

from __future__ import annotations

import hashlib
import json
import time
import urllib.parse
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import Any, Final

from tbupload.errors import BlobLost, Refused, Unreachable, Unreadable
from tbupload.export.plan import Job, SeriesListing, TableJob
from tbupload.export.points import read_points, read_table_frames
from tbupload.export.remote_series import LostPoint, RemoteBlob, SeriesPart
from tbupload.http.api_schemas import ATTEMPTS, RUNS
from tbupload.http.json_calls import JsonCalls, experiment_path
from tbupload.http.response_schema import by_run_and_tag, integer, record, string
from tbupload.http.transport import Transport
from tbwire.points import DataClassName

MEDIA_TYPES: Final = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}

_PREFETCH_BYTES_MAX: Final = 1 << 20
"""Blobs up to this size are requested ahead of their turn."""

_PREFETCHED_BLOBS: Final = 6
_CONCURRENT_READS: Final = 3
_NOT_FOUND: Final = 404
_NO_ROUTE: Final = frozenset({404, 405})
_GONE: Final = 410

_UNREADABLE: Final = "object_unreadable"

_SERIES_PER_PAGE: Final = 5_000
"""Series per page of a listing."""

_RUNS_PER_COUNT: Final = 100
"""Restarted runs whose points are counted by one request."""

_TOTALS: Final = by_run_and_tag({"total": integer()})

_SERIES: Final = record({"series": by_run_and_tag({"plugin": string, "count": integer()})})


class ExportClient(JsonCalls):
    """Requests for one experiment. Methods raise Refused and Unreachable.

    Unreachable is also raised if a response breaks off.

    Objects that the server cannot read are requested again until the retry timeout, which is
    counted once, from the first of them: this waits for a restarting object store, but does not
    wait again for each object of a lost volume. With `attempt`, points are those of this attempt;
    listings do not know it, and their counts are those of this attempt too.
    """

    def __init__(
        self, transport: Transport, experiment_id: str, attempt: int | None = None
    ) -> None:
        super().__init__(transport)
        self._query = {} if attempt is None else {"attempt": attempt}
        self._unreadable_since: float | None = None
        self._unreadable_attempts = 0
        self._experiment_id = experiment_id
        self._path = experiment_path(experiment_id)

    def get_start_times(self) -> dict[str, float]:
        """Return the start time of each run, in seconds since the epoch; 0 if it is unknown."""
        response = self._transport.request("GET", f"{self._path}/runs").json(RUNS)
        return {run["run"]: run["start_time"] or 0.0 for run in response["runs"]}

    def list_series(self, kind: DataClassName) -> SeriesListing:
        """Return plugin and point count of all series of one data class."""
        listed: dict[str, dict[str, dict[str, Any]]] = {}
        query = {"limit": str(_SERIES_PER_PAGE)}
        for page in self._get_pages(f"{self._path}/{kind}", query, _SERIES):
            for run, tags in page["series"].items():
                fields = {
                    tag: {"plugin": series["plugin"], "count": series["count"]}
                    for tag, series in tags.items()
                }
                listed.setdefault(run, {}).update(fields)
        if self._query and listed:
            self._count_attempt(kind, listed)
        return listed

    def _count_attempt(
        self, kind: DataClassName, listed: dict[str, dict[str, dict[str, Any]]]
    ) -> None:
        """Replace the counts of restarted runs by those of the attempt; listings do not know it."""
        answer = self._transport.request("GET", f"{self._path}/attempts").json(ATTEMPTS)
        runs = [run["run"] for run in answer["runs"] if run["run"] in listed]
        for start in range(0, len(runs), _RUNS_PER_COUNT):
            group = runs[start : start + _RUNS_PER_COUNT]
            query = {"run": group, "downsample": 1, "format": "json", **self._query}
            totals = self._transport.request(
                "POST",
                f"{self._path}/{kind}/data",
                body=json.dumps(query, ensure_ascii=False).encode(),
                headers={"Content-Type": "application/json"},
            ).json(_TOTALS)
            for run in group:
                for tag, fields in listed[run].items():
                    fields["count"] = totals.get(run, {}).get(tag, {"total": 0})["total"]

    def has_tables(self) -> bool:
        """Return whether the server has the routes of tables: an older one has none."""
        try:
            self._transport.request("GET", f"{self._path}/tables/properties?format=csv")
        except Refused as refusal:
            if refusal.status in _NO_ROUTE:
                return False
            raise
        return True

    def read_table(
        self, job: TableJob, file_format: str
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Return a table as a "csv" or "parquet" file."""
        path = f"{self._path}/tables/{job.table}"
        headers = {"Accept": MEDIA_TYPES[file_format]}
        if job.query is None:
            return self._transport.stream("GET", f"{path}?format={file_format}", headers=headers)
        body = json.dumps({"format": file_format, **job.query}, ensure_ascii=False).encode()
        headers["Content-Type"] = "application/json"
        return self._transport.stream("POST", path, body=body, headers=headers)

    def read_points_file(
        self, job: Job, file_format: str, on_lost: Callable[[LostPoint], None]
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Return a job's series as a "csv" or "parquet" file; call `on_lost` with lost tensors."""
        query = {"format": file_format, **job.query(), **self._query}
        if job.kind == "tensors":
            return closing(read_table_frames(self._transport, self._experiment_id, query, on_lost))

        body = json.dumps({"sampling": "all", **query}, ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json", "Accept": MEDIA_TYPES[file_format]}
        return self._transport.stream(
            "POST", f"{self._path}/{job.kind}/data", body=body, headers=headers
        )

    def read_points(self, job: Job, on_lost: Callable[[LostPoint], None]) -> Iterator[SeriesPart]:
        """Return a job's series in parts; call `on_lost` with lost tensors."""
        callback = on_lost if job.kind == "tensors" else None
        query = {**job.query(), **self._query}
        return read_points(self._transport, self._experiment_id, job.kind, query, callback)

    def check_readable(self, lost: Iterable[LostPoint]) -> None:
        """Wait and raise Unreadable if some of these points should be requested again."""
        unreadable = next((point for point in lost if point.is_unreadable), None)
        if unreadable is not None and self._wait_for_objects():
            raise Unreadable(unreadable.reason)

    def _wait_for_objects(self) -> bool:
        """Wait before an unreadable object is requested again; return False after the timeout."""
        if self._unreadable_since is None:
            self._unreadable_since = time.monotonic()
        self._unreadable_attempts += 1
        attempt, policy = self._unreadable_attempts - 1, self._transport.retry_policy
        return policy.wait_before_retry(attempt, self._unreadable_since, None) is not None

    def read_blobs(self, blobs: Iterable[RemoteBlob]) -> Generator[Iterator[bytes], None, None]:
        """Yield the bytes of each blob in order, in chunks; small blobs are requested in advance.

        Close it: one that an error has left would have its threads joined by the garbage collector,
        which may run in a thread that starts, and so holds the lock that the end of one needs.

        The iterator of a blob that the server lost or cannot read raises BlobLost; the blobs after
        it can still be read.
        """
        waiting: deque[tuple[RemoteBlob, Future[bytes] | None]] = deque()
        with ThreadPoolExecutor(_CONCURRENT_READS, "blobs") as pool:
            for blob in blobs:
                is_small = blob.size <= _PREFETCH_BYTES_MAX
                waiting.append((blob, pool.submit(self._read_small, blob) if is_small else None))
                # Bounded: what was requested ahead is in memory.
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
        with self._open_blob(blob) as chunks:
            for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                yield chunk

        if size != blob.size:
            raise Unreachable("a blob is incomplete", is_mid_response=True)
        # Not Unreachable: the same bytes would come again.
        if digest.digest() != blob.sha256:
            raise BlobLost("the object store has other bytes for it")

    @contextmanager
    def _open_blob(self, blob: RemoteBlob) -> Iterator[Iterator[bytes]]:
        """Request a blob, repeatedly while the server cannot read it. Raise BlobLost."""
        path = f"/api/v1/blobs/{urllib.parse.quote(blob.key, safe='')}"
        with ExitStack() as opened:
            while True:
                request = self._transport.stream(
                    "GET", path, headers={"Accept": "*/*"}, final_codes={_UNREADABLE}
                )
                try:
                    chunks = opened.enter_context(request)
                except Refused as refusal:
                    if refusal.code == _UNREADABLE and self._wait_for_objects():
                        continue
                    if refusal.status == _GONE or refusal.code == _UNREADABLE:
                        raise BlobLost(str(refusal)) from refusal
                    # A blob key is of a point: it ends when the point is replaced, which another
                    # attempt will show.
                    if refusal.status != _NOT_FOUND:
                        raise
                    raise Unreachable(
                        "a blob was replaced during the export", is_mid_response=True
                    ) from refusal
                break
            yield chunks


def _iter_result(ahead: Future[bytes]) -> Iterator[bytes]:
    yield ahead.result()
