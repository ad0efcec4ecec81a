"""The demo's log directory: for each session its description, its training, its validation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, TaggedRunMetadata
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from tbservice.local.demo import graphs, summaries
from tbservice.local.demo.embeddings import write_embeddings
from tbservice.local.demo.sessions import SESSIONS, STEPS, Session, session_end, session_start
from tbservice.local.demo.spirals import (
    Array,
    classify,
    cross_entropy,
    make_faces,
    make_grid,
    make_spirals,
)

_SECONDS_PER_STEP: Final = 0.5
_BATCH_POINTS: Final = 64
_VALIDATION_POINTS: Final = 400
_STEPS_PER_VALIDATION: Final = 10
_STEPS_PER_HISTOGRAM: Final = 50
_STEPS_PER_IMAGE: Final = 100
_STEPS_PER_CLIP: Final = 300
_IMAGE_CELLS, _IMAGE_PIXELS = 64, 192
_SURFACE_CELLS: Final = 25

Events = Iterator[tuple[int, dict[str, Any]]]
"""Steps, each with the fields of its event: `tensorboard/compat/proto/event.proto`."""


def write_demo_logdir(logdir: Path) -> None:
    """Write the demo's event files, and its embeddings, under `logdir`.

    The values are the same each time. Wall times are not: sessions follow one another, and the last
    one ends now. Writing the demo again replaces its files.
    """
    seconds = STEPS * _SECONDS_PER_STEP
    first = time.time() - len(SESSIONS) * seconds
    for index, session in enumerate(SESSIONS):
        started = first + index * seconds
        directory = logdir / session.run
        _write_run(directory, started, _describe(session, started))
        _write_run(directory / "train", started, _train(session))
        _write_run(directory / "validation", started, _validate(session))
        write_embeddings(directory / "validation", session.progress(STEPS))


def _write_run(directory: Path, started: float, events: Events) -> None:
    """Write the event file of one run; step 0 is at wall time `started`, in epoch seconds."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "events.out.tfevents.demo").open("wb") as file:
        records = RecordWriter(file)
        for step, fields in chain([(0, {"file_version": "brain.Event:2"})], events):
            wall_time = started + step * _SECONDS_PER_STEP
            event = Event(wall_time=wall_time, step=step, **fields)
            records.write(event.SerializeToString())


def _summary(step: int, *values: Summary.Value) -> tuple[int, dict[str, Any]]:
    return step, {"summary": Summary(value=values)}


def _describe(session: Session, started: float) -> Events:
    """Yield hyperparameters, the layout of the custom scalars, a text, and the graphs."""
    yield _summary(0, *session_start(session, started), summaries.layout())
    yield _summary(0, summaries.text("about", _about(session)))
    yield _summary(0, summaries.keras_model("keras", graphs.keras_json(session.width)))
    yield 0, {"graph_def": graphs.graph_def(session.width, session.optimizer)}
    metadata = graphs.run_metadata(session.width)
    tagged = TaggedRunMetadata(tag="forward pass", run_metadata=metadata)
    yield 0, {"tagged_run_metadata": tagged}
    yield _summary(STEPS, session_end(started + STEPS * _SECONDS_PER_STEP))


def _train(session: Session) -> Events:
    """Yield scalars for each step, and at intervals histograms and an audio clip."""
    random = np.random.default_rng(2026)
    weights = {
        f"{layer}/kernel": random.normal(0, (2 / sum(shape)) ** 0.5, shape)
        for layer, shape in graphs.layer_shapes(session.width).items()
    }

    losses: list[float] = []
    for step in range(STEPS + 1):
        progress = session.progress(step)
        points, labels = make_spirals(_BATCH_POINTS, random)
        losses.append(cross_entropy(classify(points, progress), labels))
        yield _summary(
            step,
            summaries.scalar("loss", losses[-1]),
            summaries.scalar("learning_rate", session.learning_rate(step)),
            summaries.scalar("gradients/norm", 2 * losses[-1] ** 2),
        )

        if step % _STEPS_PER_HISTOGRAM == 0:
            yield _summary(step, *_histograms(weights, progress, losses[-1], random))
        if step % _STEPS_PER_CLIP == 0 and step:
            pitches = 110 + 660 * np.array(losses[-_STEPS_PER_CLIP:])
            description = f"The loss of the last {_STEPS_PER_CLIP} steps, as pitch."
            yield _summary(step, summaries.audio("sound of the loss", pitches, 1.5, description))


def _histograms(
    weights: dict[str, Array], progress: float, loss: float, random: np.random.Generator
) -> list[Summary.Value]:
    """Return histograms of weights, which spread with progress, and of gradients, which shrink."""
    values = []
    for name, initial in weights.items():
        trained = initial * (1 + 2 * progress) + progress * np.tanh(3 * initial)
        gradients = random.normal(0, 0.1 * loss, initial.shape)
        values += [
            summaries.histogram(f"weights/{name}", trained, "The weights of a layer."),
            summaries.histogram(f"gradients/{name}", gradients, "The gradients of one batch."),
        ]
    return values


def _validate(session: Session) -> Events:
    """Yield the scores of a fixed set of points, and at intervals a PR curve, text and drawings."""
    points, labels = make_spirals(_VALIDATION_POINTS, np.random.default_rng(2027))
    for step in range(0, STEPS + 1, _STEPS_PER_VALIDATION):
        progress = session.progress(step)
        probabilities = classify(points, progress)
        confidence = np.abs(probabilities + labels - 1)  # the probability of the right spiral

        low, high = np.quantile(confidence, [0.1, 0.9])
        accuracy = float((confidence > 0.5).mean())  # noqa: PLR2004 - more likely than not
        yield _summary(
            step,
            summaries.scalar("loss", cross_entropy(probabilities, labels)),
            summaries.scalar("accuracy", accuracy),
            summaries.scalar("confidence/mean", float(confidence.mean())),
            summaries.scalar("confidence/low", float(low)),
            summaries.scalar("confidence/high", float(high)),
        )

        if step % _STEPS_PER_IMAGE == 0:
            curve = summaries.pr_curve("spirals", labels, probabilities, "Spiral 1 or not?")
            score = f"After **{step}** steps, {accuracy:.1%} of the points are classified right."
            yield _summary(step, curve, summaries.text("score", score), *_drawings(progress))


def _drawings(progress: float) -> list[Summary.Value]:
    """Return the classifier's probabilities as an image and as a surface."""
    decision = classify(make_grid(_IMAGE_CELLS), progress).reshape(_IMAGE_CELLS, _IMAGE_CELLS)
    grid = make_grid(_SURFACE_CELLS)
    heights = classify(grid, progress)
    vertices = np.column_stack([grid, heights - 0.5])
    return [
        summaries.image("decision", decision, _IMAGE_PIXELS, "Red: spiral 1 is more likely."),
        *summaries.mesh(
            "surface", vertices, make_faces(_SURFACE_CELLS), heights, "Probability as height."
        ),
    ]


def _about(session: Session) -> str:
    annealing = ", falling to 0 along a cosine" if session.is_annealed else ""
    return f"""
### Two spirals

A classifier learns to separate **two spirals**: its decision is in the *Images* and *Mesh* tabs,
and this session is one of {len(SESSIONS)} in the *HParams* tab. The data is generated: no network
was trained.

| hyperparameter | value |
|---|---|
| optimizer | `{session.optimizer}` |
| learning rate | {session.rate:g}{annealing} |
| width of the hidden layers | {session.width} |
| steps | {STEPS} |
"""
