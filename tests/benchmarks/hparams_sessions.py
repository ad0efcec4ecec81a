"""Sessions for the benchmark of runs: batches with runs of hyperparameters and last values."""

from __future__ import annotations

import random
from collections.abc import Iterator

from support.batches import metadata, scalars, segment, stream
from support.hparams import WALL_TIME, end, start
from tbwire import wire_pb2

HPARAMS = 20
METRICS = 10
SESSIONS_PER_BATCH = 500
_OPTIMIZERS = ("adam", "adamw", "sgd", "rmsprop")
_SCALAR = metadata()


def segments(
    first: int, count: int, per_batch: int = SESSIONS_PER_BATCH
) -> Iterator[list[wire_pb2.Segment]]:
    """Segments of a batch at a time, of the sessions from `first` on."""
    for begin in range(first, first + count, per_batch):
        numbers = range(begin, min(begin + per_batch, first + count))
        yield [session(number) for number in numbers]


def run_name(number: int) -> str:
    """The run of a session."""
    return f"sweep/trial_{number:06d}"


def session(number: int) -> wire_pb2.Segment:
    """A run with its start, its metrics and its end."""
    rng = random.Random(number)  # noqa: S311 - not for secrets
    series = [start(hparams(rng), start_time_secs=WALL_TIME + number)]
    series += [
        scalars(
            f"metric_{index}",
            [1_000],
            [rng.random()],
            [WALL_TIME + number],
            summary_metadata=_SCALAR,
        )
        for index in range(METRICS)
    ]
    series.append(end(end_time=WALL_TIME + number + 60))
    return segment(stream(run_name(number), f"events.out.tfevents.{number}"), 0, 9, *series)


def hparams(rng: random.Random) -> dict[str, object]:
    """Twenty hyperparameters: most of them numbers, few of them of few values."""
    values: dict[str, object] = {
        "optimizer": rng.choice(_OPTIMIZERS),
        "schedule": rng.choice(("cosine", "linear")),
        "augment": rng.random() < 0.5,
        "layers": rng.randrange(2, 12),
    }
    for index in range(HPARAMS - len(values)):
        values[f"rate_{index:02d}"] = rng.random()
    return values
