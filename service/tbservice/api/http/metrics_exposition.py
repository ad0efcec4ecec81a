"""The response of `/metrics`: metrics of this process, or with several workers their sum.

Workers share a directory, where each one has its own files, mapped into memory. `prometheus_client`
does so if PROMETHEUS_MULTIPROC_DIR is set before its first import; workers are forked after that,
and call `share_metrics` (metrics.py). The files of a replaced worker stay, so that no counter
decreases; only its gauges are removed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from tbservice import limits
from tbservice.errors import StartupError
from tbservice.metrics import REGISTRY

_DIRECTORY_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - used only as parent of a mkdtemp directory

_FREE_BYTES_MIN: Final = 32 * 1024 * 1024
"""Free bytes of /dev/shm to use it."""

REFUSALS: Final = (
    "tbhub_http_errors",
    "tbhub_over_share",
    "tbhub_sign_in_failures",
    "tbhub_page_reports",
)
"""Counters of what was refused, and of what readers reported, which operators see."""

_GROWING_KINDS: Final = ("counter", "histogram")
"""Files that grow with the routes that are used: they are reserved whole."""

_OTHER_FILE_BYTES: Final = 64 * 1024
"""Bytes that are reserved for any other file of a worker."""

_WORKER_BYTES: Final = (len(_GROWING_KINDS) + 1) * limits.METRICS_FILE_BYTES
"""Free bytes that a worker needs to start; all other files together need less than one file."""

ProcessCollector(registry=REGISTRY)


@contextmanager
def multiprocess_metrics() -> Iterator[None]:
    """Let workers that are started in this block sum up their metrics; they are deleted at its end.

    The directory is in memory if the system has /dev/shm with room.
    """
    parent = _SHARED_MEMORY if _has_room(_SHARED_MEMORY) else None
    with tempfile.TemporaryDirectory(prefix="tbhub-metrics-", dir=parent) as directory:
        os.environ[_DIRECTORY_VARIABLE] = directory
        try:
            yield
        finally:
            del os.environ[_DIRECTORY_VARIABLE]


def _has_room(directory: Path) -> bool:
    return os.access(directory, os.W_OK) and shutil.disk_usage(directory).free >= _FREE_BYTES_MIN


def reserve_metrics_space() -> None:
    """Let the files of this worker's metrics have all their blocks on the disk.

    They are sparse, and a write to a mapped file on a full disk kills the process (SIGBUS). A file
    that outgrows its first size, when some 200 routes were used, is not protected.

    Raises:
        StartupError: The disk is full.
    """
    directory = os.environ.get(_DIRECTORY_VARIABLE)
    if directory is None:
        return
    try:
        for path in Path(directory).glob(f"*_{os.getpid()}.db"):
            grows = path.name.startswith(_GROWING_KINDS)
            size = limits.METRICS_FILE_BYTES if grows else _OTHER_FILE_BYTES
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        raise StartupError(
            f"no room for the metrics in {directory}: {error.strerror}; make room there"
        ) from error


def release_metrics_space(pid: int) -> None:
    """Free what a worker that has ended reserved and did not use; its counts stay in the sums."""
    directory = os.environ.get(_DIRECTORY_VARIABLE)
    if directory is None:
        return
    for path in Path(directory).glob(f"*_{pid}.db"):
        with suppress(OSError), path.open("r+b") as file:
            file.truncate(int.from_bytes(file.read(4), sys.byteorder))  # the bytes in use


def has_metrics_room(workers: int) -> bool:
    """Return whether so many more workers have room for the files of their metrics."""
    directory = os.environ.get(_DIRECTORY_VARIABLE)
    return directory is None or shutil.disk_usage(directory).free >= workers * _WORKER_BYTES


def expose(accept: str) -> tuple[bytes, str]:
    """Return all metrics in the text format for this Accept header, and its content type."""
    encode, content_type = choose_encoder(accept)
    return encode(_find_registry()), content_type


def read_counters(*names: str) -> dict[str, list[tuple[dict[str, str], int]]]:
    """Return labels and counts of these counters, the greatest first; those of 0 are left out."""
    return _pick_counters(_find_registry().collect(), names)


def parse_counters(exposed: str, *names: str) -> dict[str, list[tuple[dict[str, str], int]]]:
    """Return the same of the counters in the text that `expose` returned, of any host."""
    return _pick_counters(text_string_to_metric_families(exposed), names)


def _pick_counters(
    families: Iterable[Metric], names: tuple[str, ...]
) -> dict[str, list[tuple[dict[str, str], int]]]:
    found: dict[str, list[tuple[dict[str, str], int]]] = {name: [] for name in names}
    for metric in families:
        if metric.name in found:
            counts = [(each.labels, int(each.value)) for each in metric.samples if each.value]
            found[metric.name] = sorted(counts, key=lambda item: (-item[1], *item[0].values()))
    return found


def _find_registry() -> CollectorRegistry:
    """Return the metrics of this process, or of all workers of this host."""
    directory = os.environ.get(_DIRECTORY_VARIABLE)
    return _sum_over_workers(directory) if directory else REGISTRY


def _sum_over_workers(directory: str) -> CollectorRegistry:
    living = []
    for pid in {int(path.stem.rpartition("_")[2]) for path in Path(directory).glob("*.db")}:
        if Path(f"/proc/{pid}").exists():
            living.append(pid)
        else:
            mark_process_dead(pid, directory)
    registry = CollectorRegistry()
    MultiProcessCollector(registry, directory)
    registry.register(_WorkerProcessCollector(sorted(living)))
    return registry


class _WorkerProcessCollector(Collector):
    """Collector of CPU time and memory of several processes, with the label `pid`."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = pids

    def collect(self) -> Iterable[Metric]:
        """Return one metric family per quantity, with one sample per process."""
        families: dict[str, Metric] = {}
        for pid in self._pids:
            for metric in ProcessCollector(pid=partial(int, pid), registry=None).collect():
                family = families.setdefault(
                    metric.name, Metric(metric.name, metric.documentation, metric.type)
                )
                for sample in metric.samples:
                    family.add_sample(sample.name, {"pid": str(pid)}, sample.value)
        return families.values()
