"""The change cursor against a model: whatever is written, deleted and read, nothing is missed."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tbservice.errors import Invalid, MalformedRequest
from tbservice.ingest.series_updates import NEVER_REWRITTEN
from tbservice.reading import change_cursor
from tbservice.reading.tables.series_progress import SeriesProgress
from tbservice.types.identifiers import ExperimentId
from tbservice.types.sampling import Selection

LEAST, GREATEST = -(2**63), 2**63 - 1
FOLLOWED = b"followed"
STEPS = st.one_of(st.integers(0, 6), st.sampled_from([LEAST, LEAST + 1, GREATEST - 1, GREATEST]))
WRITE = st.tuples(st.just("write"), st.integers(0, 2), st.sets(STEPS, min_size=1, max_size=4))
DELETE = st.tuples(st.just("delete"), st.integers(0, 2))
READ = st.tuples(st.just("read"), st.integers(1, 6))


class Model:
    """Series as the store keeps them, by name and in the order of their ids, and a reader with a
    cursor.
    """

    def __init__(self):
        self.series = {}
        self.ids = iter(range(1, 1_000_000, 7))
        self.version = 0
        self.written = 0
        self.held = {}
        self.cursor = None

    def write(self, name, steps):
        self.version += 1
        if name not in self.series:
            self.series[name] = [next(self.ids), {}, None, 0, NEVER_REWRITTEN]
        series = self.series[name]
        if series[2] is not None and min(steps) <= series[2]:
            series[3] += 1
            series[4] = min(series[4], *steps)
        for step in steps:
            self.written += 1
            series[1][step] = self.written
        series[2] = max(series[1])

    def delete(self, name):
        self.version += 1
        self.series.pop(name, None)

    def read(self, limit):
        """Read one response of at most `limit` points, as `changes` makes it."""
        before = None if self.cursor is None else change_cursor.decode(self.cursor, FOLLOWED)
        if before is not None and before.version == self.version:
            return False
        series = sorted(self.series.values())
        columns = [[row[0], len(row[1]), 0, *row[2:]] for row in series]
        progress = SeriesProgress(*np.array(columns, np.int64).reshape(-1, 6).T)
        unread = change_cursor.find_pending(progress, before)
        for series_id in unread.removed.tolist():
            del self.held[series_id]
        whole, cut_at = self.send(series, unread, limit)
        now = change_cursor.head(progress, self.version, FOLLOWED)
        after = change_cursor.advance(progress, before, unread, whole, cut_at, now)
        self.cursor = change_cursor.encode(after)
        return after.version == change_cursor.INCOMPLETE

    def send(self, series, unread, limit):
        for index, (place, first) in enumerate(
            zip(unread.indices, unread.first_steps, strict=True)
        ):
            if not limit:
                return index, None
            series_id, points = series[place][:2]
            new = sorted(step for step in points if step >= first)
            held = self.held.setdefault(series_id, {})
            if unread.is_replacing[index]:
                for step in [step for step in held if step >= first]:
                    del held[step]
            assert not held or not new or max(held) < new[0]
            held.update({step: points[step] for step in new[:limit]})
            if len(new) > limit:
                return index, new[limit - 1]
            limit -= len(new)
        return len(unread.indices), None

    def truth(self):
        return {series[0]: series[1] for series in self.series.values()}


@settings(max_examples=100)
@given(st.lists(st.one_of(WRITE, WRITE, READ, DELETE), min_size=12, max_size=40), st.integers(1, 6))
def test_points_gathered_equal_written_ones(events, limit):
    model = Model()
    for name, *arguments in events:
        getattr(model, name)(*arguments)
    while model.read(limit):
        pass
    assert model.held == model.truth()
    assert not model.read(limit)


def test_reader_goes_back_no_further_than_rewritten_points():
    progress = SeriesProgress(
        *np.array([[7, 100, 0, 99, 2, 40], [9, 100, 0, 99, 0, NEVER_REWRITTEN]]).T
    )
    has_all_but = change_cursor.ChangeCursor(
        5, FOLLOWED, np.array([7, 9]), np.array([1, 0]), np.array([98, 98])
    )
    unread = change_cursor.find_pending(progress, has_all_but)
    assert (unread.first_steps.tolist(), unread.is_replacing.tolist()) == ([40, 99], [True, False])


@given(st.binary(max_size=200), st.booleans())
def test_what_is_no_cursor_is_told_so(data, is_packed):
    text = base64.urlsafe_b64encode(zlib.compress(data) if is_packed else data).decode()
    with pytest.raises((MalformedRequest, Invalid)):
        change_cursor.decode(text, FOLLOWED)


def test_cursor_of_parallel_series_is_short():
    ids = np.arange(10_000) + 123_456_789
    text = change_cursor.encode(
        change_cursor.ChangeCursor(
            12, FOLLOWED, ids, np.zeros(10_000, int), np.full(10_000, 31_250)
        )
    )
    assert len(text) < 1_000
    assert change_cursor.decode(text, FOLLOWED).last_steps.tolist() == [31_250] * 10_000


def test_cursor_that_would_grow_without_end_is_refused():
    bomb = base64.urlsafe_b64encode(zlib.compress(bytes(50_000_000))).decode()
    with pytest.raises(MalformedRequest):
        change_cursor.decode(bomb, FOLLOWED)


@pytest.mark.parametrize(
    "other",
    [
        Selection(),
        Selection(plugin="b"),
        Selection(runs=frozenset()),
        Selection(runs=frozenset({"a", "b"})),
        Selection(tags=frozenset({"a"})),
        Selection(runs=frozenset({"a"}), tags=frozenset({"b"})),
    ],
)
def test_cursor_tells_what_it_follows(other):
    digest = change_cursor.selection_digest(ExperimentId("x"), Selection(runs=frozenset({"a"})))
    assert change_cursor.selection_digest(ExperimentId("x"), other) != digest
    assert (
        change_cursor.selection_digest(ExperimentId("y"), Selection(runs=frozenset({"a"})))
        != digest
    )
