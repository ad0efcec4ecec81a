"""Event files to measure with: scalars as PyTorch's SummaryWriter writes them, an event each, step by step."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from support.event_files import encode_record, version_event

STARTED = 1_700_000_000.0


@dataclass(frozen=True)
class Size:
    """How many runs, tags a run, and steps a tag."""

    runs: int
    tags: int
    steps: int

    @property
    def points(self) -> int:
        return self.runs * self.tags * self.steps


MILLION = Size(10, 20, 5_000)


def write_scalars(logdir: Path, size: Size = MILLION) -> int:
    """Writes a file a run and returns the bytes of all: 53 to 55 a point."""
    return sum(_write_run(logdir / f"run_{run:02d}", size, run) for run in range(size.runs))


def _write_run(directory: Path, size: Size, seed: int) -> int:
    directory.mkdir(parents=True)
    random = np.random.default_rng(seed)
    values = np.exp(-np.arange(size.steps) / 1000)[:, None] + random.normal(0, 0.05, (size.steps, size.tags))
    wall_times = STARTED + np.cumsum(random.exponential(0.01, (size.steps, size.tags)).ravel()).reshape(values.shape)
    tags = [_length_delimited(1, f"metrics/tag_{tag:02d}".encode()) for tag in range(size.tags)]
    records = [encode_record(version_event(STARTED).SerializeToString())]
    for step in range(size.steps):
        step_field = b"\x10" + _varint(step) if step else b""
        for tag, wall_time, value in zip(tags, wall_times[step].tolist(), values[step].tolist(), strict=True):
            summary = _length_delimited(1, tag + struct.pack("<Bf", 0x15, value))
            event = struct.pack("<Bd", 0x09, wall_time) + step_field + _length_delimited(5, summary)
            records.append(encode_record(event))
    return (directory / "events.out.tfevents.1700000000.benchmark.0").write_bytes(b"".join(records))


def _varint(number: int) -> bytes:
    groups = bytearray()
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*groups, number))


def _length_delimited(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content
