"""Event files to measure with, byte for byte as writers leave them, made fast: millions of points
in seconds.

Of each kind of step one is encoded by protobuf, with marks where numbers go; all steps like it are
rows of a matrix that is filled in by column. RustBoard, which checks checksums as well, reads what
comes out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from support.event_files import (
    FOOTER_BYTES,
    HEADER_BYTES,
    encode_record,
    scalar_event,
    version_event,
)
from tbupload.events import linear_checksum
from tbwire import tensorboard_pb2 as pb

STARTED = 1_700_000_000.0
FILE_NAME = "events.out.tfevents.1700000000.benchmark.0"

_WALL_MARK = bytes.fromhex("f1f2f3f4f5f6d941")
_VALUE_MARK = bytes.fromhex("e1e2e341")
WALL = struct.unpack("<d", _WALL_MARK)[0]
VALUE = struct.unpack("<f", _VALUE_MARK)[0]
_SAME_BYTES = (1, 128, 16_384, 2_097_152, 268_435_456)
"""From each of these steps on, a step's varint has one byte more; step 0 has none."""

_MATRIX_BYTES = 32 << 20
_WORDS = (
    "loss",
    "loss/train",
    "lr",
    "accuracy/top_1",
    "grad_norm",
    "time/step",
    "time/data_loading",
    "perplexity",
)


@dataclass(frozen=True)
class Size:
    """How many runs, tags a run, and steps a tag."""

    runs: int
    tags: int
    steps: int

    @property
    def points(self) -> int:
        return self.runs * self.tags * self.steps

    def scaled(self, factor: float) -> Size:
        """As many runs and tags, with other steps."""
        return Size(self.runs, self.tags, max(1, round(self.steps * factor)))


MILLION = Size(10, 20, 5_000)


def tag_names(count: int) -> list[str]:
    """Names of unequal lengths, as people give them."""
    return [
        _WORDS[n] if n < len(_WORDS) else f"{_WORDS[n % len(_WORDS)]}_{n}" for n in range(count)
    ]


def write_scalars(logdir: Path, size: Size = MILLION) -> int:
    """Write a file for each run, with an event for each value as PyTorch and tensorboardX write;
    return the bytes of all. Each record is a moment after the one before.
    """
    tags = tag_names(size.tags)
    return sum(
        _write_run(logdir / f"run_{run:04d}", size, tags, np.random.default_rng(run))
        for run in range(size.runs)
    )


def encode_steps(
    tags: list[str],
    steps: npt.NDArray[np.int64],
    wall_times: npt.NDArray[np.float64],
    values: npt.NDArray[np.float64],
) -> Iterator[bytes]:
    """The records of each step, as they are appended to a file; wall times and values in (steps,
    tags).
    """
    for part in _alike(steps, tags):
        row = _Row(_events(tags, int(steps[part][0])))
        rows = row.fill(steps[part], wall_times[part], values[part])
        yield from (row.tobytes() for row in rows)


def _write_run(directory: Path, size: Size, tags: list[str], random: np.random.Generator) -> int:
    directory.mkdir(parents=True)
    path = directory / FILE_NAME
    steps = np.arange(size.steps)
    moments = np.cumsum(random.exponential(0.01, size.steps * len(tags)))
    wall_times = STARTED + moments.reshape(size.steps, len(tags))
    values = np.exp(-np.arange(size.steps) / 1000)[:, None] + random.normal(
        0, 0.05, (size.steps, size.tags)
    )
    with path.open("wb") as file:
        file.write(encode_record(version_event(STARTED).SerializeToString()))
        file.writelines(encode_steps(tags, steps, wall_times, values))
        return file.tell()


def _events(tags: list[str], step: int) -> list[pb.Event]:
    """Return the events of one step, with WALL and VALUE where numbers go."""
    return [scalar_event(tag, step, VALUE, WALL) for tag in tags]


def _alike(steps: npt.NDArray[np.int64], tags: list[str]) -> Iterator[slice]:
    """Ranges of steps whose varints have one length, no more than fit into a matrix."""
    row_bytes = sum(
        event.ByteSize() + HEADER_BYTES + FOOTER_BYTES for event in _events(tags, int(steps[-1]))
    )
    longest = max(1, _MATRIX_BYTES // row_bytes)
    bounds = [0, *np.searchsorted(steps, _SAME_BYTES).tolist(), len(steps)]
    for start, end in pairwise(bounds):
        for first in range(start, end, longest):
            yield slice(first, min(end, first + longest))


class _Row:
    """The records of one step as bytes, and the columns in which the step, wall times and values
    stand.
    """

    def __init__(self, events: list[pb.Event]) -> None:
        records = [encode_record(event.SerializeToString()) for event in events]
        self.sizes = [len(record) for record in records]
        self._bytes = b"".join(records)
        self._walls = _find_all(self._bytes, _WALL_MARK)
        self._values = _find_all(self._bytes, _VALUE_MARK)

    def fill(
        self,
        steps: npt.NDArray[np.int64],
        wall_times: npt.NDArray[np.float64],
        values: npt.NDArray[np.float64],
    ) -> npt.NDArray[np.uint8]:
        """A matrix of these steps, one a row."""
        rows = np.tile(np.frombuffer(self._bytes, np.uint8), (len(steps), 1))
        is_number = np.zeros(len(self._bytes), np.bool_)
        for index, column in enumerate(self._walls):
            _put(rows, is_number, column, wall_times[:, index].astype("<f8"))
            for place, digits in enumerate(_varint_columns(steps)):
                _put(rows, is_number, column + len(_WALL_MARK) + 1 + place, digits)
        for index, column in enumerate(self._values):
            _put(rows, is_number, column, values[:, index].astype("<f4"))
        for end, size in zip(np.cumsum(self.sizes).tolist(), self.sizes, strict=True):
            payloads = rows[:, end - size + HEADER_BYTES : end - FOOTER_BYTES]
            differing = np.flatnonzero(is_number[end - size + HEADER_BYTES : end - FOOTER_BYTES])
            sums = linear_checksum.mask(linear_checksum.checksums(payloads, differing))
            rows[:, end - FOOTER_BYTES : end] = (
                sums.astype("<u4").view(np.uint8).reshape(len(rows), FOOTER_BYTES)
            )
        return rows


def _put(
    rows: npt.NDArray[np.uint8],
    is_number: npt.NDArray[np.bool_],
    column: int,
    numbers: npt.NDArray[np.generic],
) -> None:
    cells = np.ascontiguousarray(numbers).view(np.uint8).reshape(len(rows), -1)
    rows[:, column : column + cells.shape[1]] = cells
    is_number[column : column + cells.shape[1]] = True


def _varint_columns(steps: npt.NDArray[np.int64]) -> list[npt.NDArray[np.uint8]]:
    """The bytes of varints of one length, a column each; none for step 0, which is not written."""
    columns = []
    rest = steps
    while rest.any():
        columns.append((rest & 0x7F | np.where(rest >> 7, 0x80, 0)).astype(np.uint8))
        rest = rest >> 7
    return columns


def _find_all(content: bytes, mark: bytes) -> list[int]:
    patches = []
    position = content.find(mark)
    while position >= 0:
        patches.append(position)
        position = content.find(mark, position + 1)
    return patches
