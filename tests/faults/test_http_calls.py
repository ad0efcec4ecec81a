"""Every call from `tbupload` to the service fails in every way: the result equals that of an upload
without faults.
"""

from __future__ import annotations

import itertools

import pytest

from support.http_faults import FAULTS

QUICK_FAULTS = sorted(FAULTS.keys() - {"429"})
"""All except the one that makes the uploader wait for a second."""

CALLS_MIN = 12
"""An upload of fewer calls tries too little."""

CALLS_APART = 4
"""Calls from one lost answer to the next in the same upload: by then the one before is repeated."""

DOUBLING = frozenset({"twice", "twice at once", "overtaken", "lost and late"})
"""Here the uploader may be answered as if another one had been quicker, and then counts less than
is there.
"""


def upload_with(faults, world, clean):
    """Upload with these faults, and check the result; return how many were met."""
    return clean.upload_with(world.http, faults, says_all=not DOUBLING & set(faults.values()))


def every_call_fails_once(fault, world, clean):
    """Upload with a fault at call 1, 2, … until none is met; return the number of calls."""
    return next(at for at in itertools.count() if not upload_with({at + 1: fault}, world, clean))


@pytest.mark.parametrize("first", range(1, CALLS_APART + 1))
def test_whichever_answer_is_lost_everything_is_stored_once(world, clean, first):
    faults = dict.fromkeys(range(first, 200, CALLS_APART), "unanswered")
    assert upload_with(faults, world, clean) >= CALLS_MIN / CALLS_APART


@pytest.mark.parametrize("shift", range(0, len(QUICK_FAULTS), 3))
def test_upload_with_every_other_call_failing_ends_well(world, clean, shift):
    turns = itertools.cycle(QUICK_FAULTS[shift:] + QUICK_FAULTS[:shift])
    faults = dict(zip(range(1 + shift // 3 % 2, 200, 2), turns, strict=False))
    assert upload_with(faults, world, clean) >= CALLS_MIN / 2


def test_upload_waits_for_retry_after_then_sends_all(world, clean):
    assert upload_with({1: "429", 5: "429"}, world, clean) == 2


@pytest.mark.every_fault
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_single_call_fails_in_each_single_way(world, clean, fault):
    assert every_call_fails_once(fault, world, clean) >= CALLS_MIN
