"""HParams: a page of groups of 10,000 and 100,000 sessions, also while sessions are written; beside
the stock handlers, and TensorBoard on the same files.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench import Bench, say
from hparams_sessions import HPARAMS, METRICS, REQUEST, hparams, segments, write_event_files
from local_tensorboard import Site, local_tensorboard
from machine import report, report_memory, tell_times, time_each
from page_listings import site_of
from service import Service
from werkzeug.test import EnvironBuilder

from support.stock_page import ask_stock
from tbservice.auth import grants
from tbservice.db.database import Database
from tbservice.reading.source import ExperimentReader

SESSIONS = 10_000
MANY_SESSIONS = 100_000
WRITTEN_MEANWHILE = 1_000
SESSIONS_PER_BATCH = 10
PACES = {"as fast as one uploader can": 0.0, "20 a second": 0.5}
"""Seconds from one batch of sessions to the next."""

ROUNDS = 11
_STOCK_GROUPS = "data/plugin/hparams/session_groups"
_RATIO = "ours : theirs at most 1 : 50"


def measure(bench: Bench) -> None:
    """`--only` takes page, stock, local, live or many."""
    with bench.new_service() as service:
        worker, count = service.live.process.pid, int(SESSIONS * bench.scale)
        experiment_id = _write(service, count)
        if bench.is_chosen("page"):
            _measure(service, experiment_id, f"{count:,}", "at most 100 ms")
            _measure_page(service, experiment_id)
        if bench.is_chosen("live"):
            for number, (pace, seconds) in enumerate(PACES.items()):
                first = count + number * WRITTEN_MEANWHILE
                _measure_live(service, experiment_id, first, pace, seconds)
        if bench.is_chosen("stock"):
            _measure_stock(service, experiment_id)
        if bench.is_chosen("local"):
            _measure_local(bench, count)
        report_memory(worker, f"after {count:,} sessions")
        if bench.is_chosen("many"):
            many = int(MANY_SESSIONS * bench.scale)
            _measure(service, _write(service, many), f"{many:,}", "at most 1 s")
            report_memory(worker, f"after {many:,} sessions")


def _write(service: Service, count: int) -> str:
    say(f"writing {count:,} sessions of {HPARAMS} hyperparameters and {METRICS} metrics")
    experiment_id: str = service.api.new_experiment()
    for batch in segments(0, count):
        service.api.write(experiment_id, *batch)
    service.query("ANALYZE")
    return experiment_id


def _measure(service: Service, experiment_id: str, sessions: str, target: str) -> None:
    ask = _request(service, experiment_id, "session_groups", REQUEST)
    columns = _request(service, experiment_id, "experiment", {"experimentName": experiment_id})
    report(f"first request of {sessions} sessions, decoding all", tell_times(time_each(ask, 1)))
    report(
        "  100 groups, sorted and filtered by two columns",
        tell_times(time_each(ask, ROUNDS)),
        target,
    )
    report("  the columns", tell_times(time_each(columns, ROUNDS)))


def _request(
    service: Service, experiment_id: str, path: str, body: dict[str, object]
) -> Callable[[], object]:
    http = service.reader.http
    url = f"/api/v1/experiments/{experiment_id}/hparams/{path}"

    def ask() -> object:
        answer = http.post(url, json=body)
        answer.raise_for_status()
        return answer

    return ask


def _measure_live(
    service: Service, experiment_id: str, first: int, pace: str, batch_seconds: float
) -> None:
    """Other runs of the same experiment are written meanwhile."""
    ask = _request(service, experiment_id, "session_groups", REQUEST)
    with _writing(service, experiment_id, first, batch_seconds) as is_writing:
        seconds = []
        while is_writing():
            seconds.append(time_each(ask, 1)[0])
    report(
        f"  while {WRITTEN_MEANWHILE:,} sessions are written, {pace}",
        tell_times(seconds),
        "at most 100 ms",
    )


@contextmanager
def _writing(
    service: Service, experiment_id: str, first: int, batch_seconds: float
) -> Iterator[Callable[[], bool]]:
    """Writes sessions in a thread, a batch at a time; yields whether it still does."""

    def write() -> None:
        for batch in segments(first, WRITTEN_MEANWHILE, per_batch=SESSIONS_PER_BATCH):
            began = time.monotonic()
            service.api.write(experiment_id, *batch)
            time.sleep(max(0.0, began + batch_seconds - time.monotonic()))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield thread.is_alive
    finally:
        thread.join()


def _measure_page(service: Service, experiment_id: str) -> None:
    """Ask the page's route for the same, and for all sessions, as the table of runs does."""
    site = site_of(service, experiment_id)
    report(
        "  the page's route",
        tell_times(time_each(lambda: site.post(_STOCK_GROUPS, REQUEST), ROUNDS)),
    )
    names = hparams(random.Random(0))  # noqa: S311 - not for secrets
    table = {
        "allowedStatuses": REQUEST["allowedStatuses"],
        "colParams": [{"hparam": name, "includeInResult": True} for name in names],
        "sliceSize": 1_000_000,
        "includeMetrics": False,
    }
    report(
        "  all sessions, for the run table",
        tell_times(time_each(lambda: site.post(_STOCK_GROUPS, table), 5)),
    )


def _measure_stock(service: Service, experiment_id: str) -> None:
    """Send the same request to TensorBoard's handlers over the same provider, in this process."""
    database = Database(service.live.database_url, 2)
    with database.transaction() as db:
        grant = grants.grant_read(db, experiment_id, service.token)
    objects: Any = None  # none are read
    reader = ExperimentReader(grant, database, objects)

    def ask() -> None:
        builder = EnvironBuilder(f"/{_STOCK_GROUPS}", method="POST", json=REQUEST)
        status, body = ask_stock(reader, builder)
        assert status == 200, body

    report(
        "  TensorBoard's handlers, over the same provider", tell_times(time_each(ask, 3)), _RATIO
    )
    database.close()


def _measure_local(bench: Bench, count: int) -> None:
    logdir = bench.directory / "hparams"
    say(f"writing {count:,} sessions as event files for a local TensorBoard")
    write_event_files(logdir, count)
    with local_tensorboard(logdir, bench.directory / "local.log") as site:
        say("waiting until TensorBoard has loaded them")
        while _count_groups(site) < count:
            time.sleep(5)
        seconds = time_each(lambda: site.post(_STOCK_GROUPS, REQUEST), 3)
        report("  a local TensorBoard", tell_times(seconds), _RATIO)


def _count_groups(site: Site) -> int:
    request = {"allowedStatuses": REQUEST["allowedStatuses"], "sliceSize": 0}
    try:
        return json.loads(site.post(_STOCK_GROUPS, request))["totalSize"]
    except (AssertionError, ValueError):  # it has not read any yet
        return 0
