"""Event files for tests: TensorBoard's events, TFRecord framing with its masked checksums, and ways
to spoil a file.

The events are built from `tbwire.tensorboard_pb2`, which is field for field TensorBoard's own;
`tests/data` has files by real writers. Wall times are seconds since the epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

import google_crc32c
import numpy as np
import numpy.typing as npt

from tbwire import tensorboard_pb2 as pb

HEADER_BYTES: Final = 12
"""Bytes before a record's payload: its length (uint64) and the length's masked CRC-32C."""

FOOTER_BYTES: Final = 4
"""Bytes after a record's payload: its masked CRC-32C."""

WALL_TIME: Final = 1_700_000_000.0
"""The default wall time of the builders."""

PNG: Final = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)
"""A whole PNG image of one transparent pixel."""

_NUMPY_TYPES: Final = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
}


# Records and files


def masked_checksum(content: bytes) -> int:
    """The CRC-32C of `content`, rotated and shifted the way TFRecord files hold it."""
    checksum = google_crc32c.value(content)
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def encode_record(payload: bytes) -> bytes:
    """One TFRecord around `payload`."""
    length = struct.pack("<Q", len(payload))
    length_checksum = struct.pack("<I", masked_checksum(length))
    return length + length_checksum + payload + struct.pack("<I", masked_checksum(payload))


def encode_records(payloads: Iterable[bytes | pb.Event]) -> bytes:
    """The bytes of a file with these records; an event is serialized, bytes are taken as they are."""
    return b"".join(
        encode_record(payload.SerializeToString() if isinstance(payload, pb.Event) else payload)
        for payload in payloads
    )


def write_records(path: Path, payloads: Iterable[bytes | pb.Event], append: bool = False) -> None:
    """Writes (or appends) records to the file at `path`, making its directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab" if append else "wb") as file:
        file.write(encode_records(payloads))


def append_scalars(logdir: Path, steps: Iterable[int] = range(5), run: str = "run") -> None:
    """Append points of the scalar `loss` to the one file of a run; each value is its step."""
    events = [scalar_event("loss", step, float(step)) for step in steps]
    write_records(logdir / run / "tfevents.1", events, append=True)


def record_offsets(path: Path) -> list[int]:
    """Return the offset in bytes of each whole record of a sound file, and last that of their end."""
    content = path.read_bytes()
    offsets = [0]
    while len(content) >= offsets[-1] + HEADER_BYTES:
        (length,) = struct.unpack_from("<Q", content, offsets[-1])
        end = offsets[-1] + HEADER_BYTES + length + FOOTER_BYTES
        if end > len(content):
            break
        offsets.append(end)
    return offsets


# Ways to spoil a file; a record is named by its index, the first is 0


def flip_byte(path: Path, offset: int) -> None:
    """Inverts every bit of the byte at `offset`."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 0xFF
    path.write_bytes(content)


def spoil_length(path: Path, record: int) -> None:
    """Makes a record's length another one, so that its checksum no longer fits."""
    flip_byte(path, record_offsets(path)[record])


def spoil_length_checksum(path: Path, record: int) -> None:
    """Makes the checksum of a record's length a wrong one."""
    flip_byte(path, record_offsets(path)[record] + 8)


def spoil_payload(path: Path, record: int, at: int = 0) -> None:
    """Changes byte `at` of a record's payload, so that the payload's checksum no longer fits."""
    flip_byte(path, record_offsets(path)[record] + HEADER_BYTES + at)


def cut(path: Path, size: int) -> None:
    """Cuts the file to its first `size` bytes; a negative size takes that many bytes off its end."""
    content = path.read_bytes()
    path.write_bytes(content[:size])


# Tensors


def tensor_proto(
    values: npt.ArrayLike, packing: Literal["content", "values"] = "content"
) -> pb.TensorProto:
    """A numeric tensor in `tensor_content`; or, for float32, float64, int32, int64 and bool, in
    `*_val`.
    """
    array = np.asarray(values)
    proto = pb.TensorProto(dtype=_NUMPY_TYPES[array.dtype.name], tensor_shape=_shape(array.shape))
    if packing == "content":
        proto.tensor_content = array.astype(array.dtype.newbyteorder("<")).tobytes()
        return proto
    column = {
        "float32": "float_val",
        "float64": "double_val",
        "int32": "int_val",
        "int64": "int64_val",
        "bool": "bool_val",
    }
    getattr(proto, column[array.dtype.name]).extend(array.ravel().tolist())
    return proto


def string_tensor_proto(
    strings: Sequence[bytes], shape: Sequence[int] | None = None
) -> pb.TensorProto:
    """A string tensor: a vector unless `shape` says otherwise (`()` for a scalar)."""
    return pb.TensorProto(
        dtype=7,
        tensor_shape=_shape([len(strings)] if shape is None else shape),
        string_val=list(strings),
    )


def _shape(sizes: Sequence[int]) -> pb.TensorShapeProto:
    return pb.TensorShapeProto(dim=[pb.TensorShapeProto.Dim(size=size) for size in sizes])


# Events


def version_event(wall_time: float = WALL_TIME) -> pb.Event:
    """The event every writer begins a file with."""
    return pb.Event(wall_time=wall_time, file_version="brain.Event:2")


def summary_event(step: int, wall_time: float, *values: pb.Summary.Value) -> pb.Event:
    """An event with these summary values, in this order."""
    return pb.Event(step=step, wall_time=wall_time, summary=pb.Summary(value=values))


