"""Metrics of the service, exposed at `/metrics`, each with its unit, and how they are recorded.

Labels have few values, constants of this source or nodes of the database, and never contain data of
a tenant. Counters are incremented after the commit, so that rolled back transactions do not count.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Summary,
    disable_created_metrics,
    mmap_dict,
    values,
)
from prometheus_client.metrics import MetricWrapperBase

from tbservice import limits, traces

disable_created_metrics()  # a second line per metric, with the start time of the process

# Of each file that shares a worker's metrics with the others. Where it has grown, a write on a full
# disk would kill the worker (api/http/metrics_exposition.py).
mmap_dict._INITIAL_MMAP_SIZE = limits.METRICS_FILE_BYTES  # noqa: SLF001 - there is no setting

REGISTRY: Final = CollectorRegistry()
"""Metrics of this process; each worker has its own, and a scrape adds them up."""

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
    """Create a gauge with the sum over all running workers as its value."""
    return Gauge(f"tbhub_{name}", text, registry=REGISTRY, multiprocess_mode="livesum")


_batches = _counter(
    "batches", "Batches accepted: committed (with new segments) or repeated (without)", "result"
)
_segments = _counter(
    "segments", "Segments of batches: committed, or repeated and skipped", "result"
)
_points = _counter("points", "Scalar and tensor points committed", "data_class")
_blobs = _counter("blobs", "Blobs committed in blob sequences; the same blob counts each time")
_body_bytes = _counter("batch_body_bytes", "Bytes of batches as received, compressed or not")
_content_bytes = _counter("batch_content_bytes", "Bytes of the same batches, decompressed")
_batch_phase_seconds = _histogram(
    "batch_part",
    "Phases of a batch: receiving its body, waiting for its turn to be decoded, decoding, "
    "storing its blobs, its transaction",
    "part",
)

_compaction_seconds = _histogram(
    "merge", "Compactions of scalar series: one transaction each, for some series of a run"
)
_compaction_failures = _counter(
    "merge_failures", "Compactions that failed; uncompacted points remain readable"
)
_compacted_runs = _counter(
    "merged_runs",
    "Runs compacted: with a series above the threshold (due), or idle (rest)",
    "cause",
)
_compacted_series = _counter("merged_series", "Series compacted")
_compacted_points = _counter("merged_points", "Points that compactions moved out of write buffers")
_written_points = _counter(
    "merge_written_points",
    "Points that compactions wrote into blocks, by level: open, sealed, or a thinned copy (1 to 5);"
    " divided by the scalar tbhub_points this is the write amplification",
    "level",
)
_written_blocks = _counter(
    "merge_written_blocks", "Blocks that compactions wrote, by the same levels", "level"
)
_sealed_in_place = _counter(
    "merge_sealed_in_place", "Blocks that compactions sealed without writing them again"
)
_above_threshold_runs = _gauge(
    "merge_due_runs", "Runs above the threshold that wait for compaction: the backlog"
)
_idle_runs = _gauge("merge_resting_runs", "Runs to be compacted when they are idle")

_requests = _counter(
    "http_requests", "Requests completed, by the template of the route", "route", "method", "status"
)
_request_seconds = _histogram(
    "http_request",
    "From the headers of a request to the end of its response, bodies included",
    "route",
    "method",
)
_errors = _counter("http_errors", "Requests refused or failed, by error code", "route", "code")

_sign_in_failures = _counter(
    "sign_in_failures", "Failed sign-ins: in the audit log (true), or over its limits", "recorded"
)

_page_reports = _counter(
    "page_reports", "Reports of shared pages: stored, repeated, or over a limit", "outcome"
)

_grpc_calls = _counter("grpc_calls", "gRPC calls ended, by status", "method", "status")
_grpc_call_seconds = _histogram(
    "grpc_call", "From the metadata of a gRPC call to the end of its reply", "method"
)

_over_share = _counter(
    "over_share", "Requests refused with 429, by the share that the caller had used up", "share"
)

_connections = _gauge("database_connections_in_use", "Connections to PostgreSQL in use")
_connections_max = _gauge(
    "database_connections_max", "Maximum size of the PostgreSQL connection pools"
)
_connection_wait_seconds = Summary(
    "tbhub_database_connection_wait_seconds",
    "Waiting for a connection from the pool",
    registry=REGISTRY,
)
_replica_reads = _counter(
    "replica_reads",
    "Reads that the replica answered, or why not: behind, away, promoted, conflict, lost",
    "outcome",
)
_object_calls = _counter(
    "s3_calls", "S3 calls after their retries: done, refused or failed", "operation", "result"
)

_swept_objects = _counter(
    "swept_objects", "Objects that nothing referred to, and that this service has deleted"
)
_swept_bytes = _counter("swept_object_bytes", "Bytes of these objects")
_sweep_ended_at = Gauge(
    "tbhub_last_object_sweep_timestamp_seconds",
    "When the last look at all workspaces for such objects ended, in this service's processes",
    registry=REGISTRY,
    multiprocess_mode="livemax",
)

_object_store_up = Gauge(
    "tbhub_object_store_up",
    "Result of the last check by /readyz: 1 if the object store responded, else 0; the minimum "
    "over the workers",
    registry=REGISTRY,
    multiprocess_mode="livemin",
)
_database_timeline = Gauge(
    "tbhub_database_timeline",
    "PostgreSQL's timeline as of the last /readyz: it grows when a standby is promoted; of each "
    "node of a cluster, by its groupid in pg_dist_node",
    ["group"],
    registry=REGISTRY,
    multiprocess_mode="livemax",
)
_node_unavailable = Gauge(
    "tbhub_database_node_unavailable",
    "1 if a node of a cluster did not answer or could not write when /readyz last looked, else 0; "
    "the maximum over the workers",
    ["group", "node"],
    registry=REGISTRY,
    multiprocess_mode="livemax",
)
_object_store_up.set(1)  # a worker starts only if the object store responds

# Known label values are exported from the start: a rate needs the zero before the first increment.
_phases = {
    phase: _batch_phase_seconds.labels(phase)
    for phase in ("body", "turn", "decode", "blobs", "transaction")
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


def share_metrics() -> None:
    """Keep the metrics of this worker in files from now on, all from zero.

    The files are in the directory that PROMETHEUS_MULTIPROC_DIR names. `prometheus_client` looks
    for it when it is imported, which a worker's parent did before it forked the worker.
    """
    values.ValueClass = values.MultiProcessValue()
    for metric in REGISTRY._collector_to_names:  # noqa: SLF001 - there is no function for it
        if isinstance(metric, MetricWrapperBase):
            for each in getattr(metric, "_metrics", {(): metric}).values():
                each._metric_init()  # noqa: SLF001 - the same
    _object_store_up.set(1)


@contextmanager
def time_batch_phase(phase: str) -> Iterator[None]:
    """Time one phase of accepting a batch, whether it succeeds or not; it is a span, too."""
    with _phases[phase].time(), traces.span(f"batch {phase}"):
        yield


def observe_batch_size(body_bytes: int, content_bytes: int) -> None:
    """Record the size of a batch as received and after decompression, in bytes."""
    _body_bytes.inc(body_bytes)
    _content_bytes.inc(content_bytes)


def observe_batch(segments: int, new_segments: int) -> None:
    """Record a committed batch: its segments, and the new ones among them."""
    _batches.labels("committed" if new_segments else "repeated").inc()
    _segments.labels("committed").inc(new_segments)
    _segments.labels("repeated").inc(segments - new_segments)


def observe_points(scalars: int, tensors: int, blobs: int) -> None:
    """Record committed points, and the blobs of those that are blob sequences."""
    _points.labels("scalar").inc(scalars)
    _points.labels("tensor").inc(tensors)
    _blobs.inc(blobs)


def observe_compaction_queue(above_threshold_runs: int, idle_runs: int) -> None:
    """Record how many runs wait for compaction in this process."""
    _above_threshold_runs.set(above_threshold_runs)
    _idle_runs.set(idle_runs)


def observe_run_compaction(*, is_idle: bool) -> None:
    """Count a run taken from the queue: because it is idle, or a series is above the threshold."""
    _compacted_runs.labels("rest" if is_idle else "due").inc()


def observe_compaction(
    seconds: float,
    series: int,
    buffer_points: int,
    blocks_sealed_in_place: int,
    blocks: Sequence[tuple[int, int]],
) -> None:
    """Record a committed compaction.

    Args:
        seconds: Duration of the transaction.
        series: Series compacted.
        buffer_points: Points removed from their write buffers.
        blocks_sealed_in_place: Blocks sealed without writing them again.
        blocks: Level and number of points of each written block.
    """
    _compaction_seconds.observe(seconds)
    _compacted_series.inc(series)
    _compacted_points.inc(buffer_points)
    _sealed_in_place.inc(blocks_sealed_in_place)
    for level, points in blocks:
        _written_blocks.labels(_LEVEL_LABELS[level]).inc()
        _written_points.labels(_LEVEL_LABELS[level]).inc(points)


def observe_compaction_failure() -> None:
    """Count a failed compaction."""
    _compaction_failures.inc()


def observe_request(route: str, method: str, status: int, seconds: float) -> None:
    """Record a completed request. `route` is a template: a URL would contain an experiment's id."""
    _requests.labels(route, method, status).inc()
    _request_seconds.labels(route, method).observe(seconds)


