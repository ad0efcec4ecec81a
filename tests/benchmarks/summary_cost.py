"""The cost of summaries of scalar series: flushes and bulk batches, with and without, in turns."""

from __future__ import annotations

import http
import statistics
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack

import urllib3
from bench import Bench, say
from logdirs import Size
from machine import report, spent, told
from prepared import make_batches, send
from service import Service

from support.batches import PROTOBUF

BULK = Size(20, 20, 10_000)
FLUSH_TAGS, FLUSHES, TURNS = 50, 200, 8
LIMIT = "at most 1.03 x"

WITHOUT = """\
import sys

if "serve" in sys.argv or any("tbservice" in each for each in sys.argv):
    from tbservice.ingest import series_updates
    from tbservice.series import summary_scan

    assert callable(series_updates._extend_summary), callable(summary_scan.fill_rows)
    series_updates._extend_summary = lambda *_, **__: b""
    summary_scan.fill_rows = lambda _db, _id, rows: rows
"""
"""A `sitecustomize` of a worker that computes and stores no summary. Without the column, it would
look for it in each transaction, and cost more.
"""


def measure_summaries(bench: Bench) -> None:
    """Send the same batches to two services on one PostgreSQL; print processor time as ratios."""
    patch = bench.directory / "without"
    patch.mkdir()
    (patch / "sitecustomize.py").write_text(WITHOUT)
    with ExitStack() as stack:
        without = stack.enter_context(bench.new_service("none", PYTHONPATH=str(patch)))
        sides = {"with": stack.enter_context(bench.new_service("kept")), "without": without}
        bulk = make_batches(BULK.scaled(bench.scale))
        flushes = {side: _open_flushes(service) for side, service in sides.items()}
        cpu: defaultdict[str, list[float]] = defaultdict(list)
        for turn in range(TURNS + 1):
            order = list(sides) if turn % 2 else list(sides)[::-1]
            for side in order:
                for kind, used in _measure_turn(sides[side], flushes[side], bulk):
                    if turn:  # the first turn of each creates pools and plans
                        cpu[f"{kind} {side}"].append(sum(used.values()))
                    say(f"{kind} {side} summaries: {told(used)} CPU")
        for kind in ("flush", "bulk"):
            pairs = zip(cpu[f"{kind} with"], cpu[f"{kind} without"], strict=True)
            ratio = statistics.median(mine / its for mine, its in pairs)
            together = sum(cpu[f"{kind} with"]) / sum(cpu[f"{kind} without"])
            report(
                f"{kind} with summaries : without, processor time of server and PostgreSQL",
                f"{ratio:.3f} x (of all turns together {together:.3f} x)",
                LIMIT,
            )


def _open_flushes(service: Service) -> Iterator[bytes]:
    """Yield the answers of flushes of one point for each tag, to one experiment."""
    experiment_id = service.api.new_experiment(name="flushes")
    url = f"{service.live.url}/api/v1/experiments/{experiment_id}/batches"
    headers = {"Authorization": f"Bearer {service.token}", **PROTOBUF}
    pool = urllib3.PoolManager(maxsize=1)
    for content in make_batches(Size(1, FLUSH_TAGS, FLUSHES * (TURNS + 1)), 1)[0]:
        answer = pool.request("POST", url, body=content, headers=headers, retries=False)
        assert answer.status == http.HTTPStatus.OK, answer.data
        yield answer.data


def _measure_turn(
    service: Service, flushes: Iterator[bytes], bulk: list[list[bytes]]
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the processor time of a turn of flushes, and of one bulk upload, by process."""
    before = service.cpu_seconds()
    for _ in range(FLUSHES):
        next(flushes)
    yield "flush", spent(before, service.cpu_seconds())
    experiment_id = service.api.new_experiment(name="bulk")
    before = service.cpu_seconds()
    send(service, experiment_id, bulk)
    yield "bulk", spent(before, service.cpu_seconds())
