"""Small writes wait in the inline buffer until they fill a row of the write buffer, and are read
meanwhile.
"""

from __future__ import annotations

import numpy as np
import pytest
from sqlalchemy import text

from tbservice import limits

SIZES = (1, 1, 1, 2, 3, limits.WRITE_BUFFER_ROW_POINTS_MIN, limits.PACKED_POINTS_MIN)

KEPT = """
    SELECT count_is_exact, count, tail_points, length(tail_end) / 24,
        (SELECT coalesce(sum(count), 0) FROM scalar_tail),
        (SELECT coalesce(sum(count), 0) FROM scalar_blocks WHERE level = -1),
        (SELECT coalesce(sum(count), 0) FROM scalar_blocks WHERE level = 0)
    FROM time_series
"""


def kept_of(database, workspace_id):
    """Return of the workspace's only series: whether its count is exact, its count, its buffered
    points, and the points in each place.
    """
    with database.snapshot(workspace_id) as db:
        return [int(number) for number in db.execute(text(KEPT)).one()]


def read_of(api, experiment, **how):
    """Return the complete series as bytes: read at once, or in chunks."""
    columns = api.get(experiment, "scalars/data", **how)["train"]["loss"]
    return np.rec.fromarrays(
        [columns["steps"], columns["wall_times"], columns["values"]], "<i8, <f8, <f8"
    ).tobytes()


def test_points_are_read_same_wherever_they_wait(
    api, experiment, writer, database, workspace_id, monkeypatch
):
    monkeypatch.setattr(limits, "SCAN_CHUNK_POINTS", 300)
    random = np.random.default_rng(0)
    end, ends = 0, set()
    for number in range(24):
        size = int(random.choice(SIZES))
        start = end if random.random() < 0.8 else max(0, end - int(random.integers(1, 12)))
        # Wall times are often equal: then the later arrival wins, wherever it is stored.
        writer.write(range(start, start + size), wall_times=np.full(size, 1.7e9 + number // 8))
        end = max(end, start + size)
        if random.random() < 0.1:
            writer.merge()
        expected = writer.expected().tobytes()
        assert (
            read_of(api, experiment, downsample=200_000)
            == read_of(api, experiment, sampling="all")
            == expected
        )
        is_exact, count, tail_points, in_end, in_tail, still_open, sealed = kept_of(
            database, workspace_id
        )
        assert in_end < limits.WRITE_BUFFER_ROW_POINTS_MIN
        assert tail_points <= in_end + in_tail + still_open
        assert not is_exact or count == in_end + in_tail + still_open + sealed
        ends.add(in_end)
    assert len(ends) > 3


def test_flushes_of_point_are_row_for_many_and_merge_leaves_none(writer, database, workspace_id):
    points = 2 * limits.WRITE_BUFFER_ROW_POINTS_MIN + 3
    for step in range(points):
        writer.write([step])
    assert writer.levels() == {"tail": 2, "end": 1}
    assert kept_of(database, workspace_id)[2:5] == [points, 3, points - 3]
    writer.write(
        range(points, points + limits.PACKED_POINTS_MIN)
    )  # behind what waits, which comes before it
    assert writer.levels() == {"tail": 4, "end": 0}
    writer.write([2_000])
    writer.merge()
    assert {**writer.levels(), -1: 1} == {-1: 1, "tail": 0, "end": 0}
    assert kept_of(database, workspace_id)[:3] == [True, points + limits.PACKED_POINTS_MIN + 1, 0]


@pytest.mark.parametrize(
    ("size", "levels"),
    [(1, {"tail": 1, "end": 1}), (limits.PACKED_POINTS_MIN, {"tail": 2, "end": 0})],
)
def test_step_that_comes_again_at_same_time_is_later_one(api, experiment, writer, size, levels):
    writer.write([5, 6], wall_times=[1.7e9, 1.7e9])
    writer.write(range(6, 6 + size), wall_times=np.full(size, 1.7e9))
    assert writer.levels() == levels
    for how in ({"downsample": 200_000}, {"sampling": "all"}):
        assert read_of(api, experiment, **how) == writer.expected().tobytes()