def observe_error(route: str, code: str) -> None:
    """Count a request that was refused or failed."""
    _errors.labels(route, code).inc()


def observe_call(method: str, status: str, seconds: float) -> None:
    """Record a gRPC call that ended. `method` is a service of ours and its method."""
    _grpc_calls.labels(method, status).inc()
    _grpc_call_seconds.labels(method).observe(seconds)


def observe_over_share(share: str, count: int = 1) -> None:
    """Count requests refused because their caller's share is used up."""
    _over_share.labels(share).inc(count)


def observe_sign_in_failure(*, is_recorded: bool) -> None:
    """Count a failed sign-in."""
    _sign_in_failures.labels(str(is_recorded).lower()).inc()


def observe_page_report(outcome: str) -> None:
    """Count a report of a shared page."""
    _page_reports.labels(outcome).inc()


def observe_pool_size(connections_max: int) -> None:
    """Record the maximum size of the connection pool."""
    _connections_max.set(connections_max)


def observe_connection_wait(since: float) -> None:
    """Record a wait for a connection that began at this time of `time.perf_counter`."""
    _connection_wait_seconds.observe(time.perf_counter() - since)


def observe_replica_read(outcome: str) -> None:
    """Count a read at the replica: answered, or why the primary was read instead."""
    _replica_reads.labels(outcome).inc()


