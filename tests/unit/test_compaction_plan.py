"""The plan of a compaction, applied to a series in memory."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tbservice import limits
from tbservice.sample_order import LEVEL_MAX, compute_slots, get_level_rank_max
from tbservice.series import compaction_plan, thinning
from tbservice.series.compaction_plan import SeriesInput
from tbservice.series.dedup import deduplicate_steps
from tbservice.series.tables.scalar_blocks import OPEN, SEALED, BlockMetadata
from tbservice.series.tables.scalar_format import EMPTY_POINTS, concatenate
from tbwire.points import ScalarPoints

SERIES_ID = 7
OPEN_POINTS_MIN = 3
RANKS = np.random.default_rng(1).integers(0, 16, 1 << 16).astype(np.uint8)


@pytest.fixture(autouse=True, scope="module")
def small_limits():
    """Limits that a few points reach."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "BLOCK_POINTS_MAX", 8)
        patch.setattr(limits, "SEALED_POINTS_MIN", 4)
        patch.setattr(compaction_plan, "_REWRITE_FACTOR", 2)
        yield


class StoredSeries:
    """A series as the tables store it; `compact` does in memory what `series.compaction` does."""

    def __init__(self):
        self.blocks = {level: {} for level in range(OPEN, LEVEL_MAX + 1)}  # by level and block id
        self.buffered = EMPTY_POINTS
        self.count = self.sealed_count = self.block_id = 0
        self.count_is_exact = True
        self.last_step = -(10**9)
        self.arrived = EMPTY_POINTS

    def write(self, steps, wall_time):
        """Ingest a batch: it opens blocks if it has enough points and nothing is buffered."""
        steps = np.array(sorted(steps), np.int64)
        arrival = len(self.arrived) + np.arange(len(steps), dtype=np.float64)
        points = ScalarPoints(steps, np.full(len(steps), float(wall_time)), arrival)
        self.arrived = concatenate([self.arrived, points])
        self.count_is_exact &= int(steps[0]) > self.last_step
        self.count += len(steps)
        self.last_step = max(self.last_step, int(steps[-1]))
        if len(steps) >= OPEN_POINTS_MIN and not len(self.buffered):
            for start in range(0, len(steps), limits.BLOCK_POINTS_MAX):
                self._insert(OPEN, points.select(slice(start, start + limits.BLOCK_POINTS_MAX)))
        else:
            self.buffered = concatenate([self.buffered, points])

    def _insert(self, level, points):
        self.block_id += 1
        self.blocks[level][self.block_id] = points

    def plan(self):
        series = SeriesInput(
            SERIES_ID,
            self.count_is_exact,
            self.sealed_count,
            self.buffered,
            [describe(*item) for item in self.blocks[OPEN].items()],
        )
        steps = compaction_plan.find_sealed_range(series)
        sealed = [describe(*item) for item in self.blocks[SEALED].items()]
        read = [
            block
            for block in sealed
            if steps and block.first_step <= steps.last and block.last_step >= steps.first
        ]
        return compaction_plan.plan_series(series, sorted(read, key=lambda block: block.first_step))

    def compact(self):
        """Plan and apply; return the plan, the points it packed, and what they became."""
        plan = self.plan()
        in_place = [self.blocks[OPEN].pop(block.key[1]) for block in plan.seal_in_place]
        for block, points in zip(plan.seal_in_place, in_place, strict=True):
            self.blocks[SEALED][block.key[1]] = points
        repacked = [self.blocks[OPEN].pop(block.key[1]) for block in plan.repack]
        merge = compaction_plan.plan_merge(plan, repacked)
        rewritten = [self.blocks[SEALED].pop(block.key[1]) for block in merge.rewrite]
        packed = compaction_plan.pack_series(merge, in_place, rewritten)
        for block in packed.blocks:
            self._insert(block.level, block.points)
        self._thin(packed)
        before = concatenate([*rewritten, *repacked, self.buffered])
        self.buffered, self.sealed_count = EMPTY_POINTS, packed.sealed_count
        if packed.count is not None:
            self.count, self.count_is_exact = packed.count, True
        return plan, before, packed

    def _thin(self, packed):
        copies = thinning.select_levels([packed], RANKS)
        small = {}
        for series_id, level in copies:
            blocks = self.blocks[level]
            ids = [id_ for id_, points in blocks.items() if len(points) <= 4]
            small[series_id, level] = [blocks.pop(id_) for id_ in ids]
        for block in thinning.merge_levels(copies, small):
            self._insert(block.level, block.points)

    def read(self, level=SEALED):
        """Return the points that a reader of a level gets."""
        stored = [*self.blocks[level].values(), *self.blocks[OPEN].values(), self.buffered]
        return deduplicate_steps(concatenate(stored))

    def layout(self):
        return {
            level: [as_tuples(points) for points in blocks.values()]
            for level, blocks in self.blocks.items()
        }


def describe(block_id, points):
    first_step, last_step = int(points.steps[0]), int(points.steps[-1])
    return BlockMetadata((SERIES_ID, block_id), len(points), first_step, last_step)


def as_tuples(points):
    return list(
        zip(points.steps.tolist(), points.wall_times.tolist(), points.values.tolist(), strict=True)
    )


