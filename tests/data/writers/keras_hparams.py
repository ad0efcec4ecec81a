"""Writes tests/data/keras_hparams: sessions of Keras' callback beside its TensorBoard callback."""
# /// script
# requires-python = ">=3.11"
# dependencies = ["tensorflow-cpu==2.21.0", "tensorboard==2.21.0"]
# ///

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from event_directories import make_empty, settle
from tensorboard.plugins.hparams import api as hp

RATE = hp.HParam("learning_rate", hp.RealInterval(0.01, 0.5), "Learning rate", "of *SGD*")
UNITS = hp.HParam("units", hp.Discrete([1, 2]))
OPTIMIZER = hp.HParam("optimizer", hp.Discrete(["adam", "sgd"]))
BIAS = hp.HParam("bias")
METRICS = [
    hp.Metric(
        "epoch_loss",
        group="validation",
        display_name="loss (val.)",
        dataset_type=hp.Metric.VALIDATION,
    ),
    hp.Metric(
        "epoch_loss", group="train", display_name="loss (train)", dataset_type=hp.Metric.TRAINING
    ),
]


class Interruption(keras.callbacks.Callback):
    """Ends the training as an error does: no callback is told of the end."""

    def on_epoch_end(self, *_args: object) -> None:
        raise KeyboardInterrupt


def train(logdir: str, values: dict, trial_id: str | None, *more: keras.callbacks.Callback) -> None:
    """Trains two epochs, as in the notebook of TensorBoard's documentation."""
    keras.utils.set_random_seed(0)
    layers = [
        keras.Input((2,)),
        keras.layers.Dense(values[UNITS], use_bias=values[BIAS]),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential(layers)
    model.compile(values[OPTIMIZER], "mse")
    features = np.random.default_rng(0).random((8, 2))
    callbacks = [
        keras.callbacks.TensorBoard(logdir, write_graph=False),
        hp.KerasCallback(logdir, values, trial_id),
        *more,
    ]
    model.fit(
        features, features.sum(1), epochs=2, validation_split=0.5, verbose=0, callbacks=callbacks
    )


def write_sessions(directory: Path) -> None:
    """The experiment's summary, a session that ends, one without trial id, an interrupted one."""
    with tf.summary.create_file_writer(str(directory)).as_default():
        hp.hparams_config([RATE, UNITS, OPTIMIZER, BIAS], METRICS, time_created_secs=1_700_000_000)
    values = {RATE: 0.25, UNITS: 2, OPTIMIZER: "sgd", BIAS: True}
    train(str(directory / "named"), values, "first trial")
    train(str(directory / "unnamed"), {**values, UNITS: 1, BIAS: False}, None)
    with suppress(KeyboardInterrupt):
        train(str(directory / "interrupted"), {**values, OPTIMIZER: "adam"}, "x", Interruption())


if __name__ == "__main__":
    directory = make_empty("keras_hparams")
    write_sessions(directory)
    settle(directory)
