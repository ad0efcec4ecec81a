"""A training with a real event writer: started by `follow`.

`python follow_training.py STEPS LOGDIR [follow]` prints a JSON object with the seconds of each part:
`import` and `start` of an upload, `loop` (wall time), `cpu` (of this process, in the loop), `leave`
of the block, and `wait` until the upload is proved.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from tensorboardX import SummaryWriter

TAGS = 10
SIZE = 192


@contextmanager
def timed(times: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    times[name] = time.perf_counter() - began


def train(steps: int, writer: SummaryWriter) -> None:
    """Multiplies matrices, some milliseconds a step, and logs ten scalars each."""
    weights = np.random.default_rng(0).normal(size=(SIZE, SIZE))
    for step in range(steps):
        for _ in range(20):
            weights = np.tanh(weights @ weights)
        for tag in range(TAGS):
            writer.add_scalar(f"tag_{tag}", float(weights[0, tag]), step)


def main() -> None:
    times: dict[str, float] = {}
    steps, logdir = int(sys.argv[1]), sys.argv[2]
    writer = SummaryWriter(f"{logdir}/run")
    if sys.argv[3:] == ["follow"]:
        with timed(times, "import"):
            import tbupload  # noqa: PLC0415 - what it takes is measured

            tbupload.follow  # noqa: B018 - imported on first use
        with timed(times, "start"):
            upload = tbupload.follow(logdir, end_seconds=0)
        upload.__enter__()
    time.sleep(2)  # the uploader starts meanwhile, which takes it a second of a core
    cpu = time.process_time()
    with timed(times, "loop"):
        train(steps, writer)
    times["cpu"] = time.process_time() - cpu
    if sys.argv[3:] == ["follow"]:
        with timed(times, "leave"):
            upload.__exit__(None, None, None)
        with timed(times, "wait"):
            result = upload.wait(0.0 if upload.url is None else 60.0)
        times["is_complete"] = float(result.is_complete)
        upload._process._process.kill()
    print(json.dumps(times))


if __name__ == "__main__":
    main()
