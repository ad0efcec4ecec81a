"""Event files cut at a byte, or with bits of it flipped: all framing bytes of a record of each kind,
and some of its payload's.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.damaged_files import Bench, read_plainly, windows
from tbwire import tensorboard_pb2 as pb

DATA = Path(__file__).parents[1] / "data"
FILES = sorted(DATA.rglob("*tfevents*"))
WINDOW_BYTES = 1 << 10
FRAMING = [*range(12), *range(-4, 0)]
PAYLOAD_BYTES = 6


def kind_of(payload):
    """Return the kind of a record, as far as reading it differs."""
    event = pb.Event.FromString(payload)
    values = [
        (value.WhichOneof("value"), value.metadata.plugin_data.plugin_name)
        for value in event.summary.value
    ]
    return event.WhichOneof("what"), *values


def records_of_each_kind():
    """(file, window, where the record starts and ends in it) of the first record of each kind in
    all files.
    """
    seen = set()
    for path in FILES:
        for window in windows(path.read_bytes(), WINDOW_BYTES):
            plain = read_plainly(window)
            ends = [*plain.offsets[1:], plain.end]
            for payload, start, end in zip(plain.payloads, plain.offsets, ends, strict=True):
                if (kind := kind_of(payload)) not in seen:
                    seen.add(kind)
                    yield pytest.param(
                        window, start, end, id=f"{path.parent.relative_to(DATA)}:{start}"
                    )


@pytest.mark.parametrize(("content", "start", "end"), list(records_of_each_kind()))
def test_record_damaged_anywhere_costs_only_itself(tmp_path, content, start, end):
    bench = Bench(tmp_path)
    framing = [start + at if at >= 0 else end + at for at in FRAMING]
    payload = range(start + 12, end - 4, max(1, (end - start - 16) // PAYLOAD_BYTES))
    for number, offset in enumerate([*framing, *payload]):
        bench.check_cut(content, offset)
        bench.check_flip(content, offset, 0xFF)
        bench.check_flip(content, offset, 1 << number % 8)
        bench.check_resealed(content, offset, 1 << number % 8)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DATA)))
def test_file_cut_or_changed_here_and_there_gives_rest(tmp_path, path):
    content, bench = path.read_bytes(), Bench(tmp_path)
    for number, offset in enumerate(range(0, len(content), len(content) // 7 + 1)):
        bench.check_cut(content, offset)
        bench.check_flip(content, offset, 1 << number % 8)
        bench.check_resealed(content, offset, 0xFF)
