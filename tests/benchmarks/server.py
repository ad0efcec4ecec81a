"""The server alone: prepared batches to committed, against COPY of the same points into a bare
row-per-point table; and small requests, against `/healthz` and a bare statement.
"""

from __future__ import annotations

import http
import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
import psycopg
import urllib3
from bench import Bench, say
from logdirs import Size
from machine import report, spent, time_each, told
from prepared import make_batches, make_columns, send
from service import Service
from upload import check_readable

from support.batches import PROTOBUF

SIZE = Size(10, 20, 10_000)
FLUSH_TAGS = 50
TURNS, TURN_REQUESTS = 40, 25
"""Turns of each kind of request, and requests of a turn."""

WARM_REQUESTS = 30
SETTINGS = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_compression",
    "shared_buffers",
    "max_wal_size",
)
_COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_FOOTER = b"\xff\xff"
_COLUMNS = {"series": ">i4", "step": ">i8", "wall_time": ">f8", "value": ">f8"}
_ROW = np.dtype(
    [("fields", ">i2")]
    + [
        field
        for name, kind in _COLUMNS.items()
        for field in ((f"{name}_size", ">i4"), (name, kind))
    ]
)


def measure(bench: Bench) -> None:
    """Measure prepared batches and small requests; `--only` takes one of the two."""
    with bench.new_service() as service:
        say(", ".join(f"{name} {service.query(f'SHOW {name}')[0][0]}" for name in SETTINGS))
        if bench.is_chosen("batches"):
            _measure_batches(bench, service)
        if bench.is_chosen("requests"):
            _measure_requests(service)


def _measure_batches(bench: Bench, service: Service) -> None:
    """Send the batches in turns with COPY of the same points into the same PostgreSQL."""
    size = SIZE.scaled(bench.scale)
    say(f"encoding {size.points:,} scalars of {size.runs} runs with {size.tags} tags")
    batches, rows = make_batches(size), list(_encode_rows(size))
    ours, copies = [], []
    for number in range(bench.rounds):
        experiment_id = service.api.new_experiment(name="prepared")
        before = service.cpu_seconds()
        ours.append(send(service, experiment_id, batches))
        used = spent(before, service.cpu_seconds())
        copies.append(_copy(service, rows))
        say(f"round {number + 1}: {ours[-1]:.2f} s ({told(used)} CPU), COPY {copies[-1]:.2f} s")
        check_readable(service, experiment_id, size)
    service.query("CHECKPOINT")
    seconds, copied = statistics.median(ours), statistics.median(copies)
    report("prepared batches to committed, one worker: scalars/s", f"{size.points / seconds:,.0f}")
    report("binary COPY into rows with key (series, step): rows/s", f"{size.points / copied:,.0f}")
    report("  ours : COPY", f"{copied / seconds:.1f} x", "at least 5 x")


def _encode_rows(size: Size) -> Iterator[bytes]:
    """Encode the points of each series as rows of PostgreSQL's binary COPY format."""
    series = 0
    for run in make_columns(size):
        for columns in run:
            rows = np.zeros(size.steps, _ROW)
            rows["fields"] = len(_COLUMNS)
            for name in _COLUMNS:
                rows[f"{name}_size"] = rows.dtype[name].itemsize
            rows["series"], series = series, series + 1
            rows["step"], rows["wall_time"] = columns.steps, columns.wall_times
            rows["value"] = columns.values
            yield rows.tobytes()


def _copy(service: Service, pieces: list[bytes]) -> float:
    """Return the seconds of COPY into a bare table, committed; the table is dropped after."""
    with service.servers.instance.postgres.connect_as_superuser(service.database_name) as db:
        columns = "series integer, step bigint, wall_time double precision, value double precision"
        db.execute(f"CREATE TABLE bench_rows ({columns}, PRIMARY KEY (series, step))")
        try:
            began = time.perf_counter()
            _write(db, [_COPY_HEADER, *pieces, _COPY_FOOTER])
            return time.perf_counter() - began
        finally:
            db.execute("DROP TABLE bench_rows")


