"""Writes tests/data/tensorflow2: TensorFlow 2's summary API, one run a kind of data."""
# /// script
# requires-python = ">=3.11"
# dependencies = ["tensorflow-cpu==2.21.0", "tensorboard==2.21.0"]
# ///

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from event_directories import make_empty, settle


def write_scalars(logdir: str) -> None:
    """Losses of two runs, and values at the edges: NaN, infinities, one third, the greatest step."""
    for run, offset in (("train", 0.0), ("validation", 0.1)):
        with tf.summary.create_file_writer(f"{logdir}/{run}").as_default():
            for step in range(20):
                tf.summary.scalar(
                    "loss", np.exp(-step / 5) + offset, step, description="cross *entropy*"
                )
                tf.summary.scalar("accuracy/top 1", 1 - np.exp(-step / 7), step)
    with tf.summary.create_file_writer(f"{logdir}/edges").as_default():
        for step, value in enumerate([1 / 3, np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45]):
            tf.summary.scalar("value", value, step)
        tf.summary.scalar("step", 1.0, -5)
        tf.summary.scalar("step", 2.0, 2**63 - 1)


def write_media(logdir: str) -> None:
    """Histograms, images, audio and text of several steps, several items a step."""
    random = np.random.default_rng(0)
    with tf.summary.create_file_writer(f"{logdir}/media").as_default():
        for step in range(3):
            tf.summary.histogram("weights", random.normal(step, 1, 500), step, buckets=12)
            tf.summary.histogram("constant", np.full(10, 3.0), step)
            tf.summary.histogram("empty", np.array([]), step)
            tf.summary.image("samples", random.random((4, 8, 12, 3)), step, max_outputs=2)
            tone = np.sin(np.arange(400) * (step + 1) / 10).reshape(1, 400, 1)
            tf.summary.audio("tones", np.float32([*tone, *-tone]), 8000, step, max_outputs=2)
            tf.summary.text("one", f"**step** {step}", step)
            tf.summary.text("table", [["a", "b"], ["c", str(step)]], step)


def affine(x: tf.Tensor) -> tf.Tensor:
    """A function small enough for its graph to be read; each trace makes a new graph of it."""
    return tf.nn.relu(tf.matmul(x, tf.ones((2, 2))) + 1.0)


def write_graphs(logdir: str) -> None:
    """A GraphDef, a traced function's graph, and its run metadata with the profiler on."""
    with tf.summary.create_file_writer(f"{logdir}/graph").as_default():
        tf.summary.graph(tf.function(affine).get_concrete_function(tf.TensorSpec((1, 2))).graph)
    for run, profiler in (("trace", False), ("profile", True)):
        with tf.summary.create_file_writer(f"{logdir}/{run}").as_default():
            tf.summary.trace_on(
                graph=True, profiler=profiler, profiler_outdir=logdir if profiler else None
            )
            tf.function(affine)(tf.ones((1, 2)))
            tf.summary.trace_export("affine", step=0)


def write_keras(logdir: str) -> None:
    """Write with Keras' own callback: scalars, histograms and the model's configuration."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="dense")])
    model.compile("sgd", "mse")
    features = np.random.default_rng(0).random((8, 2))
    callback = keras.callbacks.TensorBoard(f"{logdir}/keras", histogram_freq=1)
    model.fit(
        features, features.sum(1), epochs=2, validation_split=0.5, verbose=0, callbacks=[callback]
    )


if __name__ == "__main__":
    directory = make_empty("tensorflow2")
    write_scalars(str(directory))
    write_media(str(directory))
    write_graphs(str(directory))
    write_keras(str(directory))
    settle(directory)
