"""What the demo finds out about a network that is being trained: scalars, curves, texts, pictures, surfaces."""

from __future__ import annotations

from typing import Final

import numpy as np
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.custom_scalar.layout_pb2 import (
    Chart,
    MarginChartContent,
    MultilineChartContent,
)

from tbservice.local.demo import values
from tbservice.local.demo.event_file import EventFileWriter
from tbservice.local.demo.media import color, encode_png
from tbservice.local.demo.network import Array, Network, cross_entropy, make_spirals

VALIDATION_POINTS: Final = 400
PICTURE_CELLS: Final = 64
PICTURE_SIDE: Final = 192
"""Pixels of a picture's side."""
NEURONS: Final = 4
"""How many neurons of the first layer are drawn."""
SURFACE_CELLS: Final = 25


def layout() -> Summary.Value:
    """The custom scalars page: the losses in one chart, the confidence with its margin in another."""
    series = MarginChartContent.Series(
        value="confidence/mean", lower="confidence/low", upper="confidence/high"
    )
    charts = [
        Chart(title="Loss", multiline=MultilineChartContent(tag=["^loss$"])),
        Chart(title="Confidence", margin=MarginChartContent(series=[series])),
    ]
    return values.layout(charts, "Two spirals")


class Validation:
    """Points no network learns from, and grids to look at one over."""

    def __init__(self, random: np.random.Generator) -> None:
        self.points, self.labels = make_spirals(VALIDATION_POINTS, random)
        self._faces = _make_faces(SURFACE_CELLS)

    def write_scalars(self, file: EventFileWriter, step: int, network: Network) -> None:
        """Loss, accuracy, and how much probability the right answers get: their mean, first and last decile."""
        probabilities = network.probabilities(self.points)
        right = np.abs(probabilities + self.labels - 1)
        low, high = np.quantile(right, [0.1, 0.9])
        file.add(
            step,
            values.scalar("loss", cross_entropy(probabilities, self.labels)),
            values.scalar("accuracy", float((right > 0.5).mean())),  # noqa: PLR2004 - more likely than not
            values.scalar("confidence/mean", float(right.mean())),
            values.scalar("confidence/low", float(low)),
            values.scalar("confidence/high", float(high)),
        )

    def write_pictures(self, file: EventFileWriter, step: int, network: Network) -> None:
        """Everything that is drawn: the curve, the decision, some neurons, the surface; and the score in words."""
        probabilities = network.probabilities(self.points)
        wrong = int(((probabilities > 0.5) != (self.labels == 1)).sum())  # noqa: PLR2004 - more likely than not
        file.add(
            step,
            values.pr_curve(
                "spirals", self.labels, probabilities, "Which points are of the second spiral?"
            ),
            values.text(
                "score",
                f"After **{step}** steps, {wrong} of {VALIDATION_POINTS} points are taken wrongly.",
            ),
            self._decision(network),
            self._neurons(network),
            *self._surface(network),
        )

    def _decision(self, network: Network) -> Summary.Value:
        picture = network.probabilities(_make_grid(PICTURE_CELLS)).reshape(
            PICTURE_CELLS, PICTURE_CELLS
        )
        png = encode_png(picture, PICTURE_SIDE)
        return values.images(
            "decision", [png], PICTURE_SIDE, "Red where the network sees the second spiral."
        )

    def _neurons(self, network: Network) -> Summary.Value:
        outputs = network.activations(_make_grid(PICTURE_CELLS // 2))[1][:, :NEURONS].T
        pictures = (outputs.reshape(NEURONS, PICTURE_CELLS // 2, PICTURE_CELLS // 2) + 1) / 2
        encoded = [encode_png(picture, PICTURE_SIDE // 2) for picture in pictures]
        return values.images(
            "neurons", encoded, PICTURE_SIDE // 2, "Neurons of the first layer, over the plane."
        )

    def _surface(self, network: Network) -> list[Summary.Value]:
        grid = _make_grid(SURFACE_CELLS)
        heights = network.probabilities(grid)
        vertices = np.hstack([grid, heights - 0.5])
        return values.mesh(
            "surface", vertices, self._faces, color(heights[:, 0]), "The probability, as a height."
        )


def _make_grid(cells: int) -> Array:
    """The points of a square grid over the spirals, top row first: shape (cells², 2)."""
    axis = np.linspace(-1.2, 1.2, cells)
    across, up = np.meshgrid(axis, axis[::-1])
    return np.column_stack([across.ravel(), up.ravel()])


def _make_faces(cells: int) -> values.Faces:
    """Two triangles for each square of such a grid, as rows of vertex numbers."""
    corner = (np.arange(cells - 1)[:, None] * cells + np.arange(cells - 1)).ravel()
    right, below = corner + 1, corner + cells
    upper = np.column_stack([corner, below, right])
    lower = np.column_stack([right, below, below + 1])
    return np.vstack([upper, lower])
