"""Writes tests/data/pytorch: every kind of data PyTorch's SummaryWriter has a method for, but
embeddings.
"""
# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "tensorboard==2.21.0", "numpy", "pillow"]
# ///

from __future__ import annotations

from pathlib import Path

import torch
from event_directories import make_empty, settle
from torch.utils.tensorboard import SummaryWriter

WALL_TIME = 1_700_000_000.25


def write_scalars(directory: Path) -> None:
    """Scalars in the old and the new style, in double precision, and `add_scalars`' runs of its
    own.
    """
    with SummaryWriter(directory / "scalars") as writer:
        for step in range(20):
            time = WALL_TIME + step
            writer.add_scalar("loss/train", 2.0**-step + 1 / 3, step, time)
            writer.add_scalar("loss/new style", 2.0**-step, step, time, new_style=True)
            writer.add_scalar(
                "loss/double", 1 / 3, step, time, double_precision=True, new_style=True
            )
            writer.add_scalars("group", {"a": step, "b": -step}, step, time)
        for step, value in enumerate(["nan", "inf", "-inf"]):
            writer.add_scalar("edges", float(value), step, WALL_TIME)


def write_media(directory: Path) -> None:
    """Histograms, images, audio and text, three steps each; a raw tensor."""
    torch.manual_seed(0)
    with SummaryWriter(directory / "media") as writer:
        for step in range(3):
            time = WALL_TIME + step
            writer.add_histogram("weights", torch.randn(300), step, bins=12, walltime=time)
            edges = [0.0, 1.0, 2.0]
            writer.add_histogram_raw("raw", 0.0, 2.0, 3, 4.0, 6.0, edges, [0, 1, 2], step, time)
            writer.add_image("image", torch.rand(3, 6, 8), step, time)
            writer.add_images("grid", torch.rand(4, 3, 6, 8), step, time)
            boxes = torch.tensor([[1.0, 1.0, 9.0, 9.0]])
            writer.add_image_with_boxes("boxes", torch.rand(3, 12, 12), boxes, step, time)
            writer.add_audio(
                "tone", torch.sin(torch.arange(300) * (step + 1) / 10), step, 8000, time
            )
            writer.add_text("notes", f"**step** {step} \N{SNOWMAN}", step, time)
            writer.add_tensor("raw tensor", torch.arange(6.0).reshape(2, 3), step, time)


def write_dashboards(directory: Path) -> None:
    """PR curves, a mesh, a custom scalars layout, and a model's graph."""
    torch.manual_seed(0)
    with SummaryWriter(directory / "dashboards") as writer:
        for step in range(2):
            labels = torch.randint(2, (50,))
            writer.add_pr_curve("curve", labels, torch.rand(50), step, 11, walltime=WALL_TIME)
        vertices = torch.tensor([[[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]])
        colors = torch.tensor([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0]]])
        faces = torch.tensor([[[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]])
        writer.add_mesh("tetrahedron", vertices, colors, faces, {}, 0, WALL_TIME)
        charts = {
            "training": {
                "losses": ["Multiline", ["loss/.*"]],
                "spread": ["Margin", ["m", "l", "u"]],
            }
        }
        writer.add_custom_scalars(charts)
        writer.add_graph(
            torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()), torch.zeros(1, 2)
        )


def write_hparams(directory: Path) -> None:
    """Two sessions, as `add_hparams` makes them: a run each, with the experiment's summary in every
    one.
    """
    for index in range(2):
        with SummaryWriter(directory / "hparams") as writer:
            values = {
                "rate": 0.1 * (index + 1),
                "optimizer": ["adam", "sgd"][index],
                "bias": bool(index),
                "layers": 2,
            }
            domains = {"optimizer": ["adam", "sgd"], "bias": [True, False]}
            writer.add_hparams(
                values, {"accuracy": 0.8 + index / 10}, domains, f"session {index}", 1
            )


if __name__ == "__main__":
    directory = make_empty("pytorch")
    write_scalars(directory)
    write_media(directory)
    write_dashboards(directory)
    write_hparams(directory)
    settle(directory)
