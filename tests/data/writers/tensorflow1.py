"""Writes tests/data/tensorflow1: TensorFlow 1's summaries (legacy values), graphs and metadata by
its FileWriter.
"""
# /// script
# requires-python = ">=3.11"
# dependencies = ["tensorflow-cpu==2.21.0", "tensorboard==2.21.0"]
# ///

from __future__ import annotations

import numpy as np
import tensorflow.compat.v1 as tf
from event_directories import make_empty, settle


def build(step: tf.Tensor) -> tf.Tensor:
    """One merged summary of every legacy kind."""
    tone = tf.sin(tf.reshape(tf.range(200, dtype=tf.float32), (1, 200, 1)) / 5)
    return tf.summary.merge(
        [
            tf.summary.scalar("loss", tf.exp(-step)),
            tf.summary.histogram("weights", tf.range(20, dtype=tf.float32) * (step + 1)),
            tf.summary.histogram("constant", tf.fill([5], step)),
            tf.summary.image("samples", tf.zeros((2, 4, 6, 3)) + step / 4, max_outputs=2),
            tf.summary.audio("tones", tone, 8000.0),
            tf.summary.text("notes", tf.strings.join(["step ", tf.as_string(step)])),
            tf.summary.tensor_summary("vector", tf.stack([step, step + 1])),
        ]
    )


def write(logdir: str) -> None:
    """Three steps, the graph as GraphDef and MetaGraphDef, run metadata of one step, and session
    logs.
    """
    step = tf.placeholder(tf.float32, (), "step")
    merged = build(step)
    writer = tf.summary.FileWriter(f"{logdir}/run", tf.get_default_graph())
    writer.add_meta_graph(tf.train.export_meta_graph(clear_devices=True))
    writer.add_session_log(tf.SessionLog(status=tf.SessionLog.START), 0)
    with tf.Session() as session:
        for number in range(3):
            options = tf.RunOptions(
                trace_level=tf.RunOptions.FULL_TRACE if number == 1 else tf.RunOptions.NO_TRACE
            )
            metadata = tf.RunMetadata()
            summary = session.run(merged, {step: np.float32(number)}, options, metadata)
            writer.add_summary(summary, number)
            if number == 1:
                writer.add_run_metadata(metadata, "step 1", number)
    checkpoint = tf.SessionLog(status=tf.SessionLog.CHECKPOINT, checkpoint_path="model.ckpt-2")
    writer.add_session_log(checkpoint, 2)
    writer.close()


if __name__ == "__main__":
    tf.disable_eager_execution()
    directory = make_empty("tensorflow1")
    write(str(directory))
    settle(directory)
