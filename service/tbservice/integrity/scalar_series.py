"""Check scalar series: every block unpacks, is in order, and its points are as many as counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np

from tbservice.integrity.findings import Damage, SeriesCheck
from tbservice.integrity.tables import integrity_scan
from tbservice.integrity.tables.integrity_scan import SeriesCounters, StoredBlock
from tbservice.sample_order import LEVEL_MAX, get_level_rank_max, splitmix64
from tbservice.series.tables.scalar_format import unpack, unpack_raw
from tbservice.types.identifiers import UInt64s
from tbwire.digests import SCALAR_RECORD
from tbwire.points import ScalarPoints

_LEVELS: Final = range(1, LEVEL_MAX + 1)


@dataclass(slots=True)
class _Tally:
    """Counts of one series.

    `expected` are points of level 0 that level n must copy, `copied` those that it has: how many,
    and the sum of their hashes, which does not depend on their order.
    """

    is_unreadable: bool = False
    """Whether a row was: then nothing is compared, so that one fault is reported once."""
    points: int = 0
    sealed: int = 0
    tail_rows: int = 0
    first_step: int | None = None
    last_step: int | None = None
    sealed_ranges: list[tuple[int, int]] = field(default_factory=list)
    expected: dict[int, tuple[int, int]] = field(default_factory=dict)
    copied: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, points: ScalarPoints) -> None:
        first, last = int(points.steps[0]), int(points.steps[-1])
        self.points += len(points)
        self.first_step = first if self.first_step is None else min(self.first_step, first)
        self.last_step = last if self.last_step is None else max(self.last_step, last)


class ScalarCheck(SeriesCheck):
    """Checks the scalar series of one experiment, a page of series after the other."""

    def run(self, series: Sequence[SeriesCounters]) -> Iterator[Damage]:
        """Yield the damage of these scalar series, which are in the order of their ids."""
        if not series:
            return
        tallies = {each.series_id: _Tally() for each in series}
        first, last = series[0].series_id, series[-1].series_id
        for table in ("scalar_blocks", "scalar_tail", "superseded_blocks"):
            blocks = integrity_scan.iter_blocks(self.db, self.place[1], table, first, last)
            for block in blocks:
                if block.series_id in tallies:
                    yield from self._look_at(table, block, tallies[block.series_id])
        for each in series:
            tally = tallies[each.series_id]
            yield from self._add_inline_buffer(each, tally)
            if not tally.is_unreadable:
                yield from self._compare(each, tally)
            self.looked.points += tally.points

    def _look_at(self, table: str, block: StoredBlock, tally: _Tally) -> Iterator[Damage]:
        self.looked.blocks += 1
        self.looked.database_bytes += len(block.data)
        self.throttle.spend(len(block.data))
        where = f"block {block.block_id} of level {block.level} in {table}"
        if table == "scalar_tail":
            tally.tail_rows += 1
            where = f"row {block.block_id} of scalar_tail"
        points = self._unpack(block.data, is_packed=block.is_packed)
        if isinstance(points, str):
            tally.is_unreadable = True
            yield self.damage("unpack", f"{where}: {points}", block.series_id)
            return
        yield from self._compare_block(block, points, where)
        if table == "superseded_blocks":
            return
        if block.level <= 0:
            tally.add(points)
        if table == "scalar_blocks":
            self._add_to_levels(block.level, points, tally)

    @staticmethod
    def _unpack(data: bytes, *, is_packed: bool) -> ScalarPoints | str:
        """Return the points of a row; or what is wrong with it."""
        if not is_packed and (len(data) % SCALAR_RECORD.itemsize or not data):
            return "its length is no number of records"
        try:
            return unpack(data) if is_packed else unpack_raw(data)
        except ValueError as error:
            return str(error)

    def _compare_block(
        self, block: StoredBlock, points: ScalarPoints, where: str
    ) -> Iterator[Damage]:
        if len(points) != block.count:
            detail = f"{where} has {len(points)} points, and its row says {block.count}"
            yield self.damage("count", detail, block.series_id)
        ends = int(points.steps[0]), int(points.steps[-1])
        if block.first_step is not None and ends != (block.first_step, block.last_step):
            said = block.first_step, block.last_step
            detail = f"{where} has the steps {ends[0]} to {ends[1]}, and its row says {said}"
            yield self.damage("order", detail, block.series_id)
        elif not (points.steps[1:] > points.steps[:-1]).all():
            yield self.damage("order", f"{where} is not in the order of steps", block.series_id)
        if not np.isfinite(points.wall_times).all():
            detail = f"{where} has a wall time that is not finite"
            yield self.damage("value", detail, block.series_id)

    def _add_to_levels(self, level: int, points: ScalarPoints, tally: _Tally) -> None:
        if level > 0:
            count, total = tally.copied.get(level, (0, 0))
            hashes = _hash_points(points)
            tally.copied[level] = count + len(points), (total + _sum(hashes)) % 2**64
        elif level == 0:
            tally.sealed += len(points)
            tally.sealed_ranges.append((int(points.steps[0]), int(points.steps[-1])))
            ranks = self.ranks[splitmix64(points.steps) >> np.uint64(48)]
            is_copied = ranks <= get_level_rank_max(1)
            copied, ranks = points.select(is_copied), ranks[is_copied]
            hashes = _hash_points(copied)
            for n in _LEVELS:
                is_included = ranks <= get_level_rank_max(n)
                count, total = tally.expected.get(n, (0, 0))
                tally.expected[n] = (
                    count + int(is_included.sum()),
                    (total + _sum(hashes[is_included])) % 2**64,
                )

    def _add_inline_buffer(self, series: SeriesCounters, tally: _Tally) -> Iterator[Damage]:
        self.looked.series += 1
        if not series.tail_end:
            return
        points = self._unpack(series.tail_end, is_packed=False)
        if isinstance(points, str):
            tally.is_unreadable = True
            yield self.damage("unpack", f"the inline buffer: {points}", series.series_id)
        else:
            tally.add(points)

    def _compare(self, series: SeriesCounters, tally: _Tally) -> Iterator[Damage]:
        """Compare the counters of a series with what was counted."""
        id_ = series.series_id
        is_wrong = tally.points > series.count or (
            series.count_is_exact and tally.points != series.count
        )
        if is_wrong:
            detail = f"it has {tally.points} points, and its row says {series.count}"
            yield self.damage("count", detail, id_)
        if tally.sealed != series.sealed_count:
            detail = f"{tally.sealed} points are sealed, and its row says {series.sealed_count}"
            yield self.damage("count", detail, id_)
        if tally.tail_rows != series.tail_rows:
            detail = f"{tally.tail_rows} rows are buffered, and its row says {series.tail_rows}"
            yield self.damage("count", detail, id_)
        ends = tally.first_step, tally.last_step
        if not is_wrong and ends != (series.first_step, series.last_step):
            said = series.first_step, series.last_step
            detail = f"it has the steps {ends[0]} to {ends[1]}, and its row says {said}"
            yield self.damage("order", detail, id_)
        ranges = sorted(tally.sealed_ranges)
        overlapping = [b for a, b in pairwise(ranges) if b[0] <= a[1]]
        if overlapping:
            detail = f"{len(overlapping)} sealed blocks overlap the one before"
            yield self.damage("order", detail, id_)
        yield from self._compare_levels(id_, tally)

    def _compare_levels(self, series_id: int, tally: _Tally) -> Iterator[Damage]:
        """Compare the thinned copies with the sealed points.

        A level may have more: earlier values of a step, which reads leave out.
        """
        for level in _LEVELS:
            expected, copied = tally.expected.get(level, (0, 0)), tally.copied.get(level, (0, 0))
            if copied[0] < expected[0]:
                detail = f"level {level} has {copied[0]} points, and needs {expected[0]}"
                yield self.damage("level", detail, series_id)
            elif copied[0] == expected[0] and copied[1] != expected[1]:
                detail = f"points of level {level} are not those of the sealed blocks"
                yield self.damage("level", detail, series_id)


def _hash_points(points: ScalarPoints) -> UInt64s:
    """Return a hash of each point: of step, wall time and value, bit by bit."""
    walls, values = points.wall_times.view(np.int64), points.values.view(np.int64)
    hashes = splitmix64(points.steps) ^ splitmix64(walls)
    return splitmix64(hashes.view(np.int64)) ^ splitmix64(values)


def _sum(hashes: UInt64s) -> int:
    return int(hashes.sum(dtype=np.uint64))
