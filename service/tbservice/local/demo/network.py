"""What the demo trains: a perceptron in numpy that tells the points of two spirals apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Weights = dict[str, Array]

LAYERS: Final = ("hidden_1", "hidden_2", "output")


def make_spirals(count: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Points of shape (count, 2), about 1.2 from the origin at most, and their spirals, 0 or 1, shape (count, 1)."""
    labels = random.integers(0, 2, (count, 1)).astype(np.float64)
    distance = np.sqrt(random.random((count, 1)))
    angle = 8 * distance + np.pi * labels
    points = np.hstack([distance * np.cos(angle), distance * np.sin(angle)])
    return points + random.normal(0, 0.04, points.shape), labels


def cross_entropy(probabilities: Array, labels: Array) -> float:
    """The mean cross entropy of probabilities of spiral 1, in nats."""
    return float(-np.log(np.maximum(np.abs(probabilities + labels - 1), 1e-12)).mean())


def squared_norm(arrays: Weights) -> float:
    """The sum of all squares."""
    return float(sum((array**2).sum() for array in arrays.values()))


class Network:
    """Two hidden layers of `width` neurons with tanh, and one logistic neuron; weights "layer/kernel", "layer/bias"."""

    def __init__(self, width: int, random: np.random.Generator) -> None:
        self.weights: Weights = {}
        for layer, inputs, outputs in zip(
            LAYERS, (2, width, width), (width, width, 1), strict=True
        ):
            scale = np.sqrt(2 / (inputs + outputs)) * (3 if layer == "hidden_1" else 1)
            self.weights[f"{layer}/kernel"] = random.normal(0, scale, (inputs, outputs))
            self.weights[f"{layer}/bias"] = np.zeros(outputs)

    def activations(self, points: Array) -> list[Array]:
        """The points, then each layer's output: shapes (n, 2), (n, width), (n, width), (n, 1)."""
        outputs = [points]
        for layer in LAYERS:
            outputs.append(self._activate(layer, outputs[-1]))
        return outputs

    def probabilities(self, points: Array) -> Array:
        """The probability of spiral 1 for each point, shape (n, 1)."""
        return self.activations(points)[-1]

    def gradients(self, points: Array, labels: Array) -> tuple[float, Weights]:
        """The loss of these points, and its derivative by every weight."""
        outputs = self.activations(points)
        found: Weights = {}
        error = (outputs[-1] - labels) / len(points)
        for index in range(len(LAYERS) - 1, -1, -1):
            layer, inputs = LAYERS[index], outputs[index]
            found[f"{layer}/kernel"] = inputs.T @ error
            found[f"{layer}/bias"] = error.sum(axis=0)
            error = (error @ self.weights[f"{layer}/kernel"].T) * (1 - inputs**2)
        return cross_entropy(outputs[-1], labels), found

    def layer_times(self, points: Array) -> dict[str, tuple[float, float]]:
        """When each layer's work on `points` began and ended: seconds since the first began."""
        times = {}
        began, output = perf_counter(), points
        for layer in LAYERS:
            start = perf_counter() - began
            output = self._activate(layer, output)
            times[layer] = (start, perf_counter() - began)
        return times

    def _activate(self, layer: str, inputs: Array) -> Array:
        sums = inputs @ self.weights[f"{layer}/kernel"] + self.weights[f"{layer}/bias"]
        return 1 / (1 + np.exp(-sums)) if layer == "output" else np.tanh(sums)


@dataclass(slots=True)
class Sgd:
    """Gradient descent with momentum 0.9."""

    momentum: Weights = field(default_factory=dict)

    def update(self, weights: Weights, gradients: Weights, rate: float) -> None:
        """Moves the weights one step."""
        for name, gradient in gradients.items():
            self.momentum[name] = 0.9 * self.momentum.get(name, 0.0) + gradient
            weights[name] -= rate * self.momentum[name]


@dataclass(slots=True)
class Adam:
    """Adam with the usual constants (Kingma and Ba, 2015)."""

    first: Weights = field(default_factory=dict)
    second: Weights = field(default_factory=dict)
    count: int = 0

    def update(self, weights: Weights, gradients: Weights, rate: float) -> None:
        """Moves the weights one step."""
        self.count += 1
        rate *= np.sqrt(1 - 0.999**self.count) / (1 - 0.9**self.count)
        for name, gradient in gradients.items():
            self.first[name] = 0.9 * self.first.get(name, 0.0) + 0.1 * gradient
            self.second[name] = 0.999 * self.second.get(name, 0.0) + 0.001 * gradient**2
            weights[name] -= rate * self.first[name] / (np.sqrt(self.second[name]) + 1e-8)


OPTIMIZERS: Final = {"adam": Adam, "sgd": Sgd}
