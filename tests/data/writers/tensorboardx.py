"""Writes tests/data/tensorboardx: the kinds of data tensorboardX, the writer for all that is not
PyTorch, knows.
"""
# /// script
# requires-python = ">=3.11"
# dependencies = ["tensorboardX==2.6.5", "numpy", "pillow", "soundfile", "torch==2.13.0"]
# ///

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from event_directories import make_empty, settle
from tensorboardX import SummaryWriter

WALL_TIME = 1_700_000_000.25


def write_scalars(directory: Path) -> None:
    """Scalars with a display name and a description, `add_scalars`' runs of its own, and values at
    the edges.
    """
    with SummaryWriter(str(directory / "scalars")) as writer:
        for step in range(20):
            time = WALL_TIME + step
            writer.add_scalar("loss/train", 2.0**-step + 1 / 3, step, time)
            writer.add_scalar(
                "accuracy", 1 - 2.0**-step, step, time, "Accuracy", "of the *validation* set"
            )
            writer.add_scalars("group", {"a": step, "b": -step}, step, time)
        for step, value in enumerate(["nan", "inf", "-inf"]):
            writer.add_scalar("edges", float(value), step, WALL_TIME)


def write_media(directory: Path) -> None:
    """Histograms, images, audio and text, three steps each."""
    random = np.random.default_rng(0)
    with SummaryWriter(str(directory / "media")) as writer:
        for step in range(3):
            time = WALL_TIME + step
            writer.add_histogram("weights", random.normal(step, 1, 300), step, 12, time)
            writer.add_image("image", random.random((3, 6, 8)), step, time)
            writer.add_images("grid", random.random((4, 3, 6, 8)), step, time)
            writer.add_audio(
                "tone", np.sin(np.arange(300) * (step + 1) / 10)[:, None], step, 8000, time
            )
            writer.add_text("notes", f"**step** {step} \N{SNOWMAN}", step, time)


def write_dashboards(directory: Path) -> None:
    """PR curves, a mesh, a custom scalars layout, a model's graph, and two sessions with
    hyperparameters.
    """
    random = np.random.default_rng(0)
    with SummaryWriter(str(directory / "dashboards")) as writer:
        for step in range(2):
            writer.add_pr_curve(
                "curve", random.integers(0, 2, 50), random.random(50), step, 11, walltime=WALL_TIME
            )
        vertices = np.float32([[[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]])
        faces = np.int32([[[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]])
        writer.add_mesh("tetrahedron", vertices, None, faces, {}, 0, WALL_TIME)
        writer.add_custom_scalars({"training": {"losses": ["Multiline", ["loss/.*"]]}})
        writer.add_graph(torch.nn.Linear(2, 3), torch.zeros(1, 2))
    for index in range(2):
        with SummaryWriter(str(directory / "hparams")) as writer:
            values = {
                "rate": 0.1 * (index + 1),
                "optimizer": ["adam", "sgd"][index],
                "bias": bool(index),
            }
            writer.add_hparams(values, {"accuracy": 0.8 + index / 10}, f"session {index}", 1)


if __name__ == "__main__":
    directory = make_empty("tensorboardx")
    write_scalars(directory)
    write_media(directory)
    write_dashboards(directory)
    settle(directory)
