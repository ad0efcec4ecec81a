"""Decode the logs of a report to columns, and recognize a report that was sent again."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from tbservice import limits
from tbservice.errors import Invalid, TooLarge
from tbservice.ingest.decode_points import check_name
from tbservice.katib.katib_pb2 import ReportObservationLogRequest
from tbservice.katib.metric_values import UNAVAILABLE, parse_number
from tbservice.katib.timestamps import ZERO_TIME, parse_timestamp
from tbservice.types.identifiers import Booleans, Float64s, Int64s

KATIB_REPORT_LOGS_MAX: Final = 250_000
"""Logs (points) in one ReportObservationLog: each takes about 500 bytes of memory."""

KATIB_REPORT_METRICS_MAX: Final = 10_000
"""Items (different metrics) in one ReportObservationLog."""

KATIB_VALUE_BYTES_MAX: Final = 64 * limits.KIB
"""Bytes of one value of a metric, which Katib's own store has in a TEXT of MySQL."""

KATIB_REPEAT_SECONDS_MAX: Final = 600
"""Seconds in which an equal report of the same trial is taken for a client's retry."""

KATIB_REPEAT_ITEMS_MAX: Final = 16
"""Items (last reports of a trial) among which a retry is looked for."""

_RECENT: Final = struct.Struct("<q16s")
"""A report among the recent ones: time in microseconds since the epoch, and digest."""


@dataclass(frozen=True)
class Logs:
    """Logs in the order of a report, as columns.

    `metrics` are the different names, and `metric` the index of each log's. `times` are in
    microseconds since the epoch, `received_at` in seconds. `numbers` is NaN for a text, for which
    `is_number` is false.
    """

    metrics: Sequence[str]
    metric: Int64s
    times: Int64s
    received_at: Float64s
    values: Sequence[bytes]
    numbers: Float64s
    is_number: Booleans

    @cached_property
    def wall_times(self) -> Float64s:
        """The wall times of the points made of these logs, in seconds since the epoch."""
        return compute_wall_times(self.times, self.received_at)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def is_unavailable(self) -> bool:
        """Return whether a collector says that it did not find the objective metric."""
        return all(value == UNAVAILABLE.encode() for value in self.values)

    @property
    def repeats_metric(self) -> bool:
        """Return whether a metric has several logs, as if a collector reports all of a training."""
        return len(self.metrics) < len(self)


def decode_report(request: ReportObservationLogRequest, received_at: float) -> Logs:
    """Return the logs that have a timestamp; the others are skipped, as in Katib.

    Args:
        request: The report.
        received_at: Seconds since the epoch: the wall time of logs with Go's zero time.

    Raises:
        Invalid: A timestamp cannot be read, a log has no metric, or a name contains a NUL.
        TooLarge: A limit is exceeded.
    """
    logs = request.observation_log.metric_logs
    if len(logs) > KATIB_REPORT_LOGS_MAX:
        raise TooLarge(
            f"a report has at most {KATIB_REPORT_LOGS_MAX} logs (katib_report_logs_max); "
            f"this has {len(logs)}: send several"
        )
    indices: dict[str, int] = {}
    times_by_text: dict[str, int] = {}
    metric, times, values, numbers = [], [], [], []
    for position, log in enumerate(logs):
        stamp = log.time_stamp
        if not stamp:
            continue
        time = times_by_text.get(stamp)
        if time is None:
            time = times_by_text[stamp] = _parse_timestamp(stamp, position)
        if not log.HasField("metric"):
            raise Invalid(f"metric_logs[{position}] has no metric")
        sent = log.metric
        value = sent.value
        metric.append(indices.setdefault(sent.name, len(indices)))
        times.append(time)
        values.append(value.encode())
        numbers.append(parse_number(value))
    _check(indices, values)

    return Logs(
        list(indices),
        np.array(metric, np.int64),
        np.array(times, np.int64),
        np.full(len(times), received_at),
        values,
        np.array(numbers, np.float64),  # None becomes NaN
        np.array([number is not None for number in numbers], np.bool_),
    )


def compute_wall_times(times: Int64s, received_at: Float64s) -> Float64s:
    """Return the wall times of points, in seconds: Go's zero time means when it was received."""
    wall_times: Float64s = np.where(times == ZERO_TIME, received_at, times.astype(np.float64) / 1e6)
    return wall_times


def _parse_timestamp(stamp: str, position: int) -> int:
    try:
        return parse_timestamp(stamp)
    except ValueError as error:
        raise Invalid(f"metric_logs[{position}].time_stamp {stamp[:50]!r}: {error}") from error


def _check(metrics: Mapping[str, int], values: Sequence[bytes]) -> None:
    if len(metrics) > KATIB_REPORT_METRICS_MAX:
        limit = f"{KATIB_REPORT_METRICS_MAX} metrics (katib_report_metrics_max)"
        raise TooLarge(f"a report has at most {limit}; this has {len(metrics)}: send several")
    for name in metrics:
        check_name("a metric's name", name)
    longest = max(map(len, values), default=0)
    if longest > KATIB_VALUE_BYTES_MAX:
        limit = f"{KATIB_VALUE_BYTES_MAX} bytes (katib_value_bytes_max)"
        raise TooLarge(f"a value has at most {limit}; this has {longest}")


def note_report(
    recent: bytes, request: ReportObservationLogRequest, received_at: float
) -> bytes | None:
    """Return the recent reports with this one; None if it is one of them, sent again.

    Equal bytes mean the same report for `KATIB_REPEAT_SECONDS_MAX`, while it is one of the last
    `KATIB_REPEAT_ITEMS_MAX` of the trial.
    """
    content = request.SerializeToString(deterministic=True)
    digest = hashlib.sha256(content).digest()[:16]
    now = int(received_at * 1e6)
    since = now - KATIB_REPEAT_SECONDS_MAX * 1_000_000
    known = [(time, each) for time, each in _RECENT.iter_unpack(recent) if time >= since]
    if any(each == digest for _, each in known):
        return None
    kept = [*known, (now, digest)][-KATIB_REPEAT_ITEMS_MAX:]
    return b"".join(_RECENT.pack(*item) for item in kept)
