"""Shared work: one does it for all that asked before it began, and nobody gets an older result."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.waiting import wait_until
from tbservice.runs.shared_work import SharedWork
from tbservice.waits import Waits, count_in


def test_shared_work_is_done_once_for_those_who_wait():
    """Seven wait for the eighth, which waits for the first; all eight count as waiting."""
    work, waits = SharedWork(), Waits()
    state, results = ["old"], []
    began, may_end = threading.Event(), threading.Event()

    def read():
        results.append(state[0])
        began.set()
        assert may_end.wait(30)
        return results[-1]

    def ask():
        count_in(waits, "reader", lambda: None, lambda: None)
        return work.run("page", read)

    with ThreadPoolExecutor(9) as threads:
        first = threads.submit(work.run, "page", read)
        assert began.wait(30)
        state[0] = "new"
        later = [threads.submit(ask) for _ in range(8)]
        wait_until(lambda: waits.count == 8)
        assert work.run("other", lambda: "apart") == "apart"
        may_end.set()
        assert first.result() == "old"
        assert {each.result() for each in later} == {"new"}
    assert results == ["old", "new"]
    assert not work._next
    assert not work._current


def test_shared_work_error_is_raised_to_each():
    work = SharedWork()

    def fail():
        raise ValueError("no")

    for _ in range(2):  # the second asks again
        with pytest.raises(ValueError, match="no"):
            work.run("page", fail)
    assert work.run("page", lambda: 1) == 1
