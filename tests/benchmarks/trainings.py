"""Logs of real trainings: a small network learns, and each value has the time at which it was
logged.

Generated logs mislead where bytes are counted: the noise of a clock and of a gradient is what does
not compress.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from logdirs import FILE_NAME

from support.event_files import encode_record, scalar_event, version_event

FEATURES, HIDDEN, CLASSES, BATCH = 32, 64, 4, 128
"""A step takes about a millisecond: of shorter ones, the clock would take fewer bytes."""

EXAMPLES = 50_000
MOMENTUM = 0.9

SMOOTH_TAGS = ("learning_rate", "epoch", "accuracy/batch", "weight_decay")
NOISY_TAGS = ("loss/batch", "loss/mean", "grad_norm", "time/step")

Clock = Callable[[], float]
Floats = npt.NDArray[np.float32]


def read_clock_as_torch() -> float:
    """Return the time as PyTorch's SummaryWriter and tensorboardX log it."""
    return time.time()


def read_clock_as_tensorflow() -> float:
    """Return the time as TensorFlow's writer, and so Keras, logs it: in whole microseconds."""
    return time.time_ns() // 1_000 / 1e6


@dataclass(frozen=True)
class Log:
    """A log directory: which values are written to it, and by which clock."""

    directory: Path
    tags: tuple[str, ...]
    clock: Clock


def write_trainings(logs: Sequence[Log], runs: int, steps: int) -> None:
    """Train `runs` networks for so many steps, and write their values to all logs."""
    for run in range(runs):
        with ExitStack() as stack:
            files = []
            for log in logs:
                path = log.directory / f"run_{run:04d}" / FILE_NAME
                path.parent.mkdir(parents=True)
                files.append(stack.enter_context(path.open("wb")))
                files[-1].write(encode_record(version_event(log.clock()).SerializeToString()))
            for step, values in enumerate(train(run, steps)):
                for log, file in zip(logs, files, strict=True):
                    for tag in log.tags:
                        event = scalar_event(tag, step, values[tag], log.clock())
                        file.write(encode_record(event.SerializeToString()))


def train(seed: int, steps: int) -> Iterator[dict[str, float]]:
    """Yield the value of each tag at each step of a training by stochastic gradient descent."""
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(EXAMPLES, FEATURES)).astype(np.float32)
    scores = np.tanh(inputs @ random.normal(size=(FEATURES, CLASSES)))
    classes = np.argmax(scores + random.normal(0, 0.3, scores.shape), axis=1)
    weights = [
        random.normal(0, 0.2, shape).astype(np.float32)
        for shape in ((FEATURES, HIDDEN), (HIDDEN, CLASSES))
    ]
    velocities = [np.zeros_like(weight) for weight in weights]
    mean_loss = 0.0

    for step in range(steps):
        began = time.perf_counter()
        learning_rate = (0.01 + 0.01 * seed) * (1 + np.cos(np.pi * step / steps)) / 2
        batch = random.integers(0, EXAMPLES, BATCH)
        loss, accuracy, gradients = _compute_gradients(inputs[batch], classes[batch], *weights)
        for weight, velocity, gradient in zip(weights, velocities, gradients, strict=True):
            velocity[:] = MOMENTUM * velocity + gradient
            weight[:] -= np.float32(learning_rate) * velocity
        mean_loss += (loss - mean_loss) / (step + 1)
        yield {
            "loss/batch": loss,
            "loss/mean": mean_loss,
            "grad_norm": float(np.sqrt(sum(float((each**2).sum()) for each in gradients))),
            "time/step": time.perf_counter() - began,
            "learning_rate": learning_rate,
            "epoch": step * BATCH / EXAMPLES,
            "accuracy/batch": accuracy,
            "weight_decay": 1e-4 * learning_rate,
        }


def _compute_gradients(
    inputs: Floats, classes: npt.NDArray[np.intp], first: Floats, second: Floats
) -> tuple[float, float, tuple[Floats, Floats]]:
    """Return loss, accuracy and the gradients of both layers, by cross entropy."""
    hidden = np.maximum(inputs @ first, 0)
    outputs = hidden @ second
    outputs -= outputs.max(axis=1, keepdims=True)
    probabilities = np.exp(outputs)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    rows = np.arange(len(classes))
    loss = float(-np.log(probabilities[rows, classes] + 1e-9).mean())
    accuracy = float((probabilities.argmax(axis=1) == classes).mean())

    errors = probabilities.copy()
    errors[rows, classes] -= 1
    errors /= len(classes)
    back = (errors @ second.T) * (hidden > 0)
    return loss, accuracy, (inputs.T @ back, hidden.T @ errors)
