"""Convert one summary value, read with protobuf, to a point of its series' data class.

The order of the rules is TensorBoard's: `data_compat.py` makes legacy values new ones, then
`dataclass_compat.py` sets data classes and converts events that have no summary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, Union

import numpy as np

from tbupload.events import skip_reasons
from tbupload.events.decode.legacy import (
    histogram_tensor,
    image_blobs,
    legacy_metadata,
    simple_value,
)
from tbupload.events.decode.tensor_protos import to_number, to_strings, to_tensor
from tbupload.events.large_records.field_placeholders import (
    NO_PLACEHOLDERS,
    FieldPlaceholders,
    FileField,
)
from tbupload.events.points import BlobSequence, Tensor
from tbupload.events.skip_reasons import ValueRefused, over_limit_error
from tbupload.events.tag_registry import KnownSeries, TagRegistry
from tbupload.limits import ReadLimits
from tbwire import tensorboard_pb2 as pb
from tbwire import tensors
from tbwire.tag_owners import HPARAMS

Point = Union[np.float32, np.float64, Tensor, BlobSequence]
"""A scalar, a tensor, or the blobs of one step."""

_GRAPH_TAG: Final = "__run_graph__"
"""RUN_GRAPH_NAME in `tensorboard/plugins/graph/metadata.py`."""

_GRAPH_SUB_PLUGINS: Final = ("graph_run_metadata", "graph_run_metadata_graph", "graph_keras_model")
"""Plugins that write one blob as a scalar string: `_migrate_graph_sub_plugin_value` in
`tensorboard/dataclass_compat.py` makes it a vector of one."""


def summary_values(event: pb.Event) -> Iterator[pb.Summary.Value]:
    """Yield an event's values: its summary's, or the one made of a graph or tagged run metadata.

    Source: `migrate_event` in `tensorboard/dataclass_compat.py`. File versions, log messages and
    session logs are no data. Neither is a meta graph, as TensorBoard 2.21's data provider does not
    read it.
    """
    what = event.WhichOneof("what")
    if what == "summary":
        yield from event.summary.value
    elif what == "graph_def":
        yield _blob_value(_GRAPH_TAG, "graphs", event.graph_def)
    elif what == "tagged_run_metadata":
        tagged = event.tagged_run_metadata
        yield _blob_value(tagged.tag, "graph_tagged_run_metadata", tagged.run_metadata)


def tag_and_metadata(value: pb.Summary.Value) -> tuple[str, pb.SummaryMetadata | None]:
    """Return a value's tag, and its metadata or what a legacy value implies.

    The metadata is None when the value is no tensor and names no plugin: it can then only belong
    to a known tag. A tensor without a tag has it in `node_name`, as the oldest writers left it
    (`plugin_event_accumulator.py` in `tensorboard/backend/event_processing`).
    """
    kind = value.WhichOneof("value")
    tag = value.tag or (value.node_name if kind == "tensor" else "")
    implied = legacy_metadata(value, kind) if kind is not None else None
    if implied is None and (kind == "tensor" or value.metadata.plugin_data.plugin_name):
        implied = value.metadata
    return tag, implied


def read_value(
    value: pb.Summary.Value,
    wall_time: float,
    registry: TagRegistry,
    limits: ReadLimits,
    placeholders: FieldPlaceholders = NO_PLACEHOLDERS,
) -> tuple[KnownSeries, Point] | None:
    """Return the series of a value, and its point; None when a filter excludes it.

    Args:
        value: The value.
        wall_time: Its event's wall time.
        registry: The tags of its file; a new tag is added.
        limits: The limits of the server and the reader.
        placeholders: The large fields, still in the file, that the value's placeholders replace.

    Raises:
        ValueRefused: It cannot be sent; with reason EMPTY_VALUE when it has no content.
        RestartDecode: As `TagRegistry.resolve` does.
    """
    try:
        return _read_value(value, wall_time, registry, limits, placeholders)
    except ValueRefused as refused:
        # Whatever the refusal was: a value without content is counted as empty.
        if _is_empty(value):
            raise ValueRefused(skip_reasons.EMPTY_VALUE) from refused
        raise


def _is_empty(value: pb.Summary.Value) -> bool:
    """Return whether the value has no content; that of plugin `hparams` is in its metadata."""
    return value.WhichOneof("value") is None and value.metadata.plugin_data.plugin_name != HPARAMS


def _read_value(
    value: pb.Summary.Value,
    wall_time: float,
    registry: TagRegistry,
    limits: ReadLimits,
    placeholders: FieldPlaceholders,
) -> tuple[KnownSeries, Point] | None:
    tag, metadata = tag_and_metadata(value)
    series = registry.resolve(tag, metadata)
    if series is None:
        return None
    # The server orders points by it, and refuses a batch with one that is not finite.
    if not math.isfinite(wall_time):
        raise ValueRefused(skip_reasons.WALL_TIME_NOT_FINITE)
    point = _point(value, series, limits, placeholders)
    if series.plugin == HPARAMS and metadata is not None and metadata.plugin_data.plugin_name:
        # Not before: what is refused is not sent, so that the result does not depend on chunks.
        registry.unite_metadata(series, wall_time)
    return series, point


def _point(
    value: pb.Summary.Value,
    series: KnownSeries,
    limits: ReadLimits,
    placeholders: FieldPlaceholders,
) -> Point:
    if series.data_class == pb.DATA_CLASS_SCALAR:
        return _scalar(value, limits, placeholders)
    if series.data_class == pb.DATA_CLASS_BLOB_SEQUENCE:
        blobs = _checked_blobs(_blobs(value, series, limits, placeholders), limits)
        content_type = _logged_content_type(value, limits)
        return BlobSequence([placeholders.blob(blob) for blob in blobs], content_type)
    return _tensor(value, series, limits, placeholders)


def _scalar(
    value: pb.Summary.Value, limits: ReadLimits, placeholders: FieldPlaceholders
) -> np.float32 | np.float64:
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return simple_value(value)
    if kind == "tensor":
        return to_number(value.tensor, limits, placeholders)
    raise ValueRefused(skip_reasons.VALUE_MISMATCH)


def _tensor(
    value: pb.Summary.Value,
    series: KnownSeries,
    limits: ReadLimits,
    placeholders: FieldPlaceholders,
) -> Tensor:
    kind = value.WhichOneof("value")
    if kind == "tensor":
        return to_tensor(value.tensor, limits, placeholders)
    if kind == "histo":
        tensor = histogram_tensor(value.histo)
        if len(tensor.data) > limits.tensor_bytes_max:
            raise over_limit_error("tensor", limits.tensor_bytes_max, "bytes")
        return tensor
    # https://github.com/tensorflow/tensorboard/blob/2.21.0/tensorboard/plugins/hparams/metadata.py
    if kind is None and series.plugin == HPARAMS:
        # NULL_TENSOR in `tensorboard/plugins/hparams/metadata.py`: the content is the metadata.
        return Tensor(tensors.FLOAT, (0,), b"")
    raise ValueRefused(skip_reasons.VALUE_MISMATCH)


def _blobs(
    value: pb.Summary.Value,
    series: KnownSeries,
    limits: ReadLimits,
    placeholders: FieldPlaceholders,
) -> list[bytes | FileField]:
    kind = value.WhichOneof("value")
    if kind == "image":
        return image_blobs(value.image, placeholders)
    if kind == "audio":
        return [placeholders.restore(value.audio.encoded_audio_string)]
    if kind != "tensor":
        raise ValueRefused(skip_reasons.VALUE_MISMATCH)

    shape, strings = to_strings(value.tensor, limits, placeholders)
    if series.plugin == "audio" and len(shape) > 1:
        # Rows of (clip, label); TensorBoard drops the labels, too: `_migrate_audio_value` in
        # `tensorboard/dataclass_compat.py`.
        return strings[:: math.prod(shape[1:])] if strings else []
    if not shape and series.plugin in _GRAPH_SUB_PLUGINS:
        return strings
    if len(shape) != 1:
        raise ValueRefused(skip_reasons.NOT_A_VECTOR)
    return strings


def _logged_content_type(value: pb.Summary.Value, limits: ReadLimits) -> str:
    """Return the content type logged with legacy audio; empty for others, or if not accepted.

    Only `Summary.Audio` has such a field (`tensorboard/compat/proto/summary.proto`). Images have
    none, and audio in tensors has its encoding in the summary metadata.

    Raises ValueRefused when it is too long or has a NUL, which PostgreSQL's text cannot store.
    """
    chars_max = limits.logged_content_type_chars_max
    if value.WhichOneof("value") != "audio" or not chars_max:
        return ""
    if len(value.audio.content_type) > chars_max:
        raise over_limit_error("content type of audio", chars_max, "characters")
    if "\0" in value.audio.content_type:
        raise ValueRefused(skip_reasons.CONTENT_TYPE_NUL)
    return value.audio.content_type


def _checked_blobs(blobs: list[bytes | FileField], limits: ReadLimits) -> list[bytes | FileField]:
    if len(blobs) > limits.blob_sequence_length_max:
        raise over_limit_error("blob sequence", limits.blob_sequence_length_max, "blobs")
    if any(len(blob) > limits.blob_bytes_max for blob in blobs):
        raise over_limit_error("blob", limits.blob_bytes_max, "bytes")
    return blobs


def _blob_value(tag: str, plugin: str, blob: bytes) -> pb.Summary.Value:
    shape = pb.TensorShapeProto(dim=[pb.TensorShapeProto.Dim(size=1)])
    return pb.Summary.Value(
        tag=tag,
        tensor=pb.TensorProto(dtype=tensors.STRING, tensor_shape=shape, string_val=[blob]),
        metadata=pb.SummaryMetadata(
            plugin_data=pb.SummaryMetadata.PluginData(plugin_name=plugin),
            data_class=pb.DATA_CLASS_BLOB_SEQUENCE,
        ),
    )
