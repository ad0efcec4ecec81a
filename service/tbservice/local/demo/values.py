"""Summary values as the plugins' own writers make them; those that TensorBoard makes only with TensorFlow, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.plugins.audio import metadata as audio_metadata
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as layout_metadata
from tensorboard.plugins.graph import metadata as graph_metadata
from tensorboard.plugins.histogram import summary_v2 as histogram_summary
from tensorboard.plugins.image import metadata as image_metadata
from tensorboard.plugins.mesh import metadata as mesh_metadata
from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData
from tensorboard.plugins.pr_curve import metadata as curve_metadata
from tensorboard.plugins.text import summary_v2 as text_summary
from tensorboard.util.tensor_util import make_tensor_proto

from tbservice.local.demo.media import Colors
from tbservice.local.demo.network import Array

Faces = npt.NDArray[np.int64]

CURVE_THRESHOLDS: Final = 51
HISTOGRAM_BUCKETS: Final = 30


def scalar(tag: str, value: float) -> Summary.Value:
    """A scalar as PyTorch writes it."""
    return Summary.Value(tag=tag, simple_value=value)


def histogram(tag: str, data: Array, description: str) -> Summary.Value:
    """How the elements of `data` are distributed."""
    return histogram_summary.histogram_pb(tag, data, HISTOGRAM_BUCKETS, description).value[0]


def text(tag: str, markdown: str) -> Summary.Value:
    """A text, which TensorBoard shows as Markdown."""
    return text_summary.text_pb(tag, markdown).value[0]


def images(tag: str, pictures: Sequence[bytes], side: int, description: str) -> Summary.Value:
    """Square PNG pictures of one size, `side` pixels."""
    size = str(side).encode()
    metadata = image_metadata.create_summary_metadata(None, description)
    return Summary.Value(tag=tag, metadata=metadata, tensor=_strings([size, size, *pictures]))


def audio(tag: str, clip: bytes, description: str) -> Summary.Value:
    """One WAV clip, with an empty label."""
    encoding = audio_metadata.Encoding.Value("WAV")
    metadata = audio_metadata.create_summary_metadata(
        None, description, encoding, converted_to_tensor=False
    )
    return Summary.Value(
        tag=tag, metadata=metadata, tensor=make_tensor_proto(np.array([[clip, b""]], dtype=object))
    )


def pr_curve(tag: str, labels: Array, probabilities: Array, description: str) -> Summary.Value:
    """A precision-recall curve of predictions: rows true and false positives, true and false negatives, and the two."""
    thresholds = np.linspace(0, 1, CURVE_THRESHOLDS)
    chosen = probabilities.ravel() >= thresholds[:, None]
    right = labels.ravel() == 1
    hits, alarms = (chosen & right).sum(axis=1), (chosen & ~right).sum(axis=1)
    misses, rest = right.sum() - hits, (~right).sum() - alarms
    precision = hits / np.maximum(hits + alarms, 1e-7)
    recall = hits / np.maximum(hits + misses, 1e-7)
    rows = np.stack([hits, alarms, rest, misses, precision, recall]).astype(np.float32)
    metadata = curve_metadata.create_summary_metadata(None, description, CURVE_THRESHOLDS)
    return Summary.Value(tag=tag, metadata=metadata, tensor=make_tensor_proto(rows))


def mesh(
    name: str, vertices: Array, faces: Faces, colors: Colors, description: str
) -> list[Summary.Value]:
    """A surface: vertices and colours of shape (n, 3), faces as rows of three vertex numbers."""
    parts: list[tuple[int, npt.NDArray[Any]]] = [
        (MeshPluginData.VERTEX, vertices.astype(np.float32)),
        (MeshPluginData.FACE, faces.astype(np.int32)),
        (MeshPluginData.COLOR, colors.astype(np.uint8)),
    ]
    components = mesh_metadata.get_components_bitmask([kind for kind, _ in parts])
    values = []
    for kind, part in parts:
        shape = (1, *part.shape)
        metadata = mesh_metadata.create_summary_metadata(
            name, None, kind, components, shape, description, "{}"
        )
        tensor = make_tensor_proto(part.reshape(shape))
        values.append(
            Summary.Value(
                tag=mesh_metadata.get_instance_name(name, kind), metadata=metadata, tensor=tensor
            )
        )
    return values


def layout(charts: Sequence[layout_pb2.Chart], category: str) -> Summary.Value:
    """Which charts the custom scalars page has, under one heading."""
    whole = layout_pb2.Layout(category=[layout_pb2.Category(title=category, chart=charts)])
    return Summary.Value(
        tag=layout_metadata.CONFIG_SUMMARY_TAG,
        metadata=layout_metadata.create_summary_metadata(),
        tensor=make_tensor_proto(whole.SerializeToString()),
    )


def keras_model(tag: str, configuration: str) -> Summary.Value:
    """A Keras model's JSON, as its callback writes it."""
    plugin = SummaryMetadata.PluginData(
        plugin_name=graph_metadata.PLUGIN_NAME_KERAS_MODEL, content=b"1"
    )
    metadata = SummaryMetadata(plugin_data=plugin)
    return Summary.Value(
        tag=tag, metadata=metadata, tensor=make_tensor_proto(configuration.encode())
    )


def _strings(strings: Sequence[bytes]) -> TensorProto:
    return make_tensor_proto(np.array(strings, dtype=object))