def plugin_event(
    plugin: str,
    tag: str,
    step: int,
    tensor: pb.TensorProto | None,
    wall_time: float = WALL_TIME,
    *,
    data_class: int = 0,
    content: bytes = b"",
) -> pb.Event:
    """A tensor of any plugin, as TensorFlow 2 writes it; `tensor` None leaves the value out.

    Real writers set no data class (0): the reader infers it from the plugin.
    """
    metadata = pb.SummaryMetadata(
        plugin_data=pb.SummaryMetadata.PluginData(plugin_name=plugin, content=content),
        data_class=data_class,
    )
    return summary_event(
        step, wall_time, pb.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)
    )


def scalar_event(
    tag: str,
    step: int,
    value: float,
    wall_time: float = WALL_TIME,
    style: Literal["simple", "tensor"] = "simple",
    *,
    metadata: bool = True,
) -> pb.Event:
    """A float32 scalar: `simple_value` as PyTorch writes it, or a tensor as TensorFlow 2 does.

    TensorFlow 1 repeats no metadata after a tag's first value: pass `metadata=False` for those.
    """
    if style == "simple":
        return summary_event(step, wall_time, pb.Summary.Value(tag=tag, simple_value=value))
    tensor = tensor_proto(np.float32(value))
    if not metadata:
        return summary_event(step, wall_time, pb.Summary.Value(tag=tag, tensor=tensor))
    return plugin_event("scalars", tag, step, tensor, wall_time)


def histogram_event(
    tag: str,
    step: int,
    buckets: npt.ArrayLike,
    wall_time: float = WALL_TIME,
    style: Literal["legacy", "tensor"] = "tensor",
) -> pb.Event:
    """A histogram of rows (left, right, count): TensorFlow 2's [k, 3] tensor, or a legacy
    HistogramProto.
    """
    rows = np.asarray(buckets, dtype=np.float64).reshape(-1, 3)
    if style == "tensor":
        return plugin_event("histograms", tag, step, tensor_proto(rows), wall_time)
    histogram = pb.HistogramProto(bucket_limit=rows[:, 1].tolist(), bucket=rows[:, 2].tolist())
    if len(rows):
        middles = (rows[:, 0] + rows[:, 1]) / 2
        histogram.min, histogram.max = rows[0, 0], rows[-1, 1]
        histogram.num = rows[:, 2].sum()
        histogram.sum = (middles * rows[:, 2]).sum()
        histogram.sum_squares = (middles**2 * rows[:, 2]).sum()
    return summary_event(step, wall_time, pb.Summary.Value(tag=tag, histo=histogram))


def text_event(
    tag: str, step: int, texts: Sequence[str] | str, wall_time: float = WALL_TIME
) -> pb.Event:
    """Text: a scalar string tensor for a string, a vector for a list of them."""
    single = isinstance(texts, str)
    encoded = [text.encode() for text in ([texts] if single else texts)]
    tensor = string_tensor_proto(encoded, () if single else None)
    return plugin_event("text", tag, step, tensor, wall_time)


def image_event(
    tag: str,
    step: int,
    images: Sequence[bytes] = (PNG,),
    wall_time: float = WALL_TIME,
    style: Literal["legacy", "tensor"] = "tensor",
    *,
    width: int = 1,
    height: int = 1,
) -> pb.Event:
    """Encoded images: TensorFlow 2's vector [width, height, image, ...], or one legacy Image
    (`images[0]`).
    """
    if style == "tensor":
        tensor = string_tensor_proto([str(width).encode(), str(height).encode(), *images])
        return plugin_event("images", tag, step, tensor, wall_time)
    image = pb.Summary.Image(
        height=height, width=width, colorspace=3, encoded_image_string=images[0]
    )
    return summary_event(step, wall_time, pb.Summary.Value(tag=tag, image=image))


def audio_event(
    tag: str,
    step: int,
    clips: Sequence[bytes],
    wall_time: float = WALL_TIME,
    style: Literal["legacy", "tensor"] = "tensor",
    *,
    content_type: str = "audio/wav",
) -> pb.Event:
    """Encoded clips: TensorFlow 2's [k, 2] tensor of (clip, label), or one legacy Audio (the first
    of `clips`).

    Only the latter has a content type of its own.
    """
    if style == "tensor":
        strings = [string for clip in clips for string in (clip, b"")]
        tensor = string_tensor_proto(strings, (len(clips), 2))
        # AudioPluginData {encoding: WAV = 11}, tensorboard/plugins/audio/plugin_data.proto
        return plugin_event("audio", tag, step, tensor, wall_time, content=b"\x10\x0b")
    audio = pb.Summary.Audio(
        sample_rate=8000.0,
        num_channels=1,
        length_frames=4,
        encoded_audio_string=clips[0],
        content_type=content_type,
    )
    return summary_event(step, wall_time, pb.Summary.Value(tag=tag, audio=audio))


def graph_event(graph_def: bytes, wall_time: float = WALL_TIME) -> pb.Event:
    """A run's graph, as a serialized GraphDef; it has no step."""
    return pb.Event(wall_time=wall_time, graph_def=graph_def)


def run_metadata_event(tag: str, step: int, run_metadata: bytes) -> pb.Event:
    """TensorFlow 1's serialized RunMetadata of one step."""
    tagged = pb.TaggedRunMetadata(tag=tag, run_metadata=run_metadata)
    return pb.Event(step=step, wall_time=WALL_TIME, tagged_run_metadata=tagged)


def keras_graph_event(tag: str, step: int, model_json: str) -> pb.Event:
    """A Keras model's configuration, a scalar string as the Keras callback writes it."""
    tensor = string_tensor_proto([model_json.encode()], ())
    return plugin_event("graph_keras_model", tag, step, tensor, WALL_TIME, content=b"1")


def hparams_event(tag: str, content: bytes, wall_time: float = WALL_TIME) -> pb.Event:
    """HParams: `content` is a serialized HParamsPluginData, which lives in the metadata; there is
    no tensor.
    """
    return plugin_event("hparams", tag, 0, None, wall_time, content=content)