def track_connection() -> AbstractContextManager[object]:
    """Count a connection as in use until the block ends."""
    return _connections.track_inprogress()


def observe_timeline(timeline: int, group: int | None) -> None:
    """Record PostgreSQL's timeline, of a cluster that of the node with this group."""
    _database_timeline.labels("" if group is None else group).set(timeline)


def observe_node(group: int, node: str, *, is_available: bool) -> None:
    """Record whether a node of a cluster can write, or is no longer one (available).

    Several processes cannot take a label's value back.
    """
    _node_unavailable.labels(group, node).set(not is_available)


def observe_object_store(*, is_available: bool) -> None:
    """Record whether the object store responded to the last check."""
    _object_store_up.set(is_available)


def observe_object_call(operation: str, status: int | None) -> None:
    """Count a call to the object store, by S3 operation and HTTP status (None: no response)."""
    result = "failed"
    if status is not None and status < 500:  # noqa: PLR2004 - an HTTP status class
        result = "refused" if status >= 400 else "done"  # noqa: PLR2004 - an HTTP status class
    _object_calls.labels(operation, result).inc()


def observe_sweep(objects: int, size: int) -> None:
    """Count objects that a sweep has deleted, and their bytes."""
    _swept_objects.inc(objects)
    _swept_bytes.inc(size)


def observe_sweep_end() -> None:
    """Record that all workspaces whose sweep was due have been swept."""
    _sweep_ended_at.set_to_current_time()
