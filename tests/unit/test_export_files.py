"""Files of an export: records that protobuf and TensorBoard's framing read back, inside its
directory.
"""

from __future__ import annotations

import os
import re
import struct
from urllib.parse import unquote

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from support.event_files import encode_record
from support.python39 import zip_strict
from tbupload.export.destination import atomic_file
from tbupload.export.directory_names import event_file_name, run_directory
from tbupload.export.event_records import (
    audio_record_head,
    blob_record_head,
    header,
    record,
    scalar_records,
)
from tbwire import frames, read_pb2
from tbwire import tensorboard_pb2 as pb
from tbwire.points import ScalarPoints

METADATA = pb.SummaryMetadata(display_name="x" * 200, data_class=1).SerializeToString()
STEPS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 300))
BITS = st.one_of(st.floats(), st.floats(width=32))


@given(st.dictionaries(STEPS, BITS, min_size=1), st.text(max_size=20), st.booleans())
@example({0: float("nan"), 127: -0.0, 128: 5e-324, -1: float("inf")}, "a" * 5000, True)
def test_scalars_are_records_that_protobuf_reads_bit_by_bit(points, tag, has_metadata):
    events, _steps, values = written_scalars(points, tag, METADATA if has_metadata else None)
    (kind,) = {value.tensor.dtype for event in events for value in event.summary.value}
    content = b"".join(event.summary.value[0].tensor.tensor_content for event in events)
    with np.errstate(all="ignore"):
        assert (
            np.frombuffer(content, {1: "<f4", 2: "<f8"}[kind]).astype("<f8").tobytes()
            == values.tobytes()
        )
    described = [event.summary.value[0].HasField("metadata") for event in events]
    assert described == [has_metadata] + [False] * (len(events) - 1)


@given(
    st.dictionaries(STEPS, st.floats(width=32, allow_nan=False), min_size=1), st.text(max_size=20)
)
@example({0: float("inf"), 127: -0.0, 128: 2**-149, -1: 1.5}, "a" * 5000)
def test_scalars_that_came_as_simple_values_go_as_such(points, tag):
    events, steps, values = written_scalars(points, tag, METADATA, is_simple=True)
    assert [event.summary.value[0].simple_value for event in events] == values.tolist()
    assert not any(event.summary.value[0].HasField("metadata") for event in events)
    steps, values = [*steps, 2**62], [*values, 1 / 3]  # which no simple value holds
    events, *_ = written_scalars(dict(zip_strict(steps, values)), tag, METADATA, is_simple=True)
    assert events[0].summary.value[0].metadata.SerializeToString() == METADATA
    assert {event.summary.value[0].WhichOneof("value") for event in events} == {"tensor"}


def written_scalars(points, tag, metadata, *, is_simple=False):
    """Return the scalars of written events, after checking their framing, steps and wall times."""
    steps = np.array(sorted(points), np.int64)
    values = np.array([points[step] for step in steps.tolist()])
    columns = ScalarPoints(steps, values[::-1].copy(), values)
    written = b"".join(scalar_records(tag, columns, metadata, is_simple=is_simple))
    at, runs = 0, []
    while at < len(written):
        (length,) = struct.unpack_from("<Q", written, at)
        payload = written[at + 12 : at + 12 + length]
        assert written[at : at + length + 16] == encode_record(payload)
        runs.append(pb.Event.FromString(payload))
        at += length + 16
    assert [event.step for event in runs] == steps.tolist()
    assert np.array([event.wall_time for event in runs]).tobytes() == values[::-1].tobytes()
    assert {event.summary.value[0].tag for event in runs} == {tag}
    return runs, steps, values


@given(st.lists(st.binary(max_size=300), max_size=4), STEPS, st.booleans())
def test_blobs_are_string_vector_wherever_they_come_from(blobs, step, has_metadata):
    metadata = METADATA if has_metadata else None
    head, befores, size = blob_record_head(
        "tag", step, 1.5, [len(blob) for blob in blobs], metadata
    )
    payload = head + b"".join(before + blob for before, blob in zip_strict(befores, blobs))
    assert len(payload) == size
    event = pb.Event.FromString(payload)
    (value,) = event.summary.value
    assert (event.step, event.wall_time, value.tag) == (step, 1.5, "tag")
    assert (list(value.tensor.string_val), value.tensor.tensor_shape.dim[0].size) == (
        blobs,
        len(blobs),
    )
    assert value.metadata.SerializeToString() == (metadata or b"")
    assert record(payload) == encode_record(payload)
    assert header(size) == encode_record(payload)[:12]


