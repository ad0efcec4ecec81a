"""TensorFlow 1's summary values, and what TensorBoard 2.21 makes of them before anything else sees them.

The rules are those of tensorboard/data_compat.py of release 2.21.0; the metadata is the same byte for byte.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tbupload.events import skip_reasons
from tbupload.events.large_records.field_placeholders import FieldPlaceholders, FileField
from tbupload.events.points import LegacyHistogram, Tensor
from tbupload.events.skip_reasons import ValueRefused
from tbwire import tensorboard_pb2 as pb

_FLOAT: Final = 1
_PLUGINS: Final = {
    "simple_value": ("scalars", b""),
    "histo": ("histograms", b""),
    "image": ("images", b"\x10\x01"),  # ImagePluginData {converted_to_tensor: true}
    "audio": (
        "audio",
        b"\x10\x0b\x18\x01",
    ),  # AudioPluginData {encoding: WAV, converted_to_tensor: true}
}


def legacy_metadata(value: pb.Summary.Value, kind: str) -> pb.SummaryMetadata | None:
    """The metadata a legacy value implies; None when `kind`, its oneof field, is not a legacy one."""
    if kind not in _PLUGINS:
        return None
    plugin, content = _PLUGINS[kind]
    return pb.SummaryMetadata(
        plugin_data=pb.SummaryMetadata.PluginData(plugin_name=plugin, content=content),
        display_name=value.metadata.display_name or value.tag,
        summary_description=value.metadata.summary_description,
    )


def simple_value(value: pb.Summary.Value) -> np.float32:
    """The number of a `simple_value`, bit for bit."""
    if not math.isnan(value.simple_value):
        return np.float32(value.simple_value)
    # Python's own floats would make every NaN a quiet one; a message that holds nothing else ends with the bits.
    alone = pb.Summary.Value()
    alone.CopyFrom(value)
    for field in ("tag", "node_name", "metadata"):
        alone.ClearField(field)
    return np.float32(np.frombuffer(alone.SerializeToString()[-4:], "<f4")[0])


def histogram_tensor(histogram: pb.HistogramProto) -> Tensor:
    """The float32 [k, 3] tensor of a histogram (left, right, count), and the histogram as it was written beside it.

    Empty outer buckets are cut off and the outermost edges replaced by min and max, since writers put the largest
    doubles there; without any count k is 0. Raises ValueRefused when there are fewer limits than counts need.
    """
    rows = np.zeros((0, 3), "<f4")
    counts = np.array(histogram.bucket)
    filled = np.flatnonzero(counts > 0)
    if len(filled):
        first, last = int(filled[0]), int(filled[-1])
        if len(histogram.bucket_limit) < last:
            raise ValueRefused(skip_reasons.HISTOGRAM_MALFORMED)
        edges = [histogram.min, *histogram.bucket_limit[first:last], histogram.max]
        with np.errstate(
            over="ignore"
        ):  # what float32 cannot hold becomes infinite, as in TensorBoard
            rows = np.array([edges[:-1], edges[1:], counts[first : last + 1]]).T.astype("<f4")
    return Tensor(_FLOAT, rows.shape, rows.tobytes(), _as_written(histogram))


def image_blobs(
    image: pb.Summary.Image, placeholders: FieldPlaceholders
) -> list[bytes | FileField]:
    """Width and height in decimal, then the encoded image: TensorBoard's blob sequence of an image summary."""
    return [
        str(image.width).encode(),
        str(image.height).encode(),
        placeholders.restore(image.encoded_image_string),
    ]


def _as_written(histogram: pb.HistogramProto) -> LegacyHistogram:
    return LegacyHistogram(
        min=histogram.min,
        max=histogram.max,
        num=histogram.num,
        sum=histogram.sum,
        sum_squares=histogram.sum_squares,
        bucket_limit=list(histogram.bucket_limit),
        bucket=list(histogram.bucket),
    )
