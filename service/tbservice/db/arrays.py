"""PostgreSQL's binary array format, encoded by numpy: psycopg encodes one element at a time.

Format: `array_send` in src/backend/utils/adt/arrayfuncs.c of PostgreSQL. A header of big-endian
uint32: number of dimensions, whether there are NULLs, element type OID; per dimension its length
and lower bound; then per element an int32 length (-1 for NULL) and the bytes of the type's `send`
function.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

from tbservice.types.identifiers import Float64s, Int64s

Column = Sequence[Any] | np.ndarray[tuple[int], np.dtype[Any]]

_HEADER: Final = struct.Struct("!IIIii")
"""Number of dimensions, has NULLs, element type; length and lower bound of the one dimension."""

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
"""Element OID and numpy type of each SQL type.

The OIDs are fixed in PostgreSQL (src/include/catalog/pg_type.dat), as are those below.
"""

_RECORDS: Final = {
    kind: np.dtype([("length", ">i4"), ("value", dtype)])
    for kind, (_, dtype) in _NUMBER_TYPES.items()
}
"""An element of each of these types with its length. To make a type takes longer than to use it."""

_BYTES_OIDS: Final = {"bytea": 17, "text": 25}
_ARRAY_OIDS: Final = {
    "boolean": 1000,
    "smallint": 1005,
    "integer": 1007,
    "bigint": 1016,
    "float8": 1022,
    "bytea": 1001,
    "text": 1009,
}


class Array:
    """An encoded array of one dimension, used as a statement parameter; a subclass per type."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


_ARRAY_CLASSES: Final = {
    kind: type(f"Array of {kind}", (Array,), {"__slots__": ()}) for kind in _ARRAY_OIDS
}


def encode_array(kind: str, column: Column) -> Array:
    """Encode a column as an array of the SQL type `kind`: text from str, bytea from bytes.

    None becomes NULL.
    """
    encoded: Array = _ARRAY_CLASSES[kind](
        _encode_bytes(kind, column) if kind in _BYTES_OIDS else _encode_numbers(kind, column)
    )
    return encoded


def unnest_rows(types: Mapping[str, str]) -> str:
    """Return a sub-select that has one row per element of the array parameters %(name)s.

    `unnest` is in the select list, because in FROM it materializes all rows before it returns the
    first, a fifth of a small statement's time. The first array is hidden in a sub-select of its
    own: from its length PostgreSQL would estimate the rows and plan each execution again (custom
    plans, see decision 7 in docs/decisions).

    Args:
        types: Element type by column name, which is also the parameter's name.
    """
    first, *others = (f"%({name})s::{kind}[]" for name, kind in types.items())
    columns = zip([f"(SELECT {first})", *others], types, strict=True)
    return f"(SELECT {', '.join(f'unnest({column}) AS {name}' for column, name in columns)})"


def decode_int8s(data: bytes | None) -> Int64s:
    """Decode concatenated results of PostgreSQL's `int8send`; None, of no row, as empty."""
    return np.frombuffer(data or b"", ">i8").astype(np.int64)


def decode_float8s(data: bytes | None) -> Float64s:
    """Decode concatenated results of PostgreSQL's `float8send`; None, of no row, as empty."""
    return np.frombuffer(data or b"", ">f8").astype(np.float64)


def _encode_numbers(kind: str, column: Column) -> bytes:
    element_oid, dtype = _NUMBER_TYPES[kind]
    if isinstance(column, (list, tuple)) and None in column:
        length = _LENGTH.pack(np.dtype(dtype).itemsize)
        elements = [
            _NULL if value is None else length + np.array(value, dtype).tobytes()
            for value in column
        ]
        return _encode_header(element_oid, len(elements), has_null=True) + b"".join(elements)

    values = np.asarray(column)
    records = np.empty(len(values), _RECORDS[kind])
    records["length"] = np.dtype(dtype).itemsize
    records["value"] = values
    return _encode_header(element_oid, len(values)) + records.tobytes()


def _encode_bytes(kind: str, column: Iterable[Any]) -> bytes:
    values = [value.encode() for value in column] if kind == "text" else list(column)
    has_null = None in values
    fields = [_encode_header(_BYTES_OIDS[kind], len(values), has_null=has_null)]
    for value in values:
        if value is None:
            fields.append(_NULL)
        else:
            fields += (_LENGTH.pack(len(value)), value)
    return b"".join(fields)


def _encode_header(element_oid: int, count: int, *, has_null: bool = False) -> bytes:
    if not count:  # an empty array has no dimensions
        return _EMPTY_HEADER.pack(0, 0, element_oid)
    return _HEADER.pack(1, has_null, element_oid, count, 1)


class _ArrayDumper(Dumper):
    """Dumper that sends an Array unchanged; a subclass per SQL type has the array type's OID."""

    format = Format.BINARY

    def dump(self, obj: Array) -> Buffer:
        """Return the encoded array."""
        return obj.data


def register_dumpers(adapters: AdaptersMap) -> None:
    """Let statements of a connection accept `Array` parameters."""
    for kind, oid in _ARRAY_OIDS.items():
        adapters.register_dumper(
            _ARRAY_CLASSES[kind], type(_ArrayDumper.__name__, (_ArrayDumper,), {"oid": oid})
        )
