"""How the values of each data class look in each response format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from tbservice.api.formats.values import blob_sequences, scalars, tensors
from tbservice.types.series import Blob
from tbwire import read_pb2
from tbwire.points import DataClass


class ValueFormat(Protocol):
    """The module of a data class; samples are of its type."""

    @property
    def CSV_COLUMNS(self) -> Sequence[str]:  # noqa: N802 - a constant of the module
        """Names of the columns of the value in CSV."""

    @property
    def ARROW_COLUMNS(self) -> Sequence[tuple[str, pa.DataType]]:  # noqa: N802 - the same
        """Names and types of the columns of the value in Arrow and Parquet."""

    def to_json(self, sample: Any, /) -> Any:
        """Return the values of a sample, for orjson."""

    def to_csv(self, sample: Any, /) -> pa.Array:
        """Return the fields of CSV_COLUMNS of each point of a sample, joined."""

    def to_arrow(self, samples: Sequence[Any], /) -> list[pa.Array]:
        """Return the columns of ARROW_COLUMNS of several samples."""

    def fill_part(self, part: read_pb2.Part, sample: Any, blobs: Mapping[bytes, Blob], /) -> None:
        """Set the points of a `Part`; `blobs` are those of the sample by SHA-256."""


VALUE_FORMATS: Final[Mapping[DataClass, ValueFormat]] = {
    DataClass.SCALAR: scalars,
    DataClass.TENSOR: tensors,
    DataClass.BLOB_SEQUENCE: blob_sequences,
}
