"""How the values of each data class look in each response format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tbservice.api.formats.values import blob_sequences, scalars, tensors
from tbservice.types.series import Blob
from tbwire import read_pb2
from tbwire.points import DataClass


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """The values of one data class; samples are of its type.

    Attributes:
        csv_columns: Names of the columns of the value in CSV.
        arrow_columns: Names and types of the columns of the value in Arrow and Parquet.
        to_json: Returns the values of a sample, for orjson.
        to_csv: Returns the fields of `csv_columns` of each point of a sample, joined.
        to_arrow: Returns the columns of `arrow_columns` of several samples.
        fill_part: Sets the points of a `Part`; takes the blobs of the sample by SHA-256, too.
    """

    csv_columns: Sequence[str]
    arrow_columns: Sequence[tuple[str, pa.DataType]]
    to_json: Callable[[Any], Any]
    to_csv: Callable[[Any], pa.Array]
    to_arrow: Callable[[Sequence[Any]], list[pa.Array]]
    fill_part: Callable[[read_pb2.Part, Any, Mapping[bytes, Blob]], None]


VALUE_FORMATS: Final[Mapping[DataClass, ValueFormat]] = {
    DataClass.SCALAR: ValueFormat(
        csv_columns=scalars.CSV_COLUMNS,
        arrow_columns=scalars.ARROW_COLUMNS,
        to_json=scalars.to_json,
        to_csv=scalars.to_csv,
        to_arrow=scalars.to_arrow,
        fill_part=scalars.fill_part,
    ),
    DataClass.TENSOR: ValueFormat(
        csv_columns=tensors.CSV_COLUMNS,
        arrow_columns=tensors.ARROW_COLUMNS,
        to_json=tensors.to_json,
        to_csv=tensors.to_csv,
        to_arrow=tensors.to_arrow,
        fill_part=tensors.fill_part,
    ),
    DataClass.BLOB_SEQUENCE: ValueFormat(
        csv_columns=blob_sequences.CSV_COLUMNS,
        arrow_columns=blob_sequences.ARROW_COLUMNS,
        to_json=blob_sequences.to_json,
        to_csv=blob_sequences.to_csv,
        to_arrow=blob_sequences.to_arrow,
        fill_part=blob_sequences.fill_part,
    ),
}
