"""One session of the demo: a network is trained, and what happens is written down."""

from __future__ import annotations

from typing import Final

import numpy as np

from tbservice.local.demo import values
from tbservice.local.demo.event_file import EventFileWriter
from tbservice.local.demo.hyperparameters import SessionHparams
from tbservice.local.demo.media import encode_sound
from tbservice.local.demo.network import OPTIMIZERS, Array, Network, make_spirals, squared_norm
from tbservice.local.demo.validation import Validation

STEPS: Final = 600
BATCH_POINTS: Final = 64
TRAINING_POINTS: Final = 512
VALIDATION_STEPS: Final = 10
"""Steps between two looks at the validation set."""
HISTOGRAM_STEPS: Final = 50
PICTURE_STEPS: Final = 100
SOUND_STEPS: Final = 300


class Training:
    """A network of a choice of hyperparameters, and the points it learns from; the same ones for every choice."""

    def __init__(self, choice: SessionHparams) -> None:
        self.random = np.random.default_rng(2026)
        self.points, self.labels = make_spirals(TRAINING_POINTS, self.random)
        self.validation = Validation(self.random)
        self.network = Network(choice.width, self.random)
        self._choice = choice

    def run(self, train: EventFileWriter, validation: EventFileWriter) -> None:
        """Trains for STEPS steps and writes to the files of the two runs as it goes."""
        optimizer = OPTIMIZERS[self._choice.optimizer]()
        losses = []
        for step in range(STEPS + 1):
            chosen = self.random.integers(0, TRAINING_POINTS, BATCH_POINTS)
            points, labels = self.points[chosen], self.labels[chosen]
            loss, gradients = self.network.gradients(points, labels)
            losses.append(loss)
            train.add(
                step, values.scalar("loss", loss), values.scalar("learning_rate", self._rate(step))
            )
            train.add(step, values.scalar("gradients/norm", squared_norm(gradients) ** 0.5))
            self._write_large_summaries(step, gradients, losses, train, validation)
            optimizer.update(self.network.weights, gradients, self._rate(step))

    def _write_large_summaries(
        self,
        step: int,
        gradients: dict[str, Array],
        losses: list[float],
        train: EventFileWriter,
        validation: EventFileWriter,
    ) -> None:
        """What is too big, or too slow to make, for every step."""
        if step % VALIDATION_STEPS == 0:
            self.validation.write_scalars(validation, step, self.network)
        if step % HISTOGRAM_STEPS == 0:
            for name, weights in self.network.weights.items():
                train.add(
                    step, values.histogram(f"weights/{name}", weights, "The weights of a layer.")
                )
                train.add(
                    step, values.histogram(f"gradients/{name}", gradients[name], "Of one batch.")
                )
        if step % PICTURE_STEPS == 0:
            self.validation.write_pictures(validation, step, self.network)
        if step % SOUND_STEPS == 0 and step > 0:
            pitches = 110 + 660 * np.array(losses[-SOUND_STEPS:])
            description = f"The loss of the last {SOUND_STEPS} steps, as pitch."
            train.add(
                step, values.audio("sound of the loss", encode_sound(pitches, 1.5), description)
            )

    def _rate(self, step: int) -> float:
        """The learning rate at a step."""
        if not self._choice.is_annealed:
            return self._choice.rate
        return float(self._choice.rate * (1 + np.cos(np.pi * step / STEPS)) / 2)
