"""What a scrape of `/metrics` answers: this process's metrics, or with several workers the sum over them.

Workers share a directory in which each keeps its metrics in files of its own, mapped into memory: the library does so
where PROMETHEUS_MULTIPROC_DIR is set before its first import. The files of a worker that was replaced stay, so that no
counter ever falls; only its gauges are forgotten.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from tbservice.metrics import REGISTRY

_DIRECTORY_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - only what mkdtemp makes in it is used

ProcessCollector(registry=REGISTRY)


@contextmanager
def multiprocess_metrics() -> Iterator[None]:
    """Lets the workers that are started in this block add up their metrics; none is kept afterwards.

    The directory is in memory where the system has such a place: on a full disk a mapped file ends its process.
    """
    parent = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tbhub-metrics-", dir=parent) as directory:
        os.environ[_DIRECTORY_VARIABLE] = directory
        try:
            yield
        finally:
            del os.environ[_DIRECTORY_VARIABLE]


def expose(accept: str) -> tuple[bytes, str]:
    """All metrics in the text format that an Accept header asks for, and its content type."""
    encode, content_type = choose_encoder(accept)
    directory = os.environ.get(_DIRECTORY_VARIABLE)
    return encode(_sum_over_workers(directory) if directory else REGISTRY), content_type


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
    """CPU time and memory of several processes, told apart by their ids."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = pids

    def collect(self) -> Iterable[Metric]:
        """One family a figure, with one sample a process."""
        families: dict[str, Metric] = {}
        for pid in self._pids:
            for found in ProcessCollector(pid=partial(int, pid), registry=None).collect():
                family = families.setdefault(
                    found.name, Metric(found.name, found.documentation, found.type)
                )
                for sample in found.samples:
                    family.add_sample(sample.name, {"pid": str(pid)}, sample.value)
        return families.values()
