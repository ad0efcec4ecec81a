"""Prepared batches: points that are encoded once, and sent as fast as the server takes them.

An experiment knows nothing of another's streams, so the same bytes are new to each.
"""

from __future__ import annotations

import http
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import urllib3
from logdirs import STARTED, Size
from service import Service

from support.batches import PROTOBUF, batch, metadata, packed_scalars, scalars, segment, stream

CONNECTIONS = 3
"""Requests under way at once, as `tbupload` has."""

BATCH_STEPS = 8_192
"""Steps of a batch: one packed block of each tag."""


@dataclass(frozen=True)
class Columns:
    """The points of one tag of one run."""

    run: str
    tag: str
    steps: npt.NDArray[np.int64]
    wall_times: npt.NDArray[np.float64]
    values: npt.NDArray[np.float32]

    def part(self, start: int, end: int) -> Columns:
        """Return the points from index `start` up to `end`."""
        columns = (self.steps, self.wall_times, self.values)
        return Columns(self.run, self.tag, *(column[start:end] for column in columns))


def make_columns(size: Size) -> Iterator[list[Columns]]:
    """Make the points of each run: noisy curves, written a moment after each other."""
    steps = np.arange(size.steps)
    for run in range(size.runs):
        random = np.random.default_rng(run)
        columns = []
        for tag in range(size.tags):
            values = np.exp(-steps / 1000) + random.normal(0, 0.05, size.steps)
            wall_times = STARTED + np.cumsum(random.exponential(0.2, size.steps))
            name = f"metrics/tag_{tag:02d}"
            columns.append(Columns(f"run_{run:04d}", name, steps, wall_times, np.float32(values)))
        yield columns


def make_batches(size: Size, batch_steps: int = BATCH_STEPS) -> list[list[bytes]]:
    """Return the batches of each run in their order; those of one step are as a live flush's."""
    return [list(_encode(columns, batch_steps)) for columns in make_columns(size)]


def _encode(columns: Sequence[Columns], batch_steps: int) -> Iterator[bytes]:
    encode = partial(packed_scalars, block_points=BATCH_STEPS) if batch_steps > 1 else scalars
    for start in range(0, len(columns[0].steps), batch_steps):
        described = b"" if start else metadata()  # as the uploader: once
        series = []
        for column in columns:
            part = column.part(start, start + batch_steps)
            series.append(encode(column.tag, part.steps, part.values, part.wall_times))
            series[-1].summary_metadata = described
        end = start + len(part.steps)
        yield batch(segment(stream(columns[0].run), start * 1000, end * 1000, *series))


def send(
    service: Service,
    experiment_id: str,
    batches_by_run: Sequence[Sequence[bytes]],
    connections: int = CONNECTIONS,
) -> float:
    """Commit all batches to the experiment, those of a run in their order; return the seconds."""
    url = f"{service.live.url}/api/v1/experiments/{experiment_id}/batches"
    headers = PROTOBUF | {"Authorization": f"Bearer {service.token}"}
    pool = urllib3.PoolManager(maxsize=connections)

    def send_run(batches: Sequence[bytes]) -> None:
        for body in batches:
            answer = pool.request("POST", url, body=body, headers=headers, retries=False)
            assert answer.status == http.HTTPStatus.OK, answer.data

    began = time.perf_counter()
    with ThreadPoolExecutor(connections) as threads:
        list(threads.map(send_run, batches_by_run))
    return time.perf_counter() - began
