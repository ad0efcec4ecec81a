"""Tensors of up to 25 MB, and events with them; what makes them takes half a second."""

from __future__ import annotations

import numpy as np

from support.event_files import plugin_event, string_tensor_proto, tensor_proto, text_event

RANDOM = np.random.default_rng(7)
MIB = 1 << 20

LONG_TEXT = ("".join(chr(97 + code) for code in RANDOM.integers(0, 26, 5_000)) * 3_000)[
    : int(10.1 * MIB)
]

LARGE_MESH = RANDOM.random((1, 1_000_000, 3), np.float32)
"""12 MB of vertices, two pieces of a blob; torch writes them as `float_val`."""

IN_ROW = RANDOM.integers(0, 1 << 32, int(9.9 * MIB) // 4, np.uint32)
"""9.9 MiB of integers: as JSON, a quarter of the numbers that bytes would be."""

STRINGS = [
    bytes(RANDOM.integers(0, 256, size, np.uint8)) for size in (0, 5, 4 * MIB, 100, int(6.1 * MIB))
]
"""A string tensor of 10.1 MiB."""


def numeric(tag, array, packing="content"):
    return plugin_event("other", tag, 1, tensor_proto(array, packing))


EVENTS = {
    "long text": text_event("long text", 1, LONG_TEXT),
    "large mesh": numeric("large mesh", LARGE_MESH, "values"),
    "in row": numeric("in row", IN_ROW),
    "strings": plugin_event("other", "strings", 1, string_tensor_proto(STRINGS)),
}
