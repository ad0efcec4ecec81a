"""Summary values of the demo.

TensorBoard writes images, audio, PR curves, meshes and layouts only with TensorFlow installed
(`tensorboard/plugins/*/summary*.py`), so these are built here from the plugins' `metadata` modules.
"""

from __future__ import annotations

import io
import wave
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.plugins.audio import metadata as audio_metadata
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as layout_metadata
from tensorboard.plugins.graph import metadata as graph_metadata
from tensorboard.plugins.histogram import summary_v2 as histogram_summary
from tensorboard.plugins.image import metadata as image_metadata
from tensorboard.plugins.mesh import metadata as mesh_metadata
from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData
from tensorboard.plugins.pr_curve import metadata as pr_curve_metadata
from tensorboard.plugins.text import summary_v2 as text_summary
from tensorboard.util.tensor_util import make_tensor_proto

from tbservice.local.demo.spirals import Array

_THRESHOLDS: Final = 51
_BUCKETS: Final = 30
_SAMPLES_PER_SECOND: Final = 8_000
_BLUE, _WHITE, _RED = np.array([33, 102, 172]), np.array([247, 247, 247]), np.array([178, 24, 43])


def scalar(tag: str, value: float) -> Summary.Value:
    """Return a scalar as PyTorch writes it: `simple_value`, without metadata."""
    return Summary.Value(tag=tag, simple_value=value)


def histogram(tag: str, data: Array, description: str) -> Summary.Value:
    """Return a histogram of the elements of `data`."""
    return histogram_summary.histogram_pb(tag, data, _BUCKETS, description).value[0]


def text(tag: str, markdown: str) -> Summary.Value:
    """Return a text, which TensorBoard renders as Markdown."""
    return text_summary.text_pb(tag, markdown).value[0]


def image(tag: str, matrix: Array, side: int, description: str) -> Summary.Value:
    """Return a square PNG image of `side` pixels, drawn from a matrix of numbers in [0, 1].

    The tensor is [width, height, PNG]: `tensorboard/plugins/image/summary_v2.py`.
    """
    buffer = io.BytesIO()
    drawn = Image.fromarray(_color(matrix)).resize((side, side), Image.Resampling.NEAREST)
    drawn.save(buffer, "PNG")
    size = str(side).encode()
    metadata = image_metadata.create_summary_metadata(None, description)
    return _value(tag, metadata, [size, size, buffer.getvalue()])


def audio(tag: str, pitches: Array, seconds: float, description: str) -> Summary.Value:
    """Return a mono WAV clip: `pitches`, in hertz, spread evenly over its length.

    The tensor is [[WAV, label]]: `tensorboard/plugins/audio/summary.py`.
    """
    encoding = audio_metadata.Encoding.Value("WAV")
    metadata = audio_metadata.create_summary_metadata(
        None, description, encoding, converted_to_tensor=False
    )
    return _value(tag, metadata, [[_encode_wav(pitches, seconds), b""]])


def pr_curve(tag: str, labels: Array, probabilities: Array, description: str) -> Summary.Value:
    """Return a precision-recall curve of binary predictions.

    The tensor's rows are true and false positives, true and false negatives, precision and recall:
    `tensorboard/plugins/pr_curve/summary.py`.
    """
    predicted = probabilities >= np.linspace(0, 1, _THRESHOLDS)[:, None]
    actual = labels == 1
    hits, alarms = (predicted & actual).sum(axis=1), (predicted & ~actual).sum(axis=1)
    misses, rest = actual.sum() - hits, (~actual).sum() - alarms
    precision, recall = hits / np.maximum(hits + alarms, 1e-7), hits / np.maximum(actual.sum(), 1)
    counts = (hits, alarms, rest, misses)
    rows = np.stack([*counts, precision, recall]).astype(np.float32)
    metadata = pr_curve_metadata.create_summary_metadata(None, description, _THRESHOLDS)
    return _value(tag, metadata, rows)


def mesh(
    name: str, vertices: Array, faces: npt.NDArray[np.int32], heights: Array, description: str
) -> list[Summary.Value]:
    """Return a surface: one value each for its vertices, faces and colors.

    Args:
        name: Name of the mesh, from which the tags are derived.
        vertices: Coordinates, shape (n, 3).
        faces: Triangles, rows of three vertex numbers.
        heights: One number in [0, 1] for each vertex, from which its color is taken.
        description: Markdown.
    """
    arrays: dict[int, npt.NDArray[Any]] = {
        MeshPluginData.VERTEX: vertices.astype(np.float32),
        MeshPluginData.FACE: faces,
        MeshPluginData.COLOR: _color(heights),
    }
    components = mesh_metadata.get_components_bitmask(list(arrays))

    values = []
    for kind, array in arrays.items():
        metadata = mesh_metadata.create_summary_metadata(
            name, None, kind, components, (1, *array.shape), description, "{}"
        )
        values.append(_value(mesh_metadata.get_instance_name(name, kind), metadata, array[None]))
    return values


def layout() -> Summary.Value:
    """Return the layout of the Custom Scalars dashboard: the losses, and a mean with its margin."""
    margin = layout_pb2.MarginChartContent.Series(
        value="confidence/mean", lower="confidence/low", upper="confidence/high"
    )
    charts = [
        layout_pb2.Chart(title="Loss", multiline=layout_pb2.MultilineChartContent(tag=["^loss$"])),
        layout_pb2.Chart(title="Confidence", margin=layout_pb2.MarginChartContent(series=[margin])),
    ]
    category = layout_pb2.Category(title="Two spirals", chart=charts)
    content = layout_pb2.Layout(category=[category]).SerializeToString()
    metadata = layout_metadata.create_summary_metadata()
    return _value(layout_metadata.CONFIG_SUMMARY_TAG, metadata, content)


def keras_model(tag: str, configuration: str) -> Summary.Value:
    """Return a model's JSON as Keras's TensorBoard callback writes it."""
    plugin = SummaryMetadata.PluginData(
        plugin_name=graph_metadata.PLUGIN_NAME_KERAS_MODEL, content=b"1"
    )
    return _value(tag, SummaryMetadata(plugin_data=plugin), configuration.encode())


def _value(tag: str, metadata: SummaryMetadata, content: Any) -> Summary.Value:
    array = content if isinstance(content, np.ndarray) else np.array(content, dtype=object)
    return Summary.Value(tag=tag, metadata=metadata, tensor=make_tensor_proto(array))


def _color(values: Array) -> npt.NDArray[np.uint8]:
    """Return blue for 0, white for a half, red for 1; a last axis of three is added."""
    scaled = 2 * values[..., None]
    below = _BLUE + (_WHITE - _BLUE) * np.minimum(scaled, 1)
    colors: Array = below + (_RED - _WHITE) * np.maximum(scaled - 1, 0)
    return colors.astype(np.uint8)


def _encode_wav(pitches: Array, seconds: float) -> bytes:
    count = int(_SAMPLES_PER_SECOND * seconds)
    hertz = np.interp(np.linspace(0, 1, count), np.linspace(0, 1, len(pitches)), pitches)
    samples = 0.4 * np.sin(2 * np.pi * np.cumsum(hertz) / _SAMPLES_PER_SECOND)
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(_SAMPLES_PER_SECOND)
        file.writeframes((samples * 32_767).astype("<i2").tobytes())
    return buffer.getvalue()
