"""The demo's log directory: for each session its description, its training, its validation."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from tensorboard.compat.proto.config_pb2 import RunMetadata
from tensorboard.compat.proto.event_pb2 import Event, TaggedRunMetadata
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.step_stats_pb2 import DeviceStepStats, NodeExecStats, StepStats
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from tbservice.local.demo import summaries
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

_POINTS: Final = 300
_DIMENSIONS: Final = 16
_CONFIG: Final = """\
embeddings {
  tensor_name: "probabilities"
  tensor_path: "probabilities/tensors.tsv"
  metadata_path: "probabilities/metadata.tsv"
}
"""


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
        _write_embeddings(directory / "validation", session.progress(STEPS))


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
    yield _summary(0, summaries.keras_model("keras", _keras_json(session.width)))
    yield 0, {"graph_def": _graph_def(session.width, session.optimizer)}
    metadata = _run_metadata(session.width)
    tagged = TaggedRunMetadata(tag="forward pass", run_metadata=metadata)
    yield 0, {"tagged_run_metadata": tagged}
    yield _summary(STEPS, session_end(started + STEPS * _SECONDS_PER_STEP))


def _train(session: Session) -> Events:
    """Yield scalars for each step, and at intervals histograms and an audio clip."""
    random = np.random.default_rng(2026)
    weights = {
        f"{layer}/kernel": random.normal(0, (2 / sum(shape)) ** 0.5, shape)
        for layer, shape in _layer_shapes(session.width).items()
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


def _write_embeddings(directory: Path, progress: float) -> None:
    """Write tensors, labels and the projector's configuration of one run.

    `progress` is how far the classifier has learned, from 0 to 1.
    """
    points, labels = make_spirals(_POINTS, np.random.default_rng(2028))
    shares = np.linspace(0, progress, _DIMENSIONS)
    values = np.column_stack([classify(points, share) for share in shares])
    rows = ["point\tspiral\tprobability of spiral 1"]
    for (x, y), label, value in zip(points, labels, values, strict=True):
        rows.append(f"({x:.2f}, {y:.2f})\tspiral {label:.0f}\t{value[-1]:.3f}")

    files = directory / "probabilities"
    files.mkdir(parents=True, exist_ok=True)
    np.savetxt(files / "tensors.tsv", values, delimiter="\t", fmt="%.4f")
    (files / "metadata.tsv").write_text("\n".join([*rows, ""]))
    (directory / "projector_config.pbtxt").write_text(_CONFIG)


def _layer_shapes(width: int) -> dict[str, tuple[int, int]]:
    """Return the shape of each layer's kernel, in the order of the layers."""
    return {"hidden_1": (2, width), "hidden_2": (width, width), "output": (width, 1)}


def _graph_def(width: int, optimizer: str) -> bytes:
    """Return a serialized GraphDef of the network, its loss and its optimizer."""
    operations: dict[str, tuple[str, list[str]]] = {
        "data/points": ("Placeholder", []),
        "data/labels": ("Placeholder", []),
    }
    output, kernels = "data/points", []
    for layer in _layer_shapes(width):
        operations |= {
            f"{layer}/kernel": ("VariableV2", []),
            f"{layer}/MatMul": ("MatMul", [output, f"{layer}/kernel"]),
            f"{layer}/activation": (_activation(layer).capitalize(), [f"{layer}/MatMul"]),
        }
        output = f"{layer}/activation"
        kernels.append(f"{layer}/kernel")
    operations |= {
        "loss/cross_entropy": ("SigmoidCrossEntropyWithLogits", [output, "data/labels"]),
        f"train/{optimizer}": ("ApplyGradients", ["loss/cross_entropy", *kernels]),
    }
    nodes = [NodeDef(name=name, op=op, input=inputs) for name, (op, inputs) in operations.items()]
    return bytes(GraphDef(node=nodes).SerializeToString())


def _keras_json(width: int) -> str:
    """Return the same network as a Keras model serializes itself."""
    points = {"name": "points", "dtype": "float64", "batch_input_shape": [None, 2]}
    layers: list[dict[str, object]] = [{"class_name": "InputLayer", "config": points}]
    for layer, (_, units) in _layer_shapes(width).items():
        config = {"name": layer, "units": units, "activation": _activation(layer)}
        layers.append({"class_name": "Dense", "config": {"dtype": "float64"} | config})
    return json.dumps({"class_name": "Sequential", "config": {"name": "spirals", "layers": layers}})


def _run_metadata(width: int) -> bytes:
    """Return a serialized RunMetadata: when each layer's product ran in one forward pass."""
    stats = []
    start = 1  # microseconds: the Graphs dashboard fades a node that starts at 0 as never run
    for layer, (inputs, outputs) in _layer_shapes(width).items():
        duration = 20 + inputs * outputs // 4
        node = NodeExecStats(node_name=f"{layer}/MatMul", all_start_micros=start)
        node.op_end_rel_micros = node.all_end_rel_micros = duration
        stats.append(node)
        start += duration
    devices = [DeviceStepStats(device="/device:CPU:0", node_stats=stats)]
    return bytes(RunMetadata(step_stats=StepStats(dev_stats=devices)).SerializeToString())


def _activation(layer: str) -> str:
    return "sigmoid" if layer == "output" else "tanh"