def _write(db: psycopg.Connection, pieces: list[bytes]) -> None:
    with db.cursor().copy("COPY bench_rows FROM STDIN (FORMAT binary)") as copy:
        for piece in pieces:
            copy.write(piece)


def _measure_requests(service: Service) -> None:
    """Send small requests of each kind in turns, over one connection, and one after the other."""
    with psycopg.connect(service.live.database_url, autocommit=True) as db:
        cases = {
            "a statement, without the service": lambda: db.execute("SELECT 1").fetchone(),
            **_list_requests(service),
        }
        for request in cases.values():
            for _ in range(WARM_REQUESTS):
                request()
        seconds: defaultdict[str, list[float]] = defaultdict(list)
        used: defaultdict[str, dict[str, float]] = defaultdict(dict)
        for _ in range(TURNS):
            for name, request in cases.items():
                before = service.cpu_seconds()
                seconds[name] += time_each(request, TURN_REQUESTS)
                for group, each in spent(before, service.cpu_seconds()).items():
                    used[name][group] = used[name].get(group, 0.0) + each

    least = statistics.median(seconds["/healthz"])
    for name, each in seconds.items():
        median, last = np.quantile(each, [0.5, 0.95]) * 1000
        cpu = {group: total / len(each) * 1000 for group, total in used[name].items()}
        report(
            f"{name}: median / 95th percentile",
            f"{median:.2f} / {last:.2f} ms",
            f"{median / least / 1000:.1f} x /healthz; CPU: "
            + ", ".join(f"{group} {spent_ms:.2f} ms" for group, spent_ms in cpu.items()),
        )


def _list_requests(service: Service) -> dict[str, Callable[[], object]]:
    """Return the requests by name."""
    flushes = iter(make_batches(Size(1, FLUSH_TAGS, WARM_REQUESTS + TURNS * TURN_REQUESTS), 1)[0])
    experiment_id = service.api.new_experiment(name="requests")
    base = f"/api/v1/experiments/{experiment_id}"
    pool = urllib3.PoolManager(maxsize=1)

    def send(status: int, method: str, path: str, **options: object) -> urllib3.BaseHTTPResponse:
        headers = {"Authorization": f"Bearer {service.token}", **options.pop("headers", {})}
        url = service.live.url + path
        answer = pool.request(method, url, headers=headers, retries=False, **options)
        assert answer.status == status, answer.data
        return answer

    def send_flush() -> None:
        content = next(flushes)
        send(http.HTTPStatus.OK, "POST", f"{base}/batches", body=content, headers=PROTOBUF)

    unchanged = f"/api/v1/experiments/{service.api.new_experiment(name='unchanged')}"
    first = make_batches(Size(1, FLUSH_TAGS, 1), 1)[0][0]
    send(http.HTTPStatus.OK, "POST", f"{unchanged}/batches", body=first, headers=PROTOBUF)
    sample = f"{unchanged}/scalars/data?downsample"
    known = {"If-None-Match": send(http.HTTPStatus.OK, "GET", f"{sample}=1").headers["ETag"]}
    numbers = itertools.count(2)
    return {
        "/healthz": lambda: send(http.HTTPStatus.NO_CONTENT, "GET", "/healthz"),
        "/api/v1/me": lambda: send(http.HTTPStatus.OK, "GET", "/api/v1/me"),
        "an experiment": lambda: send(http.HTTPStatus.OK, "GET", base),
        "an answer that the client has (304)": lambda: send(
            http.HTTPStatus.NOT_MODIFIED, "GET", f"{sample}=1", headers=known
        ),
        "an answer that another viewer got": lambda: send(http.HTTPStatus.OK, "GET", f"{sample}=1"),
        f"a sample of {FLUSH_TAGS} series, read": lambda: send(
            http.HTTPStatus.OK, "GET", f"{sample}={next(numbers)}"
        ),
        f"a flush of {FLUSH_TAGS} tags": send_flush,
    }
