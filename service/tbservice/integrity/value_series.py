"""Check tensors and blob sequences: bytes that fit their shape, sample order, counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from tbservice.grouping import group_by_weight
from tbservice.integrity.findings import Damage, SeriesCheck
from tbservice.integrity.tables import integrity_scan
from tbservice.integrity.tables.integrity_scan import SeriesCounters, StoredPoint
from tbservice.sample_order import compute_rank_and_key
from tbwire.points import DataClass
from tbwire.tensors import check_size, check_tensor

_TENSOR_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of tensors that are read at a time, unless a single one is larger."""

_TABLES: Final = {
    "tensor_points": DataClass.TENSOR,
    "superseded_tensors": DataClass.TENSOR,
    "blob_points": DataClass.BLOB_SEQUENCE,
    "superseded_blobs": DataClass.BLOB_SEQUENCE,
}


class ValueCheck(SeriesCheck):
    """Checks the tensors and blob sequences of one experiment, all of a table at a time."""

    def run(self, series: Sequence[SeriesCounters]) -> Iterator[Damage]:
        """Yield the damage of these series: all tensor and blob sequence series there are."""
        counted: Counter[int] = Counter()
        for table, data_class in _TABLES.items():
            for page in integrity_scan.iter_point_pages(self.db, self.place[1], table):
                if data_class == DataClass.TENSOR:
                    self.looked.tensors += len(page)
                    yield from self._look_at_tensors(table, page)
                else:
                    self.looked.blob_sequences += len(page)
                    self.throttle.spend(64 * len(page))
                yield from self._compare_keys(page)
                if not table.startswith("superseded"):
                    counted.update(point.series_id for point in page)
        for each in series:
            self.looked.series += 1
            if counted[each.series_id] != each.count:
                points = counted[each.series_id]
                detail = f"it has {points} points, and its row says {each.count}"
                yield self.damage("count", detail, each.series_id)
        self.looked.points += counted.total()

    def _compare_keys(self, page: Sequence[StoredPoint]) -> Iterator[Damage]:
        """Compare rank and sample key with those of the step."""
        steps = np.array([point.step for point in page], np.int64)
        ranks, keys = compute_rank_and_key(steps, self.ranks)
        pairs = zip(ranks.tolist(), keys.tolist(), strict=True)
        for point, key in zip(page, pairs, strict=True):
            if (point.rank, point.sample_key) != key:
                detail = f"step {point.step} has another step's place in the sample order"
                yield self.damage("sample_order", detail, point.series_id)
            if not np.isfinite(point.wall_time):
                detail = f"step {point.step} has a wall time that is not finite"
                yield self.damage("value", detail, point.series_id)

    def _look_at_tensors(self, table: str, page: Sequence[StoredPoint]) -> Iterator[Damage]:
        for chunk in group_by_weight(page, lambda point: point.size or 0, _TENSOR_BYTES_MAX):
            yield from self._read_tensors(table, chunk)

    def _read_tensors(self, table: str, chunk: Sequence[StoredPoint]) -> Iterator[Damage]:
        size = sum(point.size or 0 for point in chunk)
        self.looked.database_bytes += size
        self.throttle.spend(size)
        tensors = integrity_scan.read_tensors(self.db, self.place[1], table, chunk[0], chunk[-1])
        for point, data in zip(chunk, tensors, strict=True):
            try:
                if data is None:
                    check_size(point.dtype, point.shape, point.object_size or 0)
                else:
                    check_tensor(point.dtype, point.shape, data)
            except ValueError as error:
                detail = f"the tensor of step {point.step}: {error}"
                yield self.damage("unpack", detail, point.series_id)
