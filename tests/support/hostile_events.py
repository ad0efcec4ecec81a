"""Event files that no writer writes, and some that are nearly right: made from a sequence of
choices.
"""

from __future__ import annotations

import struct

from support.event_files import encode_record, masked_checksum
from support.wire_format import (
    FIXED32,
    FIXED64,
    LENGTH,
    VARINT,
    Choices,
    Field,
    double,
    message,
    single,
    text,
    varint,
)

NAN, INFINITE = float("nan"), float("inf")
TAGS = ["loss", "lost", "a", "accuracy/top 1", "accuracy/top 5", "ä/漢", "x" * 70]
PLUGINS = [
    "scalars",
    "histograms",
    "text",
    "hparams",
    "images",
    "audio",
    "graph_keras_model",
    "mesh",
    "mine",
    "",
]
STEPS = [1, 0, 127, 128, 16_383, 16_384, 2**31, 2**63 - 1, -1, -(2**63)]
WALL_TIMES = [1_700_000_000.25, 1.5, 0.0, -3.0, 1e300, NAN, INFINITE, -INFINITE]
NUMBERS = [0.5, 1 / 3, 0.0, -0.0, NAN, INFINITE, -INFINITE, 1e-45, 3.4e38]
DATA_TYPES = [
    1, 2, 3, 9, 7, 10, 14, 19, 4, 5, 6, 8, 17, 18, 22, 23, 0, 11, 12, 20, 21, 99, 101, 2**31 - 1, -1, 2**40,
]  # fmt: skip
SHAPES = [
    [], [1], [1, 1], [2], [3], [2, 2], [0], [0, 3], [5], [-1], [1, -1], [2**31, 2**31], [2**62], [10**18], [0, 2**62],
    [2**63 - 1] * 3, [1] * 64, [1] * 65, [1000], [-(2**63)], [2**20],
]  # fmt: skip
ITEM_BYTES = {
    1: 4, 2: 8, 3: 4, 4: 1, 5: 2, 6: 1, 8: 8, 9: 8, 10: 1, 14: 2, 17: 2, 18: 16, 19: 2, 22: 4, 23: 8,
}  # fmt: skip
VALUE_FIELDS = {
    1: 5, 2: 6, 3: 7, 4: 7, 5: 7, 6: 7, 7: 8, 8: 9, 9: 10, 10: 11, 14: 13, 17: 7, 18: 12, 19: 13, 22: 16, 23: 17,
}  # fmt: skip
REPEATS = [1, 1, 2, 8, 9, 12]


def event_file(choices: Choices) -> bytes:
    """Return a file of such events, some repeated often enough for bulk decoding; its framing is
    mostly valid.
    """
    payloads = []
    for _ in range(1 + choices.below(6)):
        payloads += [event(choices)] * choices.pick(REPEATS)
    content = b"".join(_record(choices, payload) for payload in choices.shuffled(payloads))
    return content[: -1 - choices.below(40)] if choices.seldom() else content


def event(choices: Choices) -> bytes:
    """Return one serialized event, possibly damaged."""
    fields: list[Field] = []
    if not choices.seldom():
        fields.append((1, FIXED64, double(choices.pick(WALL_TIMES))))
    if not choices.seldom():
        fields.append(
            (
                2,
                VARINT,
                varint(
                    choices.pick(STEPS), padding=choices.pick([1, 9]) if choices.seldom() else 0
                ),
            )
        )
    fields.append(_what(choices))
    if choices.seldom(20):
        fields.append(_what(choices))
    return message(choices, fields)


def _what(choices: Choices) -> Field:
    if not choices.seldom(6):
        return 5, LENGTH, summary(choices)
    tagged = message(choices, [(1, LENGTH, text(choices, TAGS)), (2, LENGTH, b"metadata")])
    others = [
        (3, text(choices, ["brain.Event:2"])),
        (4, b"graph"),
        (6, b"log"),
        (7, b"session"),
        (8, tagged),
        (9, b"m"),
    ]
    number, content = choices.pick(others)
    return number, LENGTH, content


def summary(choices: Choices) -> bytes:
    """Return a summary of a few values, or of very many empty ones."""
    if choices.seldom(40):
        return b"\x0a\x00" * 1000
    return message(choices, [(1, LENGTH, value(choices)) for _ in range(1 + choices.below(3))])


