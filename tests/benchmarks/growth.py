"""Upload time per scalar with 100 million scalars in the database, against one million: in turns."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from pathlib import Path

from bench import Bench, say
from logdirs import MILLION, Size, write_scalars
from machine import report
from recording import Request, recorded, send
from service import Service
from storage import wait_for_merge
from upload import upload

from tbwire import wire_pb2

COPIES = 100
EXPERIMENTS = 10
DISK_BYTES_A_POINT = 60
"""For a while: tails, blocks, the write-ahead log."""


def measure(bench: Bench) -> None:
    """Fills one database with what was recorded once, under other runs, and leaves another with one
    million.
    """
    size = MILLION
    copies = max(1, round(COPIES * bench.scale))
    bench.need_disk(size.points * copies * DISK_BYTES_A_POINT)
    logdir = bench.directory / "logdir"
    say(f"writing and recording {size.points:,} scalars")
    write_scalars(logdir, size)
    with bench.new_service("small") as small, bench.new_service("large") as large:
        with recorded(small.live.url) as recording:
            upload(small, logdir, server=recording.url)
        _fill(large, recording.requests, copies, size)
        say("waiting until everything is merged, then a checkpoint")
        wait_for_merge(large)
        wait_for_merge(small)
        large.query("VACUUM ANALYZE")
        large.query("CHECKPOINT")
        database_bytes = large.query("SELECT pg_database_size(current_database())")[0][0]
        report(
            "the large database",
            f"{database_bytes / 2**20:,.0f} MiB",
            f"{size.points * copies:,} scalars",
        )
        _compare(bench, small, large, logdir, recording.requests, size)


def _fill(service: Service, requests: list[Request], copies: int, size: Size) -> None:
    """Commits the recorded batches `copies` times: some experiments with many runs each."""
    say(f"filling the large database with {size.points * copies:,} scalars")
    began = time.monotonic()
    experiments = [
        service.api.new_experiment(name=f"old {number}")
        for number in range(min(EXPERIMENTS, copies))
    ]
    for copy in range(copies):
        send(
            service.live.url,
            experiments[copy % len(experiments)],
            rename_runs(requests, copy, service.token),
        )
        if copy % 10 == 9:
            say(f"{size.points * (copy + 1):,} scalars after {time.monotonic() - began:.0f} s")


def rename_runs(requests: list[Request], copy: int, token: str) -> list[Request]:
    """The batches as those of other runs: streams that the experiment has not seen."""
    renamed = []
    for request in requests:
        batch = wire_pb2.WriteBatch.FromString(request.body)
        for segment in batch.segments:
            segment.stream.run = f"copy_{copy:03d}/{segment.stream.run}"
        headers = request.headers | {"Authorization": f"Bearer {token}"}
        renamed.append(replace(request, body=batch.SerializeToString(), headers=headers))
    return renamed


def _compare(
    bench: Bench, small: Service, large: Service, logdir: Path, requests: list[Request], size: Size
) -> None:
    whole: dict[str, list[float]] = {"small": [], "large": []}
    alone: dict[str, list[float]] = {"small": [], "large": []}
    rounds = max(5, bench.rounds)
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for name, service in (("small", small), ("large", large)):
            whole[name].append(upload(service, logdir).seconds)
            experiment_id = service.api.new_experiment(name="measured")
            alone[name].append(
                send(service.live.url, experiment_id, rename_runs(requests, 0, service.token))
            )
    for what, seconds in (
        ("`tbupload --one-shot`", whole),
        ("the server alone, prepared batches", alone),
    ):
        few, many = statistics.median(seconds["small"]), statistics.median(seconds["large"])
        report(f"{what}, few points there: scalars/s", f"{size.points / few:,.0f}")
        report(f"{what}, many points there: scalars/s", f"{size.points / many:,.0f}")
        report("  time a scalar, many : few", f"{many / few:.2f} x", "at most 1.2 x")