@given(st.binary(max_size=300), st.text(max_size=300), STEPS, st.booleans())
def test_clip_with_content_type_is_legacy_audio(clip, content_type, step, has_metadata):
    metadata = pb.SummaryMetadata(display_name="name", summary_description="x" * 200, data_class=3)
    described = metadata.SerializeToString() if has_metadata else None
    head, (before,), size = audio_record_head("tag", step, 1.5, len(clip), content_type, described)
    payload = head + before + clip
    assert len(payload) == size
    event = pb.Event.FromString(payload)
    (value,) = event.summary.value
    assert (event.step, event.wall_time, value.tag) == (step, 1.5, "tag")
    assert (value.audio.encoded_audio_string, value.audio.content_type) == (clip, content_type)
    metadata.ClearField("data_class")  # a reader makes all the rest
    assert (value.metadata == metadata) == value.HasField("metadata") == has_metadata


@given(
    st.text(st.sampled_from("ab./%\0\\:é "), max_size=12),
    st.text(st.sampled_from("ab./%\0é "), max_size=12),
)
@example("..", "a/..")
@example("tbhub-export.json", "a/" + event_file_name("x", 1))
@example("x" * 201, "/x")
def test_every_run_has_file_of_its_own_below_directory(run, other):
    paths = []
    for name in (run, other):
        path = os.path.join("/out", run_directory(name), event_file_name(name, 1.7e9))  # noqa: PTH118 - as text
        assert os.path.normpath(path) == path.replace("/out//", "/out/")
        assert path.startswith("/out/")
        assert "\0" not in path
        assert all(len(part.encode()) <= 255 for part in path.split("/"))
        paths.append(path)
    assert (run == other) == (paths[0] == paths[1])


ODD_NAMES = st.text(st.sampled_from("a/%0A1b2e\n\r\x1b\x9b\u202e\u200d\ud800é 🙂"), max_size=14)
HARMFUL = set(
    map(chr, [*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xD800])
)


@given(st.sets(ODD_NAMES, max_size=5))
@example({"a\n", "a%0A", "a%250A", "a%0a", "50%", "a%"})
@example({"\x01bcdef012345678", "%01bcdef012345678", "%ABCDEF0123456789"})
def test_directory_of_run_is_harmless_and_its_own(runs):
    directories = {run: run_directory(run) for run in runs}
    assert len(set(directories.values())) == len(runs)
    for run, directory in directories.items():
        assert not HARMFUL & set(directory)
        is_digest = re.fullmatch("%[0-9a-f]{16}", directory) is not None
        is_itself = directory == (run if run != "." else "")
        assert is_digest or is_itself or unquote(directory, errors="surrogatepass") == run


def test_directory_of_harmless_run_is_run():
    for run in ("lr=10%", "a/b 100%/ü", "%", "50% off", "👩\u200d💻"):
        assert run_directory(run) == run
    assert run_directory("evil\x1b]0;x\x07/line\nbreak") == "evil%1B]0;x%07/line%0Abreak"


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(1, 50))
def test_frames_come_back_however_they_are_cut(contents, size):
    sent = [
        read_pb2.Frame(part=read_pb2.Part(series=read_pb2.Series(summary_metadata=each)))
        for each in contents
    ]
    whole = b"".join(map(frames.encode_frame, sent))
    assert (
        list(frames.decode_frames(whole[at : at + size] for at in range(0, len(whole), size)))
        == sent
    )


def test_file_has_its_name_when_it_is_whole_and_not_before(tmp_path):
    path = tmp_path / "made" / "events.out.tfevents.1"
    with atomic_file(path) as file:
        file.write(b"half")
        file.flush()
        assert not path.exists()
        assert not [entry.name for entry in path.parent.iterdir() if "tfevents" in entry.name]
    assert (path.read_bytes(), len(list(path.parent.iterdir()))) == (b"half", 1)