def value(choices: Choices) -> bytes:
    """A summary value of any kind."""
    kinds: list[Field] = [
        (2, FIXED32, single(choices.pick(NUMBERS))),
        (8, LENGTH, tensor(choices)),
        (5, LENGTH, histogram(choices)),
        (
            4,
            LENGTH,
            message(choices, [(1, VARINT, varint(choices.pick([1, -1]))), (4, LENGTH, b"png")]),
        ),
        (6, LENGTH, _audio(choices)),
        (3, LENGTH, b"old"),
    ]
    fields: list[Field] = [
        (1, LENGTH, text(choices, TAGS)),
        kinds[choices.pick([0, 1, 1, 0, 1, 2, 3, 4, 5])],
    ]
    if choices.below(2):
        fields.append((9, LENGTH, summary_metadata(choices)))
    if choices.seldom():
        fields.append((7, LENGTH, text(choices, TAGS)))
    if choices.seldom(20):
        fields.append(choices.pick(kinds))
    return message(choices, fields)


def _audio(choices: Choices) -> bytes:
    content_type = text(choices, ["audio/wav", "audio/x-my", "ж" * 255, "z" * 256, "audio/\0"])
    return message(
        choices, [(1, FIXED32, single(8000)), (4, LENGTH, b"wav"), (5, LENGTH, content_type)]
    )


def summary_metadata(choices: Choices) -> bytes:
    """Metadata of any plugin, with any data class."""
    plugin = message(
        choices,
        [(1, LENGTH, text(choices, PLUGINS)), (2, LENGTH, choices.pick([b"", b"\x10\x0b"]))],
    )
    fields: list[Field] = [(1, LENGTH, plugin)]
    if choices.seldom(6):
        fields.append((2, LENGTH, text(choices, ["shown"])))
    if choices.seldom(6):
        fields.append((4, VARINT, varint(choices.pick([1, 2, 3, 0, 77, -1]))))
    return message(choices, fields)


def histogram(choices: Choices) -> bytes:
    """Return a legacy histogram with any number of limits and counts."""
    limits = b"".join(double(choices.pick(NUMBERS)) for _ in range(choices.below(5)))
    counts = b"".join(double(choices.pick([1.0, 0.0, NAN, -1.0])) for _ in range(choices.below(5)))
    return message(
        choices,
        [
            (1, FIXED64, double(0)),
            (2, FIXED64, double(9)),
            (6, LENGTH, limits),
            (7, LENGTH, counts),
        ],
    )


def tensor(choices: Choices) -> bytes:
    """Return a tensor whose type, shape and elements may disagree."""
    data_type, shape = choices.pick(DATA_TYPES), choices.pick(SHAPES)
    dims: list[Field] = [
        (2, LENGTH, message(choices, [(1, VARINT, varint(size))])) for size in shape
    ]
    if choices.seldom(20):
        dims.append((3, VARINT, b"\x01"))
    fields: list[Field] = [(1, VARINT, varint(data_type)), (2, LENGTH, message(choices, dims))]
    return message(choices, fields + _elements(choices, data_type, shape))


def _elements(choices: Choices, data_type: int, shape: list[int]) -> list[Field]:
    count = 1
    for size in shape:
        count *= size
    count = max(0, min(count, 40)) + choices.pick([0, 0, 0, -1, 1])
    item_bytes = ITEM_BYTES.get(data_type, 4)
    if data_type != 7 and not choices.below(2):
        return [
            (
                4,
                LENGTH,
                choices.pick([b"\x00", b"\x3f", b"\x7f", b"\xff", b"\x01"]) * (count * item_bytes),
            )
        ]
    number = (
        VALUE_FIELDS.get(data_type, 5)
        if not choices.seldom(20)
        else choices.pick([5, 6, 7, 8, 9, 10, 11, 13, 16])
    )
    count = choices.pick([count, 1, 0])
    if number == 8:
        return [(8, LENGTH, choices.pick([b"t", b"", b"text" * 10]))] * max(0, count)
    element, kind = _element(choices, number)
    return (
        [(number, LENGTH, element * count)]
        if choices.below(2) == 0
        else [(number, kind, element)] * max(0, count)
    )


def _element(choices: Choices, number: int) -> tuple[bytes, int]:
    if number in (5, 9):
        return single(choices.pick(NUMBERS)), FIXED32
    if number in (6, 12):
        return double(choices.pick(NUMBERS)), FIXED64
    return varint(choices.pick([1, 0, 2, 0x3FC0, 2**31, -1, 2**63])), VARINT


def _record(choices: Choices, payload: bytes) -> bytes:
    if not choices.seldom(60):
        return encode_record(payload)
    record = encode_record(payload)
    length = struct.pack(
        "<Q", choices.pick([len(payload) + 16, 0, 2**31, 2**40, 2**62, 2**63 - 1, 2**64 - 1])
    )
    options = [
        record[:-1] + bytes([record[-1] ^ 1]),
        length + struct.pack("<I", masked_checksum(length)) + record[12:],
        bytes([record[0] ^ 1]) + record[1:],
        b"",
    ]
    return choices.pick(options)
