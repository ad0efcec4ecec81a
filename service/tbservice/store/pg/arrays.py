"""Columns as PostgreSQL sends and takes them in binary, made whole by numpy: the driver goes one element at a time."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

from tbservice.types import Int64s

Column = Sequence[Any] | np.ndarray[tuple[int], np.dtype[Any]]

_HEADER: Final = struct.Struct("!IIIii")
"""Dimensions, whether there are NULLs, the elements' type; then the length and lower bound of the one dimension."""

_EMPTY_HEADER: Final = struct.Struct("!III")
_LENGTH: Final = struct.Struct("!i")
_NULL: Final = _LENGTH.pack(-1)

_NUMBER_TYPES: Final = {
    "boolean": (16, ">u1"),
    "smallint": (21, ">i2"),
    "integer": (23, ">i4"),
    "bigint": (20, ">i8"),
    "float8": (701, ">f8"),
}
"""By type its elements' OID, and how numpy writes one: they are built into PostgreSQL, as are those below."""

_BYTES_OIDS: Final = {"bytea": 17, "text": 25}
_ARRAY_OIDS: Final = {
    "boolean": 1000, "smallint": 1005, "integer": 1007, "bigint": 1016, "float8": 1022, "bytea": 1001, "text": 1009
}  # fmt: skip


class Array:
    """An array of one dimension, encoded; a parameter of a statement like any other. Each type has a class below."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


_ARRAY_CLASSES: Final = {
    kind: type(f"Array of {kind}", (Array,), {"__slots__": ()}) for kind in _ARRAY_OIDS
}


def encode_array(kind: str, column: Column) -> Array:
    """The column as an array of PostgreSQL's type `kind`; None becomes NULL. Texts come as str, bytea as bytes."""
    encoded: Array = _ARRAY_CLASSES[kind](
        _encode_bytes(kind, column) if kind in _BYTES_OIDS else _encode_numbers(kind, column)
    )
    return encoded


def unnest_rows(types: Mapping[str, str]) -> str:
    """SQL that stands in a FROM for a row an element of the parameters %(name)s: arrays, by name their types.

    `unnest` in FROM would gather all rows before it gives the first, which takes a fifth of a small statement's time.
    PostgreSQL is not shown the first array: by its length it would plan the statement anew each time, for one row.
    """
    first, *others = (f"%({name})s::{kind}[]" for name, kind in types.items())
    columns = zip([f"(SELECT {first})", *others], types, strict=True)
    return f"(SELECT {', '.join(f'unnest({column}) AS {name}' for column, name in columns)})"


def decode_int8s(sent: bytes) -> Int64s:
    """Integers as PostgreSQL's `int8send` makes them, one after the other."""
    return np.frombuffer(sent, ">i8").astype(np.int64)


def _encode_numbers(kind: str, column: Column) -> bytes:
    element_oid, dtype = _NUMBER_TYPES[kind]
    if isinstance(column, list) and None in column:
        length = _LENGTH.pack(np.dtype(dtype).itemsize)
        parts = [
            _NULL if value is None else length + np.array(value, dtype).tobytes()
            for value in column
        ]
        return _encode_header(element_oid, len(parts), has_null=True) + b"".join(parts)
    values = np.asarray(column)
    elements = np.empty(len(values), [("length", ">i4"), ("value", dtype)])
    elements["length"] = elements.dtype["value"].itemsize
    elements["value"] = values
    return _encode_header(element_oid, len(values)) + elements.tobytes()


def _encode_bytes(kind: str, column: Iterable[Any]) -> bytes:
    values = [value.encode() for value in column] if kind == "text" else list(column)
    has_null = None in values
    parts = [_encode_header(_BYTES_OIDS[kind], len(values), has_null=has_null)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts += (_LENGTH.pack(len(value)), value)
    return b"".join(parts)


def _encode_header(element_oid: int, count: int, *, has_null: bool = False) -> bytes:
    if not count:
        return _EMPTY_HEADER.pack(0, 0, element_oid)
    return _HEADER.pack(1, has_null, element_oid, count, 1)


class _ArrayDumper(Dumper):
    """Sends an Array as it is; there is one for each class, which knows its type's OID."""

    format = Format.BINARY

    def dump(self, obj: Array) -> Buffer:
        """The bytes that are sent."""
        return obj.data


def register_dumpers(adapters: AdaptersMap) -> None:
    """Makes a connection take Arrays."""
    for kind, oid in _ARRAY_OIDS.items():
        adapters.register_dumper(
            _ARRAY_CLASSES[kind], type(_ArrayDumper.__name__, (_ArrayDumper,), {"oid": oid})
        )
