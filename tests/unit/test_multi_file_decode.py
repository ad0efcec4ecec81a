"""Small files decoded together: each gives what it gives alone, even if it or its neighbours are
damaged.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.damaged_files import read_to_end
from support.event_files import (
    cut,
    encode_record,
    encode_records,
    flip_byte,
    hparams_event,
    image_event,
    plugin_event,
    scalar_event,
    spoil_length,
    spoil_length_checksum,
    spoil_payload,
    tensor_proto,
    text_event,
    version_event,
)
from support.hostile_events import event_file
from support.python39 import zip_strict
from support.read_events import LIMITS, join, open_file
from support.wire_format import Choices
from tbupload.events import multi_file_decode
from tbupload.events.decode import budget, decoder
from tbupload.events.multi_file_decode import read_together
from tbwire import tensorboard_pb2 as pb

FILES = 6


def events(number):
    """Return the events of one of several similar runs, whose metadata differs from file to file."""
    metadata = pb.SummaryMetadata(
        plugin_data={"plugin_name": "scalars"}, display_name=f"run {number % 2}"
    )
    named = pb.Summary.Value(tag="named", simple_value=number, metadata=metadata)
    return [
        version_event(1_700_000_000.0 + number),
        *(
            scalar_event(tag, step, step * number)
            for step in range(140)
            for tag in ("loss", "lost", "accuracy")
        ),
        *(
            scalar_event("tensor", step, number, style="tensor", metadata=step == 0)
            for step in range(30)
        ),
        pb.Event(step=3, wall_time=1.0, summary=pb.Summary(value=[named] * 3)),
        *(scalar_event("late", step, number, wall_time=float("nan")) for step in range(number)),
        text_event("notes" if number % 2 else "loss", 1, f"file {number}"),
        image_event("picture", number),
        hparams_event("_hparams_/x", b"content %d" % number),
        hparams_event("_hparams_/x", b"content again %d" % number),
    ]


@cache
def content_of(number):
    """Return the bytes of one of the files; most tests read all, and encoding takes longer."""
    return encode_records(events(number))


@pytest.fixture
def paths(tmp_path):
    paths = [tmp_path / f"events.out.tfevents.{number}" for number in range(FILES)]
    for number, path in enumerate(paths):
        path.write_bytes(content_of(number))
    return paths


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """Return by `final` what the files give while nothing is damaged."""
    directory = tmp_path_factory.mktemp("clean")
    paths = [directory / str(number) for number in range(FILES)]
    for number, path in enumerate(paths):
        path.write_bytes(content_of(number))
    return {final: assert_same_as_alone(paths, final=final) for final in (True, False)}


def read_each(files, *, final):
    """Return of each file: its chunks, what they join to, the error that ended it, and the offset
    reached.
    """
    results = []
    for file in files:
        digest = file.first_record_digest() if file.path.exists() else None
        try:
            chunks, error = read_to_end(file, final=final)
        except OSError as gone:
            chunks, error = [], gone
        edges = [
            (chunk.start, chunk.end, chunk.start_checksum, chunk.end_checksum) for chunk in chunks
        ]
        metadata = [
            (chunk.skipped, [(each.tag, each.metadata) for each in chunk.series])
            for chunk in chunks
        ]
        series, skipped = join(chunks)  # in text, as NaN equals nothing
        results.append((edges, metadata, repr(series), skipped, repr(error), file.offset, digest))
    return results


def assert_same_as_alone(paths, *, final=True, limits=LIMITS):
    alone = read_each([open_file(path, limits=limits) for path in paths], final=final)
    files = [open_file(path, limits=limits) for path in paths]
    assert read_each(together(files, final=final), final=final) == alone
    return alone


def together(files, *, final):
    return read_together(files, lambda file: file, lambda *_: True, final=final)


def count_decodings(monkeypatch):
    """Return a list with the number of files that each decoder is given."""
    counts, init = [], decoder.ChunkDecoder.__init__

    def counting(self, buffer, frames, parts, limits):
        counts.append(len(parts))
        init(self, buffer, frames, parts, limits)

    monkeypatch.setattr(decoder.ChunkDecoder, "__init__", counting)
    return counts


def test_files_read_together_give_what_each_gives_alone(paths, monkeypatch):
    alone = assert_same_as_alone(paths)
    assert all(
        edges[-1][1] == path.stat().st_size for (edges, *_), path in zip_strict(alone, paths)
    )
    counts = count_decodings(monkeypatch)
    read_each(together(map(open_file, paths), final=True), final=True)
    assert counts == [FILES]


DAMAGE = {
    "half of its last record is missing": lambda path: cut(path, path.stat().st_size - 3),
    "its last header is not whole": lambda path: path.write_bytes(
        path.read_bytes() + encode_record(b"x")[:11]
    ),
    "a header promises more than there is": lambda path: path.write_bytes(
        path.read_bytes() + encode_record(b"x" * 99)[:40]
    ),
    "a record swallows the next file's first": lambda path: path.write_bytes(
        path.read_bytes() + encode_record(bytes(24 + 24 + 16))[:28]
    ),
    "a length is spoilt": lambda path: spoil_length(path, 200),
    "the checksum of a length is spoilt": lambda path: spoil_length_checksum(path, 200),
    "its first length is spoilt": lambda path: spoil_length(path, 0),
    "a payload is spoilt": lambda path: spoil_payload(path, 200),
    "its first payload is spoilt": lambda path: spoil_payload(path, 0),
    "its last checksum is spoilt": lambda path: flip_byte(path, path.stat().st_size - 1),
    "it is empty": lambda path: path.write_bytes(b""),
    "it is no event file": lambda path: path.write_bytes(
        b"once upon a time there was no event file here"
    ),
    "it is zeros": lambda path: path.write_bytes(bytes(5000)),
    "a record is no event": lambda path: path.write_bytes(
        path.read_bytes() + encode_record(b"\xff" * 9) * 30
    ),
    "its last record is long": lambda path: path.write_bytes(
        path.read_bytes() + encode_records([image_event("big", 1, [bytes(70_000)])])
    ),
    "it has gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("place", [0, FILES - 1])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_in_one_file_costs_others_nothing(paths, clean, damage, place, final):
    damage(paths[place])
    expected = list(clean[final])
    (expected[place],) = read_each([open_file(paths[place])], final=final)
    assert read_each(together(map(open_file, paths), final=final), final=final) == expected


def test_files_that_are_all_damaged_are_told_apart(paths):
    for first in range(0, len(DAMAGE), FILES):
        for number, (path, damage) in enumerate(
            zip(paths, list(DAMAGE.values())[first:])  # noqa: B905 - the last files are sound, and Python 3.9 has no `strict`
        ):
            path.write_bytes(content_of(number))
            damage(path)
        assert_same_as_alone(paths)
        assert_same_as_alone(paths, final=False)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=200), min_size=2, max_size=4), st.booleans())
def test_any_files_read_together_give_what_each_gives_alone(tmp_path, choices, final):
    paths = [tmp_path / str(number) for number in range(len(choices))]
    for path, data in zip_strict(paths, choices):
        path.write_bytes(event_file(Choices(data)))
    assert_same_as_alone(paths, final=final)


@pytest.mark.parametrize(
    "limits",
    [
        replace(LIMITS, chunk_bytes=5000),
        replace(LIMITS, streamed_record_bytes_min=100),
        replace(LIMITS, name_chars_max=4, metadata_bytes_max=60),
    ],
)
def test_limits_hold_for_files_read_together(paths, limits):
    assert_same_as_alone(paths, limits=limits)


def test_files_with_too_much_in_them_are_read_alone(tmp_path, monkeypatch):
    shape = pb.TensorShapeProto(dim=[{"size": 1000}])
    filled = [
        plugin_event(
            "mine", "t", step, pb.TensorProto(dtype=1, tensor_shape=shape, float_val=[step])
        )
        for step in range(20)
    ]
    paths = [tmp_path / str(number) for number in range(FILES)]
    for path in paths:
        hparams = [hparams_event("_hparams_/x", str(step).encode()) for step in range(20)]
        mixed = [event for pair in zip_strict(filled, hparams) for event in pair]
        path.write_bytes(encode_records([version_event(), *mixed]))
    monkeypatch.setattr(budget, "CHUNK_TENSORS_BYTES_MAX", 10_000)
    alone = assert_same_as_alone(paths)
    assert all(len(edges) > 1 for edges, *_ in alone)


def test_hparams_metadata_applies_to_its_file_only(paths):
    for number, path in enumerate(paths[:2]):
        contents = [b"one"] * 20 + [b"too long" * 20] * 20 * (1 - number)
        path.write_bytes(encode_records([hparams_scalar(content) for content in contents]))
    _, other = assert_same_as_alone(paths[:2], limits=replace(LIMITS, metadata_bytes_max=100))
    ((skipped, ((tag, metadata),)),) = other[1]
    assert (skipped, tag, b"one" in metadata) == ({}, "t", True)


def hparams_scalar(content):
    metadata = pb.SummaryMetadata(plugin_data={"plugin_name": "hparams", "content": content})
    return pb.Event(
        step=1,
        summary=pb.Summary(
            value=[pb.Summary.Value(tag="t", tensor=tensor_proto(1.0), metadata=metadata)]
        ),
    )


def test_file_that_grows_is_read_from_its_last_offset(paths):
    files = list(together(map(open_file, paths), final=False))
    before = [file.read() for file in files]
    for path in paths:
        with path.open("ab") as file:
            file.write(
                encode_records([scalar_event("tensor", 99, 1.0, style="tensor", metadata=False)])
            )
    after = [file.read() for file in files]
    assert [chunk.start for chunk in after] == [chunk.end for chunk in before]
    assert [[(each.tag, each.plugin) for each in chunk.series] for chunk in after] == [
        [("tensor", "scalars")]
    ] * FILES


def test_file_is_left_alone_where_it_is_not_wanted(paths, monkeypatch):
    counts = count_decodings(monkeypatch)
    unwanted = open_file(paths[2]).first_record_digest()
    files = [open_file(path) for path in paths]
    decoded = read_together(
        files,
        lambda file: file if file is not files[4] else None,
        lambda _, it: it != unwanted,
        final=True,
    )
    assert list(decoded) == files
    assert counts == [FILES - 2]
    assert [file.read(final=True).end for file in files] == [path.stat().st_size for path in paths]


def test_files_come_in_their_order_however_many_there_are(paths, monkeypatch):
    monkeypatch.setattr(multi_file_decode, "FILES_MAX", 4)
    monkeypatch.setattr(
        multi_file_decode, "FILE_BYTES_MAX", max(path.stat().st_size for path in paths)
    )
    paths[1].write_bytes(
        bytes(10) + paths[1].read_bytes() * 2
    )  # larger than any that is read together
    files = [open_file(path) for path in [*paths, *paths, *paths]]
    counts = count_decodings(monkeypatch)
    assert list(together(files, final=True)) == files
    assert max(counts) <= 4
    assert sum(counts) > FILES
