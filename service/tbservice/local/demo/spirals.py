"""A classifier in closed form: its boundary bends from a line into two spirals.

Every curve, image and surface of the demo is computed from it, so they agree with each other.
Training a network instead would need 200 more lines and delay the demo by seconds.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_RADIANS_PER_UNIT: Final = 8.0
"""How far a spiral turns from the origin to distance 1."""


def make_spirals(count: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Return points, shape (count, 2), and the spiral of each, 0 or 1, shape (count,)."""
    labels = random.integers(0, 2, count).astype(np.float64)
    distance = np.sqrt(random.random(count))
    angle = _RADIANS_PER_UNIT * distance + np.pi * labels
    points = np.column_stack([distance * np.cos(angle), distance * np.sin(angle)])
    return points + random.normal(0, 0.08, points.shape), labels


def classify(points: Array, progress: float) -> Array:
    """Return the probability of spiral 1 for each point, shape (n,).

    `progress` is 0 for a linear boundary, 1 for one that follows the spirals.
    """
    x, y = points.T
    linear = x - y
    spiral = -4 * np.cos(np.arctan2(y, x) - _RADIANS_PER_UNIT * np.hypot(x, y))
    logits: Array = (1 - progress) * linear + progress * spiral
    return 1 / (1 + np.exp(-logits))


def cross_entropy(probabilities: Array, labels: Array) -> float:
    """Return the mean cross entropy of probabilities of spiral 1, in nats."""
    return float(-np.log(np.abs(probabilities + labels - 1)).mean())


def make_grid(cells: int) -> Array:
    """Return the points of a square grid over the spirals, top row first, shape (cells², 2)."""
    axis = np.linspace(-1.2, 1.2, cells)
    x, y = np.meshgrid(axis, axis[::-1])
    return np.column_stack([x.ravel(), y.ravel()])


def make_faces(cells: int) -> npt.NDArray[np.int32]:
    """Return two triangles for each square of such a grid: rows of three vertex numbers."""
    corner = (np.arange(cells - 1)[:, None] * cells + np.arange(cells - 1)).ravel()
    right, below = corner + 1, corner + cells
    upper = np.column_stack([corner, below, right])
    lower = np.column_stack([right, below, below + 1])
    return np.vstack([upper, lower]).astype(np.int32)
