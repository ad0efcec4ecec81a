"""WriteBatches that no uploader sends, made from a sequence of choices; and what an accepted one
must mean.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from support.hostile_events import ITEM_BYTES, SHAPES, TAGS, WALL_TIMES, histogram
from support.wire_format import (
    FIXED32,
    FIXED64,
    LENGTH,
    VARINT,
    Choices,
    Field,
    double,
    message,
    text,
    varint,
)
from tbservice import limits
from tbservice.errors import ServiceError
from tbservice.ingest import decode
from tbservice.ingest.batch import InlineBlob, Segment
from tbservice.samples import TensorValue
from tbwire import packing, tensors, wire_pb2
from tbwire.points import BlobSequencePoints, TensorPoints

RUNS = ["train", "", "a/b", "ä"]
PLUGINS = ["scalars", "text", "images", "mine"]
CONTENT_TYPES = ["audio/wav", "ä\n" * 127, "z" * 256, "audio/\0", ""]
STEPS = [0, 1, -1, 2**63 - 1, -(2**63), 7]
SIZES = [0, 1, 100, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
DIGESTS = [bytes(32), b"\xab" * 32, b"", bytes(31), bytes(33)]


def write_batch(choices: Choices) -> bytes:
    """Return a serialized WriteBatch, possibly damaged; without choices, one that is accepted."""
    segments: list[Field] = [(1, LENGTH, _segment(choices)) for _ in range(1 + choices.below(3))]
    content = message(choices, segments)
    return content[: -1 - choices.below(40)] if choices.seldom() else content


def _segment(choices: Choices) -> bytes:
    start = choices.pick([0, 0, 100, 2**40]) if not choices.seldom() else choices.pick(SIZES)
    fields: list[Field] = [
        (1, LENGTH, _stream(choices)),
        (2, VARINT, varint(start)),
        (
            3,
            VARINT,
            varint(
                choices.pick([start, start + 100]) if not choices.seldom() else choices.pick(SIZES)
            ),
        ),
        (4, FIXED32, bytes(4)),
        (5, FIXED32, b"\xff\xff\xff\xff"),
        *((6, LENGTH, _series(choices, tag)) for tag in TAGS[: 1 + choices.below(4)]),
        (8, FIXED64, double(choices.pick(WALL_TIMES))),
    ]
    if choices.seldom(4):
        skipped = [
            (1, LENGTH, text(choices, ["a reason", "another"])),
            (2, VARINT, varint(choices.pick(SIZES))),
        ]
        fields += [(7, LENGTH, message(choices, skipped))] * choices.pick([1, 2, 200])
    return message(choices, fields)


def _stream(choices: Choices) -> bytes:
    digests = DIGESTS if choices.seldom() else DIGESTS[:2]
    fields: list[Field] = [
        (1, LENGTH, text(choices, RUNS)),
        (2, LENGTH, text(choices, ["events.out.tfevents.1"])),
        (3, LENGTH, choices.pick(digests)),
        (4, VARINT, varint(choices.pick([0, 1, 2**31 - 1, 2**31, -1]) if choices.seldom() else 0)),
        (5, LENGTH, choices.pick(digests)),
    ]
    return message(choices, fields)


def _series(choices: Choices, tag: str) -> bytes:
    data_class = choices.pick([1, 2, 3])
    points = {1: _scalars, 2: _tensors, 3: _blob_sequences}
    fields: list[Field] = [
        (1, LENGTH, tag.encode() if not choices.seldom(8) else text(choices, TAGS)),
        (2 + data_class, LENGTH, points[data_class](choices)),
    ]
    if choices.below(4) != 1:
        said = data_class if not choices.seldom() else choices.pick([0, 1, 2, 3, 4])
        plugin = message(choices, [(1, LENGTH, text(choices, PLUGINS))])
        fields.append(
            (2, LENGTH, message(choices, [(1, LENGTH, plugin), (4, VARINT, varint(said))]))
        )
    if choices.seldom(20):
        other = choices.pick([1, 2, 3])
        fields.append((2 + other, LENGTH, points[other](choices)))
    return message(choices, fields)


def _columns(choices: Choices) -> tuple[int, list[Field]]:
    count = choices.pick([1, 2, 3, 0, 300])
    walls = WALL_TIMES if choices.seldom() else WALL_TIMES[:4]
    steps = b"".join(struct.pack("<q", choices.pick(STEPS)) for _ in range(count))
    times = b"".join(double(choices.pick(walls)) for _ in range(count))
    if choices.seldom(20):
        times = times[: -choices.pick([1, 8])]
    return count, [(1, LENGTH, steps), (2, LENGTH, times)]


def _scalars(choices: Choices) -> bytes:
    if choices.seldom(4):
        return message(
            choices,
            [(5, LENGTH, _block(choices, first)) for first in (0, 100, 50)[: 1 + choices.below(3)]],
        )
    count, fields = _columns(choices)
    width = choices.pick([8, 4])
    values = choices.pick([b"\x00", b"\x3f", b"\xff", b"\x7f"]) * (width * count)
    fields.append((3 if width == 4 else 4, LENGTH, values))
    if choices.seldom():
        fields.append((choices.pick([3, 4]), LENGTH, values))
    return message(choices, fields)


def _block(choices: Choices, first: int) -> bytes:
    """Return packed points with nearly ascending steps, or a damaged block."""
    steps = np.arange(first, first + choices.pick([1, 2, 20, 1_500, 8_192, 8_193]))
    if choices.seldom():
        steps = steps[::-1] * choices.pick([1, 2**58])
    wall_times = 1.7e9 + steps * choices.pick([1.0, 0.0, 1 / 3, 1e280])
    values = steps.astype(choices.pick(["<f4", "<f8"])) / choices.pick([1, 3])
    block = packing.pack(np.ascontiguousarray(steps), wall_times, values)
    if not choices.seldom(4):
        return block
    at = choices.pick([0, 1, 2, 3, 4, 5, 7, 8, 16, 24, 32, 40, 48, 56])
    odd = bytes([choices.pick([0, 1, 2, 3, 8, 255])])
    return choices.pick(
        [block[:at] + odd + block[at + 1 :], block[:at], block[:-1], block + b"\0", b""]
    )


def _tensors(choices: Choices) -> bytes:
    count, fields = _columns(choices)
    for _ in range(min(count, 4) if choices.seldom() else count):
        fields.append((3, LENGTH, _tensor(choices)))
    return message(choices, fields)


def _tensor(choices: Choices) -> bytes:
    dtype = choices.pick([1, 2, tensors.STRING, 3, 8, 10, 14, 18, 19, 23])
    if choices.seldom():
        dtype = choices.pick([0, 20, -1, 2**31 - 1])
    shape = choices.pick(SHAPES[:8]) if not choices.seldom(8) else choices.pick(SHAPES)
    elements = 1
    for size in shape:
        elements *= size
    elements = max(0, min(elements, 40))
    data = bytes(elements * ITEM_BYTES.get(dtype, 4))
    if dtype == tensors.STRING:
        lengths = [choices.pick([0, 3, 1]) for _ in range(elements)]
        data = b"".join(struct.pack("<I", length) for length in lengths) + b"x" * sum(lengths)
    if choices.seldom():
        data = choices.pick([data + b"\x00", data[:-1], b"", b"\xff" * len(data)])
    sizes: list[Field] = [(2, LENGTH, b"".join(map(varint, shape)))]
    fields: list[Field] = [(1, VARINT, varint(dtype)), *sizes, (3, LENGTH, data)]
    if choices.seldom(6):
        size = choices.pick([len(data), len(data), choices.pick(SIZES)])
        reference: list[Field] = [(1, LENGTH, choices.pick(DIGESTS)), (2, VARINT, varint(size))]
        fields[-1:] = [(5, LENGTH, message(choices, reference))]
    if choices.seldom(6):
        fields.append((4, LENGTH, histogram(choices)))
    return message(choices, fields)


def _blob_sequences(choices: Choices) -> bytes:
    count, fields = _columns(choices)
    for _ in range(min(count, 4) if choices.seldom() else count):
        blobs: list[Field] = [(1, LENGTH, _blob(choices))] * choices.pick([1, 3, 0, 2])
        if choices.seldom(6):
            blobs.append((2, LENGTH, text(choices, CONTENT_TYPES)))
        fields.append((3, LENGTH, message(choices, blobs)))
    return message(choices, fields)


def _blob(choices: Choices) -> bytes:
    reference = [(1, LENGTH, choices.pick(DIGESTS)), (2, VARINT, varint(choices.pick(SIZES)))]
    kinds: list[Field] = [
        (1, LENGTH, choices.pick([b"content", b"", b"x" * 300])),
        (2, LENGTH, message(choices, reference)),
    ]
    return message(choices, [choices.pick(kinds)])


def check(body: bytes) -> list[Segment] | None:
    """Decode a body: an accepted one must equal what protobuf decodes, within the limits.

    Return None if it is refused with one of our errors.
    """
    try:
        segments = decode.decode_batch(body)
    except ServiceError as error:
        _check_refusal(error)
        return None
    sent = wire_pb2.WriteBatch.FromString(body).segments
    assert [_plain(segment) for segment in segments] == [_said(segment) for segment in sent]
    for segment in segments:
        _check_limits(segment)
    return segments


def _check_refusal(error: ServiceError) -> None:
    assert 400 <= error.status < 500
    assert 0 < len(error.detail.encode()) < 1000


def _plain(segment: Segment) -> tuple:
    stream = segment.stream
    series = [
        (
            series.tag,
            series.metadata.serialized if series.metadata else b"",
            *_plain_points(series.points),
        )
        for series in segment.series
    ]
    names = (
        stream.run,
        stream.file_name,
        stream.first_record_digest,
        stream.generation,
        stream.filters_digest,
    )
    span = segment.start, segment.end, segment.start_checksum, segment.end_checksum
    return names, span, series, segment.skipped


def _plain_points(points: object) -> tuple:
    columns = points.steps.tolist(), points.wall_times.tolist()
    if isinstance(points, TensorPoints):
        return *columns, [
            (each.dtype, each.shape, _plain_data(each), each.histogram or b"")
            for each in points.tensors
        ]
    if isinstance(points, BlobSequencePoints):
        sequences = [[_plain_blob(blob) for blob in sequence] for sequence in points.sequences]
        return *columns, list(zip(sequences, points.logged_content_types, strict=True))
    return *columns, repr(points.values.tolist())


def _plain_data(tensor: TensorValue) -> bytes | tuple:
    return tensor.data if tensor.reference is None else _plain_blob(tensor.reference)


def _plain_blob(blob: object) -> bytes | tuple:
    return blob.content if isinstance(blob, InlineBlob) else (blob.sha256, blob.size)


def _said(segment: wire_pb2.Segment) -> tuple:
    """Return the content of the message, without numpy."""
    stream = segment.stream
    names = (
        stream.run,
        stream.file_name,
        stream.first_record_digest,
        stream.generation,
        stream.filters_digest,
    )
    span = segment.start, segment.end, segment.start_checksum, segment.end_checksum
    series = [(each.tag, each.summary_metadata, *_said_points(each)) for each in segment.series]
    return names, span, series, {skipped.reason: skipped.count for skipped in segment.skipped}


def _said_points(series: wire_pb2.Series) -> tuple:
    kind = series.WhichOneof("points")
    points = getattr(series, kind)
    columns = _numbers("q", points.steps), _numbers("d", points.wall_times)
    if kind == "tensors":
        return *columns, [_said_tensor(each) for each in points.tensors]
    if kind == "blob_sequences":
        sequences = [[_said_blob(blob) for blob in sequence.blobs] for sequence in points.sequences]
        return *columns, list(
            zip(sequences, [each.logged_content_type for each in points.sequences], strict=True)
        )
    if points.blocks:
        unpacked = [packing.unpack(block) for block in points.blocks]
        steps, wall_times, values = (
            [each for part in parts for each in part.tolist()]
            for parts in zip(*unpacked, strict=True)
        )
        return steps, wall_times, repr(values)
    return *columns, repr(_numbers("f", points.values32) + _numbers("d", points.values64))


def _said_tensor(sent: wire_pb2.Tensor) -> tuple:
    data = (sent.reference.sha256, sent.reference.size) if sent.HasField("reference") else sent.data
    return sent.dtype, tuple(sent.shape), data, sent.histogram.SerializeToString()


def _said_blob(sent: wire_pb2.Blob) -> bytes | tuple:
    return (
        sent.content
        if sent.WhichOneof("source") == "content"
        else (sent.reference.sha256, sent.reference.size)
    )


def _numbers(kind: str, column: bytes) -> list:
    return list(struct.unpack(f"<{len(column) // struct.calcsize(kind)}{kind}", column))


def _check_limits(segment: Segment) -> None:
    names: Sequence[str] = [segment.stream.run, segment.stream.file_name, *segment.skipped]
    tags = [series.tag for series in segment.series]
    assert len(set(tags)) == len(tags)
    assert all("\0" not in name and len(name) <= limits.NAME_CHARS_MAX for name in [*names, *tags])
    for series in segment.series:
        steps, wall_times, values = _plain_points(series.points)
        assert steps
        assert all(abs(wall_time) < float("inf") for wall_time in wall_times)
        if isinstance(series.points, BlobSequencePoints):
            for blobs, content_type in values:
                assert not content_type or len(blobs) == 1
                assert len(content_type) <= limits.LOGGED_CONTENT_TYPE_CHARS_MAX
                assert "\0" not in content_type
        if isinstance(series.points, TensorPoints):
            for dtype, shape, data, _ in values:
                if isinstance(data, bytes):
                    assert tensors.to_numpy(dtype, shape, data).shape == shape
                else:
                    tensors.check_size(dtype, shape, data[1])
                    assert data[1] <= limits.TENSOR_OBJECT_BYTES_MAX
