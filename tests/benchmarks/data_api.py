"""The data API: 100 series against MLflow's bulk history and a local TensorBoard; names; samples of
any length.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
from bench import Bench, say
from local_tensorboard import Site, local_tensorboard, wait_until_loaded
from logdirs import Size, tag_names, write_scalars
from machine import report
from service import Service
from storage import wait_for_merge
from upload import upload

from support.batches import packed_scalars, scalars, segment, stream, texts

READ = Size(100, 1, 1_000)
NAMES = Size(1_000, 1_000, 1)
SHORT_POINTS = 10_000
LONG_POINTS = 10_000_000
SCALARS_A_BATCH = 400_000
TENSORS_A_BATCH = 10_000
SAMPLE = 1_000
ROUNDS = 15


def measure(bench: Bench) -> None:
    """`--only` takes read, scalars, tensors or names alone."""
    with bench.new_service() as service:
        if bench.is_chosen("read"):
            _measure_read(bench, service)
        for kind in ("scalars", "tensors"):
            if bench.is_chosen(kind):
                _measure_length(bench, service, kind)
        if bench.is_chosen("names"):
            _measure_names(bench, service)


def _measure_read(bench: Bench, service: Service) -> None:
    """The same points in one answer: of ours, of TensorBoard, and of MLflow's store without its
    HTTP.
    """
    logdir = bench.directory / "logdir"
    say(f"writing and uploading {READ.runs} runs of {READ.steps:,} points")
    write_scalars(logdir, READ)
    experiment_id = upload(service, logdir).experiment_id
    (tag,) = tag_names(READ.tags)
    with (
        service.servers.database(migrated=False) as mlflow_url,
        local_tensorboard(logdir, bench.directory / "tensorboard.log") as theirs,
    ):
        read_mlflow = _fill_mlflow(mlflow_url, tag)
        wait_until_loaded(theirs, tag, READ.runs, READ.steps - 1)
        asked = {
            "ours": lambda: _read_ours(service, experiment_id, tag),
            "TensorBoard, --load_fast": lambda: _read_tensorboard(theirs, tag),
            "MLflow's store alone, without HTTP": read_mlflow,
        }
        cpu = service.cpu_seconds()["server"]
        seconds = _in_turns(asked)
        cpu = (service.cpu_seconds()["server"] - cpu) / (ROUNDS + 1)
    report(
        f"JSON of {READ.runs} series of {READ.steps:,} points, at the client",
        f"{seconds['ours'] * 1000:.1f} ms",
        f"at most 60 ms at the server; its CPU: {cpu * 1000:.1f} ms",
    )
    for name, spent in list(seconds.items())[1:]:
        report(
            f"  {name}", f"{spent * 1000:.1f} ms", f"ours : theirs {seconds['ours'] / spent:.2f} x"
        )


def _read_ours(service: Service, experiment_id: str, tag: str) -> None:
    path = f"/api/v1/experiments/{experiment_id}/scalars/data"
    answer = service.reader.http.get(path, params={"tag": tag, "downsample": READ.steps})
    assert answer.content.count(b'"kept":1000') == READ.runs


def _read_tensorboard(site: Site, tag: str) -> None:
    fields = [("tag", tag), *(("runs", f"run_{number:04d}") for number in range(READ.runs))]
    answer = site.pool.request_encode_body(
        "POST",
        f"{site.url}data/plugin/scalars/scalars_multirun",
        fields=fields,
        encode_multipart=False,
    )
    assert answer.data.count(b"run_") == READ.runs


def _fill_mlflow(url: str, tag: str) -> Callable[[], None]:
    """Logs as many points into an empty database of the same PostgreSQL; gives the read of them."""
    from mlflow.entities import Metric  # noqa: PLC0415 - of all the benchmarks this alone needs it
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore  # noqa: PLC0415 - the same

    store = SqlAlchemyStore(
        url.replace("postgresql://", "postgresql+psycopg://"), "file:///nowhere"
    )
    store_experiment = store.create_experiment("read")
    began = time.perf_counter()
    run_ids = []
    for _ in range(READ.runs):
        run_id = store.create_run(store_experiment, "bench", 0, [], None).info.run_id
        run_ids.append(run_id)
        store.log_batch(
            run_id, [Metric(tag, step / 3, step, step) for step in range(READ.steps)], [], []
        )
    points = READ.runs * READ.steps
    report(
        "MLflow, written in batches of a thousand, points",
        f"{points / (time.perf_counter() - began):,.0f}/s",
    )

    def read() -> None:
        assert len(store.get_metric_history_bulk(run_ids, tag, points)) == points

    return read


def _measure_names(bench: Bench, service: Service) -> None:
    size = NAMES.scaled(bench.scale)
    experiment_id = service.api.new_experiment(name="names")
    tags = tag_names(NAMES.tags)
    say(f"writing {size.runs:,} runs of {NAMES.tags:,} tags")
    for number in range(size.runs):
        series = [scalars(tag, [0]) for tag in tags]
        service.api.write(experiment_id, segment(stream(f"run_{number:04d}"), 0, 9, *series))
    path = f"/api/v1/experiments/{experiment_id}"
    names, page = (
        _in_turns(
            {"it": lambda address=address: service.reader.http.get(address).raise_for_status()}
        )["it"]
        for address in (f"{path}/names", f"{path}/scalars?limit=10000")
    )
    report(
        f"the names of {size.runs:,} runs x {NAMES.tags:,} tags", f"{names:.2f} s", "at most 1 s"
    )
    report("a page of the metadata of 10,000 series", f"{page:.2f} s")


def _measure_length(bench: Bench, service: Service, kind: str) -> None:
    """A uniform sample of a series of a thousand times as many points."""
    long_points = int(LONG_POINTS * bench.scale)
    ids = {points: _write(service, kind, points) for points in (SHORT_POINTS, long_points)}
    wait_for_merge(service)

    def read(points: int) -> None:
        columns = service.reader.get(ids[points], f"{kind}/data", downsample=SAMPLE)["train"][
            "series"
        ]
        assert (columns["kept"], columns["total"]) == (SAMPLE, points)

    spent = _in_turns({str(points): lambda points=points: read(points) for points in ids})
    ratio = spent[str(long_points)] / spent[str(SHORT_POINTS)]
    report(
        f"{SAMPLE:,} of {long_points:,} points of {kind} : of {SHORT_POINTS:,}",
        f"{ratio:.2f} x",
        f"at most 1.5 x; {spent[str(long_points)] * 1000:.1f} ms",
    )


def _write(service: Service, kind: str, points: int) -> str:
    say(f"writing {points:,} points of {kind}")
    experiment_id = service.api.new_experiment(name=f"{points} {kind}")
    batch_points = SCALARS_A_BATCH if kind == "scalars" else TENSORS_A_BATCH
    for start in range(0, points, batch_points):
        steps = np.arange(start, min(start + batch_points, points))
        if kind == "scalars":
            series = packed_scalars("series", steps, np.float32(np.sin(steps / 1e4)))
        else:
            series = texts("series", steps, [b"%d" % step for step in steps])
        service.api.write(experiment_id, segment(stream(), start, start + len(steps), series))
    return experiment_id


def _in_turns(asked: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median of the seconds of each, asked in turns; the first round does not count."""
    spent: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(ROUNDS + 1):
        for name, ask in asked.items():
            began = time.perf_counter()
            ask()
            spent[name].append(time.perf_counter() - began)
    return {name: statistics.median(seconds[1:]) for name, seconds in spent.items()}
