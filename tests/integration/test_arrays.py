"""PostgreSQL receives arrays bit by bit, whatever they contain."""

from __future__ import annotations

import numpy as np
from sqlalchemy import text

from tbservice.db.arrays import encode_array

COLUMNS = [
    ("bigint", [0, -1, 2**63 - 1, -(2**63)]),
    ("bigint", (7,)),
    ("bigint", [None, 2**40, None]),
    ("integer", [2**31 - 1, -(2**31)]),
    ("smallint", [2**15 - 1, -(2**15), 0]),
    ("boolean", [True, False, True]),
    ("float8", [0.1, -0.0, float("inf"), 5e-324]),
    ("float8", [None, 1.5, None]),
    ("bytea", [b"", b"\0\xff", b"x" * 100_000, None]),
    ("text", ["", 'a,b{}\\"', "\U0001f600", "NULL"]),
]


def test_column_arrives_as_it_is(database):
    for kind, column in [*COLUMNS, *((kind, []) for kind in dict(COLUMNS))]:
        with database.transaction() as db:
            statement = text(f"SELECT CAST(:column AS {kind}[])")
            assert [
                _plain(each)
                for each in db.execute(
                    statement, {"column": encode_array(kind, column)}
                ).scalar_one()
            ] == [*column], kind


def _plain(value):
    return bytes(value) if isinstance(value, memoryview) else value


def test_columns_of_numpy_keep_their_bits(database):
    bits = np.array([0x7FF8000000000001, 0xFFF0000000000000, 1], np.uint64).view(np.float64)
    with database.transaction() as db:
        sent = text("SELECT float8send(each) FROM unnest(CAST(:column AS float8[])) AS each")
        got = db.execute(sent, {"column": encode_array("float8", bits)}).scalars()
        assert b"".join(map(bytes, got)) == bits.astype(">f8").tobytes()
