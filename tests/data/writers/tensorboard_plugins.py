"""Writes tests/data/tensorboard_plugins: by the summary functions of TensorBoard's plugins, and for
unknown ones.
"""
# /// script
# requires-python = ">=3.11"
# dependencies = ["tensorflow-cpu==2.21.0", "tensorboard==2.21.0"]
# ///

from __future__ import annotations

import numpy as np
import tensorflow as tf
from event_directories import make_empty, settle
from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import summary as custom_scalar_summary
from tensorboard.plugins.histogram import summary as histogram_summary
from tensorboard.plugins.hparams import api as hp
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams import summary as hparams_summary
from tensorboard.plugins.mesh import summary_v2 as mesh_summary
from tensorboard.plugins.pr_curve import summary as pr_curve_summary
from tensorboard.plugins.scalar import summary as scalar_summary
from tensorboard.plugins.text import summary as text_summary


def write_raw(summary: summary_pb2.Summary, step: int) -> None:
    """Writes a summary message as it is, with the current writer."""
    tf.summary.experimental.write_raw_pb(summary.SerializeToString(), step)


def write_curves(logdir: str) -> None:
    """PR curves from predictions and from raw counts."""
    random = np.random.default_rng(0)
    with tf.summary.create_file_writer(f"{logdir}/pr_curves").as_default():
        for step in range(3):
            labels = random.random(100) < 0.5
            predictions = np.clip(labels * 0.2 * step + random.random(100) * 0.6, 0, 1)
            write_raw(
                pr_curve_summary.pb("validation", labels, predictions, num_thresholds=11), step
            )
        counts = np.array([[10.0, 5.0], [8.0, 1.0], [2.0, 9.0], [0.0, 5.0]])
        ratios = np.array([[10 / 18, 5 / 6], [1.0, 0.5]])
        write_raw(pr_curve_summary.raw_data_pb("raw", *counts, *ratios, num_thresholds=2), 0)


def write_meshes(logdir: str) -> None:
    """A coloured tetrahedron that grows: three tags (vertices, faces, colours) a mesh."""
    vertices = np.float32([[[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]])
    faces = np.int32([[[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]])
    colors = np.uint8([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0]]])
    config = {"camera": {"cls": "PerspectiveCamera", "fov": 75}}
    with tf.summary.create_file_writer(f"{logdir}/mesh").as_default():
        for step in range(3):
            mesh_summary.mesh(
                "tetrahedron", vertices * (step + 1), colors, faces, config, step=step
            )
        mesh_summary.mesh("points", vertices, step=0)


def write_layout(logdir: str) -> None:
    """A custom scalars layout, and the scalars its charts show."""
    multiline = layout_pb2.MultilineChartContent(tag=["loss/.*"])
    series = layout_pb2.MarginChartContent.Series(
        value="loss/mean", lower="loss/low", upper="loss/high"
    )
    margin = layout_pb2.MarginChartContent(series=[series])
    charts = [
        layout_pb2.Chart(title="losses", multiline=multiline),
        layout_pb2.Chart(title="spread", margin=margin),
    ]
    layout = layout_pb2.Layout(category=[layout_pb2.Category(title="training", chart=charts)])
    with tf.summary.create_file_writer(f"{logdir}/custom_scalars").as_default():
        write_raw(custom_scalar_summary.pb(layout), 0)
        for step in range(5):
            for name, offset in (("low", -0.1), ("mean", 0.0), ("high", 0.1)):
                tf.summary.scalar(f"loss/{name}", 1 / (step + 1) + offset, step)


def write_hparams(logdir: str) -> None:
    """An experiment with its domains, and three sessions: two of the v2 API, one of the old with
    start and end.
    """
    rate = hp.HParam("learning_rate", hp.RealInterval(0.001, 0.1), description="of *SGD*")
    optimizer = hp.HParam("optimizer", hp.Discrete(["adam", "sgd"]))
    layers = hp.HParam("layers", hp.IntInterval(1, 4))
    bias = hp.HParam("bias", hp.Discrete([True, False]))
    with tf.summary.create_file_writer(f"{logdir}/hparams").as_default():
        metrics = [hp.Metric("accuracy", group="validation", display_name="Accuracy")]
        hp.hparams_config([rate, optimizer, layers, bias], metrics, time_created_secs=1_700_000_000)
    for index, name in enumerate(["adam", "sgd"]):
        with tf.summary.create_file_writer(f"{logdir}/hparams/session {index}").as_default():
            values = {
                rate: 0.01 * (index + 1),
                optimizer: name,
                layers: index + 1,
                bias: bool(index),
            }
            hp.hparams(values, trial_id=f"trial-{index}", start_time_secs=1_700_000_000.5)
            tf.summary.scalar("accuracy", 0.8 + index / 10, 1)
    with tf.summary.create_file_writer(f"{logdir}/hparams/session old").as_default():
        write_raw(
            hparams_summary.session_start_pb(
                {"learning_rate": 0.03}, start_time_secs=1_700_000_000
            ),
            0,
        )
        tf.summary.scalar("accuracy", 0.7, 1)
        write_raw(
            hparams_summary.session_end_pb(api_pb2.STATUS_SUCCESS, end_time_secs=1_700_000_060), 0
        )


def write_old_metadata(logdir: str) -> None:
    """Tensors of the plugins' first API: metadata without a data class, with a display name and a
    description.
    """
    with tf.summary.create_file_writer(f"{logdir}/first_api").as_default():
        for step in range(3):
            write_raw(scalar_summary.pb("loss", 1 / (step + 1), "Loss", "of the *first* API"), step)
            write_raw(histogram_summary.pb("weights", np.arange(9.0) * step, 4, "Weights"), step)
            write_raw(text_summary.pb("notes", f"step {step}", "Notes"), step)


def write_unknown(logdir: str) -> None:
    """A plugin nobody knows: without a data class, and with each of the three; tensors of many
    types.
    """
    types = [
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
    ]
    types += ["int64", "uint64", "bool", "complex64", "complex128"]
    with tf.summary.create_file_writer(f"{logdir}/unknown").as_default():
        plugin = summary_pb2.SummaryMetadata.PluginData(
            plugin_name="seismograph", content=b"\x00\x01 any bytes"
        )
        bare = summary_pb2.SummaryMetadata(plugin_data=plugin)
        classes = {
            "scalar": tf.constant(0.5, tf.float64),
            "tensor": tf.zeros((2, 0, 3)),
            "blobs": tf.constant(["a", ""]),
        }
        for step in range(2):
            tf.summary.write("no class", tf.range(4) + step, step, bare.SerializeToString())
            for number, (tag, tensor) in enumerate(classes.items(), start=1):
                metadata = summary_pb2.SummaryMetadata(plugin_data=plugin, data_class=number)
                tf.summary.write(tag, tensor, step, metadata.SerializeToString())
        tensor_class = summary_pb2.SummaryMetadata(
            plugin_data=plugin, data_class=summary_pb2.DATA_CLASS_TENSOR
        )
        for name in types:
            tf.summary.write(
                f"types/{name}", tf.cast([0, 1, 1], name), 0, tensor_class.SerializeToString()
            )
        tf.summary.write("no metadata", tf.constant([1.0, 2.0]), 0)


if __name__ == "__main__":
    directory = make_empty("tensorboard_plugins")
    write_curves(str(directory))
    write_meshes(str(directory))
    write_layout(str(directory))
    write_hparams(str(directory))
    write_old_metadata(str(directory))
    write_unknown(str(directory))
    settle(directory)
