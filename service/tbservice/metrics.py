"""What the service counts and times: every metric of `/metrics`, with its unit, and how each is recorded.

No label holds anything of a tenant's, and each has few values: all are constants of this source. Counts are made after
the commit, so that what was rolled back is not among them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Summary,
    disable_created_metrics,
)

disable_created_metrics()  # a second line for each, which says when this process began

REGISTRY: Final = CollectorRegistry()
"""This process's metrics; with several workers each has its own, and a scrape adds them up."""

_BUCKET_SECONDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
)
_LEVEL_LABELS: Final = {-1: "open", 0: "sealed", 1: "1", 2: "2", 3: "3", 4: "4", 5: "5"}


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(f"tbhub_{name}", text, labels, registry=REGISTRY)


def _histogram(name: str, text: str, *labels: str) -> Histogram:
    return Histogram(
        f"tbhub_{name}_seconds", text, labels, registry=REGISTRY, buckets=_BUCKET_SECONDS
    )


def _gauge(name: str, text: str) -> Gauge:
    """A gauge whose value is the sum over the workers that live."""
    return Gauge(f"tbhub_{name}", text, registry=REGISTRY, multiprocess_mode="livesum")


_batches = _counter(
    "batches", "Batches answered: committed (something was new) or repeated (nothing was)", "result"
)
_segments = _counter(
    "segments", "Segments of batches: committed, or repeated and passed over", "result"
)
_points = _counter("points", "Scalar and tensor points committed", "data_class")
_blobs = _counter(
    "blobs", "Blobs committed as part of a blob sequence; one that is repeated counts each time"
)
_body_bytes = _counter(
    "batch_body_bytes", "Bytes of batches as they were received, compressed if at all"
)
_content_bytes = _counter("batch_content_bytes", "Bytes of the same batches when decompressed")
_batch_phase_seconds = _histogram(
    "batch_part",
    "Where a batch's time goes: its body arrives, it waits for its turn to be decoded, is decoded, its blobs are put, "
    "its transaction runs",
    "part",
)

_compaction_seconds = _histogram(
    "merge", "Merges of scalar tails: one is a transaction, over some series of one run"
)
_compaction_failures = _counter(
    "merge_failures", "Merges that failed; what is not merged stays readable"
)
_compacted_runs = _counter(
    "merged_runs", "Runs taken up for merging: with a series due, or at rest", "cause"
)
_compacted_series = _counter("merged_series", "Series whose tail was merged")
_compacted_points = _counter("merged_points", "Points taken out of tails by merges")
_written_points = _counter(
    "merge_written_points",
    "Points written into blocks by merges, by level: open, sealed, or a thinned copy (1 to 5); over the rate of scalar "
    "tbhub_points this is the rewrite factor",
    "level",
)
_written_blocks = _counter(
    "merge_written_blocks", "Blocks written by merges, by the same levels", "level"
)
_sealed_in_place = _counter(
    "merge_sealed_in_place", "Blocks that merges sealed as they stood, without writing them anew"
)
_above_threshold_runs = _gauge(
    "merge_due_runs", "Runs that wait for a merge that is due: the backlog"
)
_idle_runs = _gauge("merge_resting_runs", "Runs that are merged when they have come to rest")

_requests = _counter(
    "http_requests", "Requests answered, by the route's template", "route", "method", "status"
)
_request_seconds = _histogram(
    "http_request",
    "From a request's headers to the end of its answer, bodies included",
    "route",
    "method",
)
_errors = _counter(
    "http_errors", "Requests refused or failed, by the error's code", "route", "code"
)

_over_share = _counter(
    "over_share", "Requests refused with 429, by the share of the worker that was used up", "share"
)

_connections = _gauge(
    "database_connections_in_use", "Connections to PostgreSQL taken from the pools"
)
_connections_max = _gauge(
    "database_connections_max", "Connections to PostgreSQL that the pools may hold"
)
_connection_wait_seconds = Summary(
    "tbhub_database_connection_wait_seconds",
    "Waiting for a connection from the pool",
    registry=REGISTRY,
)
_object_calls = _counter(
    "s3_calls", "S3 calls, after their retries: done, refused, or failed", "operation", "result"
)

_object_store_up = Gauge(
    "tbhub_object_store_up",
    "1 while the object store answers, 0 while it does not, when /readyz last looked; of several workers the least",
    registry=REGISTRY,
    multiprocess_mode="livemin",
)
_object_store_up.set(1)  # a worker does not start without

