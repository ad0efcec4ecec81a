"""Decode the points of a part of a response: one decoder per data class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tbupload.events.points import Tensor
from tbupload.export.remote_series import Columns, RemoteBlob
from tbupload.limits import WIRE_LIMIT_MAX
from tbwire import packing, read_pb2, tensors, wire_pb2
from tbwire.points import BlobSequencePoints, ScalarPoints, TensorPoints, get_columns

_SHA256_BYTES: Final = 32


def decode_points(part: read_pb2.Part) -> Columns:
    """Return the points of a part. Raise ValueError if they are malformed."""
    field = part.WhichOneof("points")
    if field is None:
        raise ValueError("a part without points")
    return _DECODERS[field](getattr(part, field))


def _scalars(sent: wire_pb2.ScalarPoints) -> ScalarPoints:
    if not sent.blocks:
        steps, wall_times = get_columns(sent)
        values = np.frombuffer(sent.values64, "<f8")
        _check_lengths(steps, wall_times, values)
        return ScalarPoints(steps, wall_times, values)
    blocks = [packing.unpack(block) for block in sent.blocks]
    if len(blocks) == 1:
        return ScalarPoints(*blocks[0])
    return ScalarPoints(*(np.concatenate(columns) for columns in zip(*blocks)))


def _tensors(sent: wire_pb2.TensorPoints) -> TensorPoints[Tensor]:
    steps, wall_times = get_columns(sent)
    _check_lengths(steps, wall_times, sent.tensors)
    return TensorPoints(steps, wall_times, [_tensor(tensor) for tensor in sent.tensors])


def _blob_sequences(sent: read_pb2.StoredSequencePoints) -> BlobSequencePoints[RemoteBlob]:
    steps, wall_times = get_columns(sent)
    sequences = [[_blob(blob) for blob in sequence.blobs] for sequence in sent.sequences]
    _check_lengths(steps, wall_times, sequences)
    content_types = [sequence.logged_content_type for sequence in sent.sequences]
    return BlobSequencePoints(steps, wall_times, sequences, content_types)


def _check_lengths(*columns: Sequence[object] | npt.NDArray[Any]) -> None:
    if len({len(column) for column in columns}) > 1:
        raise ValueError("columns have different lengths")


def _tensor(sent: wire_pb2.Tensor) -> Tensor:
    tensors.check_tensor(sent.dtype, sent.shape, sent.data)
    histogram = sent.histogram if sent.HasField("histogram") else None
    return Tensor(sent.dtype, tuple(sent.shape), sent.data, histogram)


def _blob(sent: read_pb2.StoredBlob) -> RemoteBlob:
    if sent.size > WIRE_LIMIT_MAX:
        raise ValueError(f"a blob of {sent.size:,} bytes")
    if len(sent.sha256) != _SHA256_BYTES:  # it is the name of a file
        raise ValueError(f"a blob with a SHA-256 of {len(sent.sha256):,} bytes")
    return RemoteBlob(sent.key, sent.sha256, sent.size, sent.content_type)


_DECODERS: Final[Mapping[str, Callable[[Any], Columns]]] = {
    "scalars": _scalars,
    "tensors": _tensors,
    "blob_sequences": _blob_sequences,
}
"""Decoder by the field of `Part` that has the points (`tbwire.points.DATA_CLASSES`)."""
