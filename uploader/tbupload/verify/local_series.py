"""The series of runs as an upload of their files stores them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tbupload.upload.plugins.tag_owners import series_kind
from tbupload.verify.spool import Extent, Spool
from tbupload.verify.step_order import RecordSource, merge_in_step_order
from tbwire import wire_pb2
from tbwire.digests import (
    Records,
    SeriesDigest,
    blob_sequence_digest,
    deduplicate_steps,
    scalar_records,
    tensor_digest,
    value_records,
)
from tbwire.hparams_union import MetadataUnion, UnionOverLimit
from tbwire.points import DATA_CLASSES, get_columns
from tbwire.tag_owners import HPARAMS, belongs_to_owner, misfit_reason

IN_MEMORY_BYTES: Final = 24 << 20
"""Bytes of records in memory, approximately; further ones go to a temporary file."""

_CHUNK_OVERHEAD_BYTES: Final = 200
"""Memory that an array needs besides its records, approximately."""


@dataclass
class LocalSeries:
    """A series of the files.

    Its records are in `extents` of the spool, followed by `chunks` in memory, in read order.
    `metadata` is the SHA-256 of the summary metadata, or what plugin `hparams` unites.
    """

    run: str
    tag: str
    plugin: str
    data_class: str
    metadata: bytes | MetadataUnion
    chunks: list[Records] = field(default_factory=list)
    extents: list[Extent] = field(default_factory=list)

    @property
    def metadata_sha256(self) -> str:
        """The SHA-256 of its summary metadata, in hexadecimal."""
        if isinstance(self.metadata, bytes):
            return self.metadata.hex()
        return _sha256(self.metadata.serialize()).hex()


class LocalRuns:
    """The series of some runs, by (run, tag), filled by segments in the order of an upload.

    `bytes` is their memory and spool size; `points` includes superseded points.
    `metadata_bytes_max` is the server's limit.
    """

    def __init__(
        self, spool: Spool, metadata_bytes_max: int, in_memory_bytes_max: int = IN_MEMORY_BYTES
    ) -> None:
        self.series: dict[tuple[str, str], LocalSeries] = {}
        self.bytes = 0
        self.points = 0
        self._in_memory_bytes = 0
        self._in_memory_bytes_max = in_memory_bytes_max
        self._metadata_bytes_max = metadata_bytes_max
        self._spool = spool

    def add(self, run: str, body: bytes) -> Counter[str]:
        """Add the points of a serialized WriteBatch in which every series has its metadata.

        Return the number of points that the server would skip, by reason: their series belongs to
        another plugin or data class, or their hyperparameters do not fit.
        """
        skipped: Counter[str] = Counter()
        for segment in wire_pb2.WriteBatch.FromString(body).segments:
            for series in segment.series:
                self._add_series(run, series, skipped)
        return skipped

    def digest(self, series: LocalSeries) -> SeriesDigest:
        """Return the digest of the series as it would be stored."""
        digest = SeriesDigest()
        for records in self.records(series):
            digest.add(records)
        return digest

    def records(self, series: LocalSeries) -> Iterator[Records]:
        """Yield its points in step order, deduplicated by step, in chunks."""
        series.chunks = [_join_records(series.chunks)] if series.chunks else []
        spooled = [_spooled_source(self._spool, extent) for extent in series.extents]
        return merge_in_step_order([*spooled, *map(_in_memory_source, series.chunks)])

    def clear(self) -> None:
        """Remove all series."""
        self.series.clear()
        self._spool.clear()
        self.bytes = self.points = self._in_memory_bytes = 0

    def _add_series(self, run: str, sent: wire_pb2.Series, skipped: Counter[str]) -> None:
        kind = sent.WhichOneof("points")
        assert kind is not None, "a series has points"  # noqa: S101 - for the type checker
        plugin, data_class = series_kind(sent.summary_metadata).plugin, DATA_CLASSES[kind].label
        records = _RECORDS[kind](getattr(sent, kind))
        wall_time = float(records["wall_time"].max(initial=-np.inf))

        series = self.series.get((run, sent.tag))
        if series is None:
            metadata = self._first_metadata(sent.summary_metadata, plugin, wall_time)
            series = LocalSeries(run, sent.tag, plugin, data_class, metadata)
            self.series[run, sent.tag] = series
        elif not belongs_to_owner((plugin, data_class), (series.plugin, series.data_class)):
            skipped[misfit_reason(sent.tag, series.plugin)] += len(records)
            return
        elif isinstance(series.metadata, MetadataUnion) and plugin == HPARAMS:
            try:
                series.metadata.add(sent.summary_metadata, wall_time, self._metadata_bytes_max)
            except UnionOverLimit as error:
                skipped[str(error)] += len(records)
                return

        self.points += len(records)
        self._add_records(series, records)

    def _first_metadata(self, sent: bytes, plugin: str, wall_time: float) -> bytes | MetadataUnion:
        if plugin != HPARAMS:
            return _sha256(sent)
        self.bytes += len(sent)
        return MetadataUnion(sent, wall_time)

    def _add_records(self, series: LocalSeries, records: Records) -> None:
        series.chunks.append(records)
        self.bytes += records.nbytes + _CHUNK_OVERHEAD_BYTES
        self._in_memory_bytes += records.nbytes + _CHUNK_OVERHEAD_BYTES
        if self._in_memory_bytes > self._in_memory_bytes_max:
            for filled in self.series.values():
                if filled.chunks:
                    filled.extents.append(self._spool.append(_join_records(filled.chunks)))
                    filled.chunks = []
            self._in_memory_bytes = 0


def _join_records(chunks: list[Records]) -> Records:
    return deduplicate_steps(chunks[0] if len(chunks) == 1 else np.concatenate(chunks))


def _spooled_source(spool: Spool, extent: Extent) -> RecordSource:
    return RecordSource(extent.count, lambda first, count: spool.read(extent, first, count))


def _in_memory_source(records: Records) -> RecordSource:
    return RecordSource(len(records), lambda first, count: records[first : first + count])


def _scalar_records(sent: wire_pb2.ScalarPoints) -> Records:
    values = (
        np.frombuffer(sent.values64, "<f8")
        if sent.values64
        else np.frombuffer(sent.values32, "<f4")
    )
    return scalar_records(*get_columns(sent), values)


def _tensor_records(sent: wire_pb2.TensorPoints) -> Records:
    return value_records(*get_columns(sent), [_tensor_digest(tensor) for tensor in sent.tensors])


def _blob_sequence_records(sent: wire_pb2.BlobSequencePoints) -> Records:
    digests = [_sequence_digest(sequence) for sequence in sent.sequences]
    return value_records(*get_columns(sent), digests)


def _tensor_digest(tensor: wire_pb2.Tensor) -> bytes:
    histogram = (
        _sha256(tensor.histogram.SerializeToString()) if tensor.HasField("histogram") else None
    )
    data = tensor.reference.sha256 if tensor.HasField("reference") else _sha256(tensor.data)
    return tensor_digest(tensor.dtype, tensor.shape, data, histogram)


def _sequence_digest(sequence: wire_pb2.BlobSequence) -> bytes:
    sha256s = (
        _sha256(blob.content) if blob.WhichOneof("source") == "content" else blob.reference.sha256
        for blob in sequence.blobs
    )
    return blob_sequence_digest(sha256s, sequence.logged_content_type)


def _sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


_RECORDS: Final[Mapping[str, Callable[[Any], Records]]] = {
    "scalars": _scalar_records,
    "tensors": _tensor_records,
    "blob_sequences": _blob_sequence_records,
}
"""Records by the field of `Series` that has the points (`tbwire.points.DATA_CLASSES`)."""
