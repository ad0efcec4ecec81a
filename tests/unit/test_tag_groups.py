"""Grouping the tags of many runs: work proportional to the series, not to runs times tags."""

from __future__ import annotations

import numpy as np

from tbservice.reading import tag_groups
from tbservice.series.tables.time_series import TagGroupRow
from tbwire.points import DataClass


class CountedId:
    """An id that counts how often it is converted to a numpy number."""

    conversions = 0

    def __init__(self, number):
        self._number = number

    def __int__(self):
        CountedId.conversions += 1
        return self._number


def test_tag_groups_convert_each_tag_id_once():
    tags = {CountedId(number): f"tag{number % 7}/{number}" for number in range(1, 101)}
    own = [np.array([1 + run, 51 + run], np.int64) for run in range(50)]
    rows = [
        TagGroupRow(run, "scalars", DataClass.SCALAR, b"", ids, np.zeros(2, np.int64))
        for run, ids in enumerate(own)
    ]
    groups = tag_groups.group_tags(
        tag_groups.TagGroupRows({run: f"run{run}" for run in range(50)}, tags, rows)
    )
    assert groups[0].tags == ("tag1/1", "tag2/51")
    assert [group.run for group in groups] == [f"run{run}" for run in range(50)]
    assert CountedId.conversions == len(tags)
