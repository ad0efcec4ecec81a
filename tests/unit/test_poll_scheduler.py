"""How often entries are polled: by how long they have been quiet, and within their share of the
time.
"""

import pytest

from support.clock import Clock
from tbupload.logdir.poll_scheduler import (
    BACKLOG_SECONDS,
    POLL_SECONDS_MAX,
    POLLS_PER_QUIET_TIME,
    PollScheduler,
)


def looks(scheduler, clock, seconds, quiet_seconds, turn_seconds=0.1):
    """Return how often each entry is polled within `seconds`; `quiet_seconds` says how long each
    has been quiet.
    """
    counts = dict.fromkeys(quiet_seconds, 0)
    for _ in range(round(seconds / turn_seconds)):
        clock.now += turn_seconds
        for thing in scheduler.ready():
            counts[thing] += 1
            scheduler.add(thing, quiet_seconds[thing])
    return counts


def test_poll_scheduler_polls_recent_changes_most():
    clock = Clock()
    scheduler = PollScheduler(0.2, 5.0, share=1.0, now=clock)
    quiet = {"busy": 0.0, "calm": 2.0 * POLLS_PER_QUIET_TIME, "asleep": 1e6}
    for thing, seconds in quiet.items():
        scheduler.add(thing, seconds)
    counts = looks(scheduler, clock, 100, quiet)
    assert counts["busy"] == pytest.approx(500, abs=2)
    assert 30 <= counts["calm"] <= 70
    assert counts["asleep"] == pytest.approx(20, abs=2)


def test_pause_is_period_of_busiest_thing():
    scheduler = PollScheduler(0.2, 5.0, share=1.0, now=Clock())
    assert scheduler.pause_seconds() == 5.0
    scheduler.add("asleep", 1e6)
    assert scheduler.pause_seconds() == 5.0
    scheduler.add("busy", 0.0)
    assert scheduler.pause_seconds() == 0.2


def test_one_period_is_enough():
    clock = Clock()
    scheduler = PollScheduler(0.2, 0.05, share=1.0, now=clock)
    scheduler.add("thing", 1e6)
    assert scheduler.pause_seconds() == 0.05
    assert looks(scheduler, clock, 10, {"thing": 1e6}, 0.05) == {"thing": pytest.approx(200, abs=2)}


def test_poll_scheduler_keeps_share_of_time():
    clock = Clock()
    scheduler = PollScheduler(0.2, 5.0, share=0.01, now=clock)
    for thing in range(100_000):
        scheduler.add(thing, 1e6)
    clock.step = 1e-5  # every look takes ten microseconds
    began, count = clock.now, 0
    for _ in range(200):
        clock.now += scheduler.pause_seconds()
        for thing in scheduler.ready():
            count += 1
            scheduler.add(thing, 1e6)
    share = count * clock.step / (clock.now - began)
    assert 0.005 < share < 0.012
    assert scheduler.pause_seconds() == BACKLOG_SECONDS


def test_poll_scheduler_serves_busy_and_quiet_entries():
    clock = Clock()
    scheduler = PollScheduler(0.2, 5.0, share=0.01, now=clock)
    quiet = dict.fromkeys(range(10000), 1000000.0) | {"busy": 0.0}
    for thing, seconds in quiet.items():
        scheduler.add(thing, seconds)
    clock.step = 1e-5
    counts = looks(scheduler, clock, 100, quiet, 0.2)
    assert counts["busy"] > 450
    assert sum(counts.values()) - counts["busy"] > 10_000


def test_turn_is_short_however_long_ago_last_one_was():
    clock = Clock()
    scheduler = PollScheduler(0.2, 5.0, share=1.0, now=clock)
    for thing in range(10_000):
        scheduler.add(thing, 0.0)
    clock.now += 3600.0
    clock.step = 1e-3
    began = clock.now
    assert len(list(scheduler.ready())) > 1
    assert clock.now - began < 4 * POLL_SECONDS_MAX


def test_poll_scheduler_forgets_entry_until_added_again():
    clock = Clock()
    scheduler = PollScheduler(0.2, 5.0, share=1.0, now=clock)
    scheduler.add("thing", 0.0)
    clock.now += 1.0
    assert list(scheduler.ready()) == ["thing"]
    clock.now += 1.0
    assert list(scheduler.ready()) == []


def test_all_can_be_taken_at_once():
    scheduler = PollScheduler(0.2, 5.0, share=0.01, now=Clock())
    scheduler.add("busy", 0.0)
    scheduler.add("asleep", 1e6)
    assert sorted(scheduler.pop_all()) == ["asleep", "busy"]
    assert scheduler.pop_all() == []
