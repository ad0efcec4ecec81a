"""The pace of requests, and refusals that are held, on plain values."""

from __future__ import annotations

import asyncio

import pytest

from support.clock import Clock
from tbservice import limits
from tbservice.admission import refusals
from tbservice.admission.pace import PACE_BURST_SECONDS, Pace
from tbservice.admission.refusals import LEFT_KEY, hold_refusal

pytestmark = pytest.mark.anyio

RATE = 10.0
BURST = round(RATE * PACE_BURST_SECONDS)
WAITING = round(RATE * limits.PACE_WAIT_SECONDS_MAX)


@pytest.fixture
def clock():
    return Clock(1_000.0)


@pytest.fixture
def pace(clock):
    return Pace(clock)


def test_pace_lets_burst_pass_then_delays_then_refuses(pace, clock):
    waits = [pace.count([("one", RATE)]) for _ in range(BURST + WAITING + 10)]
    assert waits[: BURST + 1] == pytest.approx([0] * (BURST + 1))
    delayed = waits[BURST + 1 : BURST + WAITING]
    assert delayed == pytest.approx([number / RATE for number in range(1, WAITING)])
    assert waits[-1] is None
    assert pace.count([("another", RATE)]) == 0

    clock.now += 1  # refused requests were not counted
    assert [pace.count([("one", RATE)]) is None for _ in range(15)].count(False) in {10, 11}
    clock.now += 100
    assert pace.count([("one", RATE)]) == 0


def test_pace_of_subnets_is_that_of_their_site(pace):
    def count(subnet, site):
        return pace.count([(subnet, RATE), (site, 2 * RATE)])

    waits = [count(f"subnet {number}", "site") for number in range(3 * (BURST + WAITING))]
    assert sum(wait is not None and wait < 0.01 for wait in waits) == pytest.approx(
        2 * BURST, abs=1
    )
    assert waits[-1] is None
    assert count("subnet 0", "another site") == 0


def test_pace_remembers_bounded_number_of_callers(pace, clock, monkeypatch):
    monkeypatch.setattr("tbservice.admission.pace.PACED_CALLERS_ITEMS_MAX", 50)
    for number in range(200):
        pace.count([(f"caller {number}", RATE)])
    assert len(pace._busy_until) == 50
    clock.now += 1
    pace.count([("one", RATE)])
    assert list(pace._busy_until) == ["one"]


async def test_refusal_is_held_until_its_client_leaves(monkeypatch):
    has_left = asyncio.Event()
    scope = {"client": ("192.0.2.1", 1), "path": "/", LEFT_KEY: has_left}
    holding = asyncio.create_task(hold_refusal(scope))
    await asyncio.sleep(0)
    assert not holding.done()
    has_left.set()
    assert not await holding

    monkeypatch.setattr(limits, "REFUSAL_SECONDS", 0.01)
    assert await hold_refusal(scope | {LEFT_KEY: asyncio.Event()})
    assert await hold_refusal({})


async def test_refusals_of_address_are_held_longer_the_more_it_gets(monkeypatch, clock):
    held = []

    async def note(_scope, seconds):
        held.append(seconds)
        return True

    monkeypatch.setattr(refusals, "_pace", Pace(clock))
    monkeypatch.setattr(refusals, "wait_with_client", note)
    for address in ["192.0.2.2"] * 100 + ["192.0.2.3"]:
        await hold_refusal({"client": (address, 1), "path": "/", LEFT_KEY: asyncio.Event()})
    burst = round(refusals.REFUSALS_PER_SECOND * PACE_BURST_SECONDS)
    at_once, queued = held[: burst + 1], held[burst + 1 : 100]
    assert at_once == [limits.REFUSAL_SECONDS] * len(at_once)
    longer = [number / refusals.REFUSALS_PER_SECOND for number in range(1, len(queued) + 1)]
    assert queued == pytest.approx([limits.REFUSAL_SECONDS + seconds for seconds in longer])
    assert held[100] == limits.REFUSAL_SECONDS


async def test_refusals_whose_clients_left_hold_no_others(monkeypatch, clock):
    """Else one client behind an address could let all others there wait for hours."""
    pace = Pace(clock)
    monkeypatch.setattr(refusals, "_pace", pace)
    has_left = asyncio.Event()
    has_left.set()
    scope = {"client": ("192.0.2.4", 1), "path": "/", LEFT_KEY: has_left}
    for _ in range(1_000):
        assert not await hold_refusal(scope)
    assert pace.count([("address 192.0.2.4", refusals.REFUSALS_PER_SECOND)]) == 0