# Those whose values are known beforehand show them from the start: a rate needs the zero before the first.
_phases = {
    part: _batch_phase_seconds.labels(part)
    for part in ("body", "turn", "decode", "blobs", "transaction")
}
for _metric in (_batches, _segments):
    for _result in ("committed", "repeated"):
        _metric.labels(_result)
for _data_class in ("scalar", "tensor"):
    _points.labels(_data_class)
for _cause in ("due", "rest"):
    _compacted_runs.labels(_cause)
for _level in _LEVEL_LABELS.values():
    _written_points.labels(_level)
    _written_blocks.labels(_level)


def time_batch_phase(phase: str) -> AbstractContextManager[object]:
    """Times one part of taking in a batch, whether it succeeds or not."""
    return _phases[phase].time()


def observe_batch_size(body_bytes: int, content_bytes: int) -> None:
    """Notes the size of a batch, as it was received and as it was decompressed."""
    _body_bytes.inc(body_bytes)
    _content_bytes.inc(content_bytes)


def observe_batch(segments: int, new_segments: int, scalars: int, tensors: int, blobs: int) -> None:
    """Notes a batch that was committed: how many segments it had, how many of those were new, and what was in them."""
    _batches.labels("committed" if new_segments else "repeated").inc()
    _segments.labels("committed").inc(new_segments)
    _segments.labels("repeated").inc(segments - new_segments)
    _points.labels("scalar").inc(scalars)
    _points.labels("tensor").inc(tensors)
    _blobs.inc(blobs)


def observe_compaction_queue(above_threshold_runs: int, idle_runs: int) -> None:
    """Notes how much waits for this process's merger."""
    _above_threshold_runs.set(above_threshold_runs)
    _idle_runs.set(idle_runs)


def observe_run_compaction(*, is_idle: bool) -> None:
    """Notes that the merger takes up a run: because a series is due, or because the run came to rest."""
    _compacted_runs.labels("rest" if is_idle else "due").inc()


def observe_compaction(
    seconds: float,
    series: int,
    buffer_points: int,
    blocks_sealed_in_place: int,
    blocks: Sequence[tuple[int, int]],
) -> None:
    """Notes a merge that was committed: its series, the points out of their tails, and how many blocks it sealed.

    `blocks` are those it wrote, each as its level and its number of points.
    """
    _compaction_seconds.observe(seconds)
    _compacted_series.inc(series)
    _compacted_points.inc(buffer_points)
    _sealed_in_place.inc(blocks_sealed_in_place)
    for level, points in blocks:
        _written_blocks.labels(_LEVEL_LABELS[level]).inc()
        _written_points.labels(_LEVEL_LABELS[level]).inc(points)


def observe_compaction_failure() -> None:
    """Notes a merge that failed."""
    _compaction_failures.inc()


def observe_request(route: str, method: str, status: int, seconds: float) -> None:
    """Notes an answered request. `route` is a template, never an address: that would hold an experiment's id."""
    _requests.labels(route, method, status).inc()
    _request_seconds.labels(route, method).observe(seconds)


def observe_error(route: str, code: str) -> None:
    """Notes a request that was refused, or failed."""
    _errors.labels(route, code).inc()


def observe_over_share(share: str) -> None:
    """Count a request that is refused because its caller's share is used up."""
    _over_share.labels(share).inc()


def observe_pool_size(connections_max: int) -> None:
    """Notes how many connections the application's pool may hold."""
    _connections_max.set(connections_max)


def observe_connection_wait(since: float) -> None:
    """Notes that a connection was waited for since that moment of `time.perf_counter`."""
    _connection_wait_seconds.observe(time.perf_counter() - since)


def track_connection() -> AbstractContextManager[object]:
    """Counts a connection as taken from the pool, until the block ends."""
    return _connections.track_inprogress()


def observe_object_store(*, is_available: bool) -> None:
    """Note whether the object store answered when it was last looked at."""
    _object_store_up.set(is_available)


def observe_object_call(operation: str, status: int | None) -> None:
    """Notes a call to the object store, by S3's own name for it, and the HTTP status of its answer if there was one."""
    result = "failed"
    if status is not None and status < 500:  # noqa: PLR2004 - HTTP's own number
        result = "refused" if status >= 400 else "done"  # noqa: PLR2004 - the same
    _object_calls.labels(operation, result).inc()
