"""Convert TensorFlow 1 summary values as TensorBoard 2.21 does before any plugin reads them.

Source: `tensorboard/data_compat.py` of release 2.21.0. The metadata is the same byte by byte: tests
compare it. The values are written by `tf.compat.v1.summary`, and scalars also by PyTorch.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tbupload.events import skip_reasons
from tbupload.events.large_records.field_placeholders import FieldPlaceholders, FileField
from tbupload.events.points import Tensor
from tbupload.events.skip_reasons import ValueRefused
from tbwire import tensorboard_pb2 as pb
from tbwire import tensors, wire_pb2

_PLUGINS: Final = {
    "simple_value": ("scalars", b""),
    "histo": ("histograms", b""),
    # ImagePluginData {converted_to_tensor = 2: true}: `plugins/image/plugin_data_pb2.py`
    "image": ("images", b"\x10\x01"),
    # AudioPluginData {encoding = 2: WAV, converted_to_tensor = 3: true}: `plugins/audio`
    "audio": ("audio", b"\x10\x0b\x18\x01"),
}
"""Plugin name and plugin data of each legacy field of Summary.Value.

Source: the calls of `create_summary_metadata` in `data_compat.py`.
"""


def legacy_metadata(value: pb.Summary.Value, kind: str) -> pb.SummaryMetadata | None:
    """Return the metadata that a legacy value implies; None when `kind` is no legacy field.

    `kind` is the name of the oneof field that is set. The data class is not set.
    """
    if kind not in _PLUGINS:
        return None
    plugin, content = _PLUGINS[kind]
    return pb.SummaryMetadata(
        plugin_data=pb.SummaryMetadata.PluginData(plugin_name=plugin, content=content),
        display_name=value.metadata.display_name or value.tag,
        summary_description=value.metadata.summary_description,
    )


def simple_value(value: pb.Summary.Value) -> np.float32:
    """Return the number of a `simple_value`, bit by bit."""
    if not math.isnan(value.simple_value):
        return np.float32(value.simple_value)
    # Python's float is a double, and the conversion makes a signalling NaN quiet. So the bits are
    # read from a message that has no other field: it ends with them.
    alone = pb.Summary.Value()
    alone.CopyFrom(value)
    for field in ("tag", "node_name", "metadata"):
        alone.ClearField(field)
    return np.float32(np.frombuffer(alone.SerializeToString()[-4:], "<f4")[0])


def histogram_tensor(histogram: pb.HistogramProto) -> Tensor:
    """Return the float32 [k, 3] tensor (left, right, count) of a histogram, with the original.

    Empty outer buckets are dropped and the outermost edges replaced by min and max: writers put
    -DBL_MAX and DBL_MAX there. Without any count, k is 0. See `_migrate_histogram_value` in
    `data_compat.py`. Raises ValueRefused when there are fewer limits than counts.
    """
    rows = np.zeros((0, 3), "<f4")
    counts = np.array(histogram.bucket)
    filled = np.flatnonzero(counts > 0)
    if len(filled):
        first, last = int(filled[0]), int(filled[-1])
        if len(histogram.bucket_limit) < last:
            raise ValueRefused(skip_reasons.HISTOGRAM_MALFORMED)
        edges = [histogram.min, *histogram.bucket_limit[first:last], histogram.max]
        # A double that float32 cannot represent becomes infinite, as in TensorBoard.
        with np.errstate(over="ignore"):
            rows = np.array([edges[:-1], edges[1:], counts[first : last + 1]]).T.astype("<f4")
    return Tensor(tensors.FLOAT, rows.shape, rows.tobytes(), _original(histogram))


def image_blobs(
    image: pb.Summary.Image, placeholders: FieldPlaceholders
) -> list[bytes | FileField]:
    """Return the blobs of an image summary: width and height in decimal, then the encoded image.

    Source: `_migrate_image_value` in `data_compat.py`.
    """
    return [
        str(image.width).encode(),
        str(image.height).encode(),
        placeholders.restore(image.encoded_image_string),
    ]


def _original(histogram: pb.HistogramProto) -> wire_pb2.LegacyHistogram:
    """Return the histogram as it is sent, without fields that are not TensorBoard's."""
    return wire_pb2.LegacyHistogram(
        min=histogram.min,
        max=histogram.max,
        num=histogram.num,
        sum=histogram.sum,
        sum_squares=histogram.sum_squares,
        bucket_limit=histogram.bucket_limit,
        bucket=histogram.bucket,
    )
