"""Readers of tables that people use: DuckDB, pandas, polars, fastparquet, each as plain rows.

A row is a dictionary; a missing value is None, bytes are bytes, a list is a list. pandas and
fastparquet have NaN for a missing number, so all NaN are missing to `comparable`.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from support.lazy import LazyModule

duckdb = LazyModule("duckdb")
fastparquet = LazyModule("fastparquet")
pd = LazyModule("pandas")
pl = LazyModule("polars")

Rows = list[dict[str, Any]]


def of_pandas(frame: pd.DataFrame) -> Rows:
    """Return the rows of a frame of pandas."""
    plain = frame.astype(object).where(frame.notna(), None)
    return plain.to_dict("records")


def of_fastparquet(path: Path) -> Rows:
    """Return the rows that fastparquet reads; the fields of a struct are columns of their own."""
    return of_pandas(fastparquet.ParquetFile(io.BytesIO(path.read_bytes())).to_pandas())


def by_duckdb(source: str, path: Path) -> Rows:
    """Return the rows that DuckDB reads with this table function, whose first argument is a path."""
    with duckdb.connect() as connection:
        relation = connection.sql(f"SELECT * FROM {source}", params=[str(path)])  # noqa: S608 - ours
        return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


PARQUET: dict[str, Callable[[Path], Rows]] = {
    "pyarrow": lambda path: pq.read_table(path).to_pylist(),
    "duckdb": lambda path: by_duckdb("read_parquet(?)", path),
    "pandas": lambda path: of_pandas(pd.read_parquet(path)),
    "polars": lambda path: pl.read_parquet(path).to_dicts(),
    "fastparquet": of_fastparquet,
}
"""How each library reads a Parquet file."""

_DUCKDB_CSV = (
    """read_csv(?, header = true, delim = ',', quote = '"', escape = '"', all_varchar = true)"""
)

CSV: dict[str, Callable[[Path], Rows]] = {
    "pandas": lambda path: pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records"),
    "polars": lambda path: [
        {name: text or "" for name, text in row.items()}
        for row in pl.read_csv(path, infer_schema=False).to_dicts()
    ],
    "duckdb": lambda path: [
        {name: text or "" for name, text in row.items()} for row in by_duckdb(_DUCKDB_CSV, path)
    ],
}
"""How each library reads the texts of a CSV file; a missing one is empty."""


def comparable(value: Any) -> Any:
    """Return a value as what is equal for equal values only: -0.0 differs from 0.0."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [comparable(each) for each in value]
    if isinstance(value, dict):
        return {name: comparable(each) for name, each in value.items()}
    if isinstance(value, float):
        return None if math.isnan(value) else repr(value)
    return value


def comparable_rows(rows: Iterable[dict[str, Any]]) -> Rows:
    """Return the rows with comparable values."""
    return [{name: comparable(value) for name, value in row.items()} for row in rows]


def flat(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as fastparquet has it: a struct as columns `name.field`."""
    flattened = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flattened |= {f"{name}.{field}": each for field, each in value.items()}
        else:
            flattened[name] = value
    return flattened


def csv_text(value: Any) -> str:
    """Return what our CSV has for a value, without its quotes."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, float):
        names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
        return names.get(repr(value)) or pa.array([value]).cast(pa.string())[0].as_py()
    return str(value)


def csv_texts(rows: Iterable[dict[str, Any]]) -> Rows:
    """Return rows as the texts that our CSV has."""
    return [{name: csv_text(value) for name, value in row.items()} for row in rows]
