"""Resolve the names of scalars that were decoded in bulk to series: once per name, not per scalar.

A name is a tag with the metadata that a value carries. Which series it is depends on the first
value of the tag in its file, so names are resolved in file order; the caller has the queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from tbupload.events.decode.factorize import first_rows, renumber
from tbupload.events.decode.file_parts import FileParts
from tbupload.events.decode.record_walk import Indices
from tbupload.events.decode.summaries import tag_and_metadata
from tbupload.events.decode.templates import ScalarColumn, TagAndMetadata
from tbupload.events.tag_registry import KnownSeries, TagRegistry
from tbwire import tensorboard_pb2 as pb
from tbwire.tag_owners import HPARAMS

EXCLUDED: Final = -1
"""In place of a series' key: its points are not sent."""

Key = int
"""Number of a series of any part, in the order in which they were resolved."""


class NeedsProtobuf(Exception):
    """The points of a name depend on more than the name. Not an error: protobuf decodes them."""


@dataclass(frozen=True)
class NamedColumn:
    """A column of scalars, and the pairs of name and part that are resolved to series.

    Attributes:
        column: The scalars.
        labels: The pair of each scalar, as an index into the following three.
        names: Index into `column.names` of each pair.
        parts: Index of the part of each pair.
        keys: The key of each pair's series; EXCLUDED until it is resolved, or when it is excluded.
    """

    column: ScalarColumn
    labels: Indices
    names: list[int]
    parts: list[int]
    keys: Indices

    def records_of(self, pair: int) -> Indices:
        """Return the records of the scalars with this pair."""
        return np.asarray(self.column.records[self.labels == pair])


@dataclass
class _SeriesCandidate:
    """A name in the form the registry needs, and its series in the first part that has it."""

    tag: str
    metadata: pb.SummaryMetadata | None
    example: KnownSeries | None = None


class SeriesNames:
    """The columns of one decode, and the series of all its parts.

    `keys` has the key of each series so far, by part and the index of its series.
    """

    def __init__(self, parts: FileParts) -> None:
        self.columns: list[NamedColumn] = []
        self.keys: dict[tuple[int, int], Key] = {}
        self._parts = parts
        self._candidates: dict[tuple[int, int], _SeriesCandidate] = {}  # by column and name

    def add(self, column: ScalarColumn) -> Iterator[tuple[int, int, int, int]]:
        """Add a column; return a work item for each name where it first occurs in a part.

        A work item is (record, slot, column index, pair). Items sort in file order.
        """
        pairs = column.labels
        if len(self._parts) > 1:
            pairs = self._parts.indices_of(column.records) * len(column.names) + column.labels
        labels, count = renumber(pairs, len(self._parts) * len(column.names))
        firsts = first_rows(labels, count)
        parts, names = np.divmod(pairs.take(firsts), len(column.names))

        index, keys = len(self.columns), np.full(count, EXCLUDED, np.intp)
        self.columns.append(NamedColumn(column, labels, names.tolist(), parts.tolist(), keys))
        records = column.records[firsts].tolist()
        return ((record, column.slot, index, pair) for pair, record in enumerate(records))

    def resolve(self, index: int, pair: int) -> None:
        """Resolve a pair of the column with this index.

        Raises NeedsProtobuf when each value has to be read, ValueRefused when none can be sent,
        and RestartDecode.
        """
        named = self.columns[index]
        part = named.parts[pair]
        series = self._resolve_series(index, named.names[pair], self._parts[part].registry)
        named.keys[pair] = EXCLUDED if series is None else self.key(part, series)

    def key(self, part: int, series: KnownSeries) -> Key:
        """Return the key of a series of the part with this index."""
        return self.keys.setdefault((part, series.index), len(self.keys))

    def _resolve_series(self, index: int, name: int, registry: TagRegistry) -> KnownSeries | None:
        """Return the scalar series that all values with this name belong to; None if excluded."""
        candidate = self._candidate(index, name)
        # The first value of a tag in a file decides what its later ones are, also those without
        # metadata.
        is_new = registry.find(candidate.tag) is None
        if is_new and candidate.example is not None:
            return registry.add_like(candidate.example)
        series = registry.resolve(candidate.tag, candidate.metadata)
        if series is not None and (
            series.data_class != pb.DATA_CLASS_SCALAR or series.plugin == HPARAMS
        ):
            raise NeedsProtobuf
        if is_new:
            candidate.example = series
        return series

    def _candidate(self, index: int, name: int) -> _SeriesCandidate:
        candidate = self._candidates.get((index, name))
        if candidate is None:
            column = self.columns[index].column
            value = _value_without_number(column.names[name], is_legacy=column.is_legacy)
            candidate = _SeriesCandidate(*tag_and_metadata(value))
            self._candidates[index, name] = candidate
        return candidate


def _value_without_number(name: TagAndMetadata, *, is_legacy: bool) -> pb.Summary.Value:
    """Return a value with this name, of the kind that its number has, but without the number."""
    if is_legacy:
        return pb.Summary.Value(tag=name.tag, metadata=name.metadata, simple_value=0)
    return pb.Summary.Value(tag=name.tag, metadata=name.metadata, tensor=pb.TensorProto())
