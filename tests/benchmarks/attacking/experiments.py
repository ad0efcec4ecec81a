"""The experiments that attackers and victims have, as batches made once and sent to a running
service.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from support.batches import (
    ApiClient,
    batch,
    metadata,
    packed_scalars,
    scalars,
    segment,
    stream,
    texts,
)
from support.event_files import encode_record, graph_event, version_event
from support.servers import database_name
from tbservice import limits
from tbwire import wire_pb2

POINTS = 20_000_000
POINT_SERIES = 20
BATCH_POINTS = 500_000
WIDE_RUNS, WIDE_TAGS = 5_001, 100_000
BATCH_SERIES = 4_000
GRAPH_NODES = 600_000
MERGE_SECONDS_MAX = 120
SEND_SECONDS_MAX = 300
SEND_ATTEMPTS = 10


def write(api: ApiClient, name: str, scale: float, directory: Path) -> str:
    """Write the experiment of that name and return its id; it is private when it is called so, else
    open by link.
    """
    experiment_id = api.new_experiment(
        name=name, visibility="private" if name == "private" else "link"
    )
    _WRITERS[name](api, experiment_id, scale, directory)
    return experiment_id


def wait_for_merges(servers: object, settings: object) -> None:
    """Wait until no series is due for a merge, so that merges are no part of what is measured; not
    for ever.
    """
    due = f"SELECT 1 FROM time_series WHERE tail_points >= {limits.WRITE_BUFFER_POINTS_MAX} LIMIT 1"  # noqa: S608 - a constant
    database = database_name(settings.database_url.get_secret_value())  # type: ignore[attr-defined]  # Settings
    end = time.monotonic() + MERGE_SECONDS_MAX
    with servers.instance.postgres.connect_as_superuser(database) as db:  # type: ignore[attr-defined]  # Servers
        while db.execute(due).fetchone() and time.monotonic() < end:
            time.sleep(0.5)


def _send(api: ApiClient, experiment_id: str, *segments: wire_pb2.Segment) -> None:
    path = f"/experiments/{experiment_id}/batches"
    headers = {"Content-Type": "application/x-protobuf"}
    body = batch(*segments)
    for _ in range(SEND_ATTEMPTS):
        answer = api.request("POST", path, content=body, headers=headers, timeout=SEND_SECONDS_MAX)
        if answer.status_code not in {429, 503}:
            break
        time.sleep(1)  # a slow machine: as `tbupload` does
    answer.raise_for_status()


def _write_points(api: ApiClient, experiment_id: str, scale: float, _directory: Path) -> None:
    """20 series of a million points; all have the same ones, which are packed once."""
    count = max(10_000, round(POINTS * scale / POINT_SERIES))
    random = np.random.default_rng(0)
    offset = 0
    for start in range(0, count, BATCH_POINTS):
        steps = np.arange(start, min(count, start + BATCH_POINTS))
        values = np.float32(np.exp(-steps / 2e5) + random.normal(0, 0.05, len(steps)))
        wall_times = 1.7e9 + np.cumsum(random.exponential(0.01, len(steps))) + start
        packed = packed_scalars("", steps, values, wall_times)
        for number in range(POINT_SERIES):
            packed.tag = f"metrics/tag_{number:02d}"
            _send(api, experiment_id, segment(stream(), offset, offset + len(steps), packed))
            offset += len(steps)


def _write_answers(api: ApiClient, experiment_id: str, _scale: float, _directory: Path) -> None:
    """80 series of 5,000 points: 15 MB of JSON."""
    steps = np.arange(5_000)
    random = np.random.default_rng(0)
    for start in range(0, 80, 20):
        series = [
            scalars(f"metrics/tag_{tag:02d}", steps, random.normal(size=5_000))
            for tag in range(start, start + 20)
        ]
        _send(api, experiment_id, segment(stream(), start, start + 20, *series))


def _write_few(api: ApiClient, experiment_id: str, _scale: float, _directory: Path) -> None:
    """20 series of 5,000 points."""
    steps = np.arange(5_000)
    series = [scalars(f"metrics/tag_{tag:02d}", steps) for tag in range(20)]
    _send(api, experiment_id, segment(stream(), 0, 1, *series))


def _write_text(api: ApiClient, experiment_id: str, _scale: float, _directory: Path) -> None:
    """A text that Markdown takes seconds for."""
    _send(api, experiment_id, segment(stream(), 0, 1, texts("note", [0], [b"[" * 6_000])))


def _write_wide(api: ApiClient, experiment_id: str, scale: float, _directory: Path) -> None:
    """5,001 runs, 100,000 tags, two of each tag's series: each run has tags of its own."""
    runs, tags = max(2, round(WIDE_RUNS * scale)), max(40, round(WIDE_TAGS * scale))
    own = tags // runs
    summary = metadata()
    pending: list[wire_pb2.Segment] = []
    for run in range(runs):
        names = [f"t{(run * own + number) % tags:06d}" for number in range(2 * own)]
        series = [scalars(name, [0], summary_metadata=summary) for name in names]
        pending.append(segment(stream(f"r{run:05d}"), 0, 1, *series))
        if len(pending) * 2 * own >= BATCH_SERIES or run == runs - 1:
            _send(api, experiment_id, *pending)
            pending = []


def _write_graph(_api: ApiClient, experiment_id: str, scale: float, directory: Path) -> None:
    """A graph of 55 MiB, sent by `tbupload` as any other."""
    nodes = b"".join(
        b"\x0a" + _length(node) + node
        for node in (_node(number) for number in range(round(GRAPH_NODES * scale)))
    )
    logdir = directory / "graph" / "train"
    logdir.mkdir(parents=True)
    events = [version_event(1.7e9), graph_event(nodes)]
    content = b"".join(encode_record(event.SerializeToString()) for event in events)
    (logdir / "events.out.tfevents.1700000000.graph").write_bytes(content)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TBHUB_")}
    environment = kept | {
        "TBHUB_SERVER": str(_api.client.base_url),
        "TBHUB_TOKEN": _api.headers["Authorization"].removeprefix("Bearer "),
        "TBHUB_CONFIG": str(directory / "config.toml"),
    }
    command = [
        sys.executable,
        "-m",
        "tbupload",
        "--logdir",
        str(logdir.parent),
        "--one-shot",
        "--quiet",
    ]
    command += ["--experiment", experiment_id]
    subprocess.run(
        command, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=SEND_SECONDS_MAX
    )


def _node(number: int) -> bytes:
    """A NodeDef {name = 1, op = 2, input = 3} of about 100 bytes, which follows the one before."""
    name, before = (
        f"scope_{number % 100}/node_{number}",
        f"scope_{(number - 1) % 100}/node_{number - 1}",
    )
    fields = [(b"\x0a", name), (b"\x12", "Identity" * 6), *([(b"\x1a", before)] if number else [])]
    return b"".join(key + _length(text.encode()) + text.encode() for key, text in fields)


def _length(content: bytes) -> bytes:
    """The length as a varint; every node's is below 128."""
    assert len(content) < 128
    return bytes([len(content)])


def _nothing(_api: ApiClient, _experiment_id: str, _scale: float, _directory: Path) -> None:
    """Leave it empty: it is written to later."""


_WRITERS: dict[str, Callable[[ApiClient, str, float, Path], None]] = {
    "points": _write_points,
    "answers": _write_answers,
    "small": _write_few,
    "text": _write_text,
    "wide": _write_wide,
    "graph": _write_graph,
    "private": _write_few,
    "link": _write_few,
    "written": _nothing,
}