def at_level(points, level):
    """Return the points of the steps that a level contains."""
    return points.select(RANKS[compute_slots(points.steps)] <= get_level_rank_max(level))


def ends(block):
    return block.first_step, block.last_step


def are_disjoint(first, second):
    return first[1] < second[0] or second[1] < first[0]


RANGES = st.builds(
    lambda start, count, stride: range(start, start + count * stride, stride),
    st.integers(-5, 80),
    st.integers(1, 30),
    st.integers(1, 3),
)
WRITES = st.tuples(
    st.one_of(st.sets(st.integers(-5, 90), min_size=1, max_size=6), RANGES), st.integers(0, 3)
)
ANY_ORDER = st.lists(st.one_of(WRITES, st.just("compact")), max_size=14)
IN_ORDER = st.lists(st.one_of(st.integers(1, 12), st.just("compact")), max_size=14).map(
    lambda events: [
        event if event == "compact" else (range(index * 20, index * 20 + event), 0)
        for index, event in enumerate(events)
    ]
)
HISTORIES = st.one_of(ANY_ORDER, IN_ORDER)


def replay(history):
    """Apply writes and compactions; no two writes have the same wall time."""
    series = StoredSeries()
    for index, event in enumerate(history):
        if event == "compact":
            series.compact()
        else:
            steps, wall_time = event
            series.write(steps, wall_time + index / 100)
    return series


@given(HISTORIES)
@example([(range(60, 63), 0), (range(3), 0), (range(10, 18), 0), "compact"])
def test_compaction_keeps_newest_point_of_each_step(history):
    series = replay(history)
    expected = deduplicate_steps(series.arrived)
    for _ in range(3):
        for level in range(SEALED, LEVEL_MAX + 1):
            assert as_tuples(at_level(series.read(level), level)) == as_tuples(
                at_level(expected, level)
            )
        series.compact()


@given(HISTORIES)
def test_compaction_makes_blocks_without_common_steps(history):
    series = replay(history)
    _, before, packed = series.compact()
    steps = [step for block in packed.blocks for step in block.points.steps.tolist()]
    assert sorted(steps) == np.unique(before.steps).tolist()
    for block in packed.blocks:
        assert np.all(np.diff(block.points.steps) > 0)
    for blocks in (series.blocks[level] for level in range(SEALED, LEVEL_MAX + 1)):
        assert all(0 < len(points) <= limits.BLOCK_POINTS_MAX for points in blocks.values())
    sealed = series.blocks[SEALED].values()
    spans = sorted((points.steps[0], points.steps[-1]) for points in sealed)
    assert all(last < first for (_, last), (first, _) in pairwise(spans))
    assert series.sealed_count == sum(map(len, sealed))
    assert not series.count_is_exact or series.count == len(series.read())


@given(HISTORIES)
def test_compaction_seals_large_disjoint_and_repacks_last_blocks(history):
    series = replay(history)
    before = [
        (int(points.steps.min()), int(points.steps.max()))
        for points in (*series.blocks[SEALED].values(), series.buffered)
        if len(points)
    ]
    plan = series.plan()
    blocks = plan.series.open_blocks
    for block in plan.seal_in_place:
        others = [ends(other) for other in blocks if other is not block]
        assert block.count >= limits.SEALED_POINTS_MIN
        assert all(are_disjoint(ends(block), other) for other in (*before, *others))
    if series.count_is_exact:
        large = [block for block in blocks if block.count >= limits.SEALED_POINTS_MIN]
        assert list(plan.seal_in_place) == large

    others = [block for block in blocks if block not in plan.seal_in_place]
    assert list(plan.repack) == others[len(others) - len(plan.repack) :]
    later_count = len(plan.series.buffered) or (plan.repack[-1].count if plan.repack else 0)
    for block in reversed(plan.repack):
        assert block.count <= later_count
        later_count += block.count


def test_compaction_in_order_packs_no_block_across_sealed_one():
    series = StoredSeries()
    series.write(range(3), 0)
    series.write(range(100, 108), 0)
    series.compact()
    series.write(range(200, 202), 0)
    series.write(range(300, 312), 0)
    _, _, packed = series.compact()
    assert [ends(block) for block in series.plan().series.open_blocks] == [(306, 311)]
    assert [tuple(block.points.steps[[0, -1]]) for block in packed.blocks] == [
        (0, 2),
        (200, 305),
        (306, 311),
    ]


@given(HISTORIES)
def test_compaction_repeated_reaches_fixed_layout(history):
    series = replay(history)
    for _ in range(8):
        series.compact()
    layout = series.layout()
    plan, _, packed = series.compact()
    assert series.layout() == layout
    assert not plan.seal_in_place
    assert not packed.blocks or not series.count_is_exact


def test_compaction_of_late_points_leaves_long_series_alone():
    series = StoredSeries()
    series.write(range(200), 0)
    series.compact()
    sealed = series.layout()[SEALED]
    series.write([3], 1)
    series.write([190], 1)
    plan, _, packed = series.compact()
    assert sum(block.count for block in plan.overlapped) > 2 * limits.BLOCK_POINTS_MAX
    assert [block.level for block in packed.blocks] == [OPEN]
    assert series.layout()[SEALED] == sealed
    assert not series.count_is_exact
