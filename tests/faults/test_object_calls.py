"""Every call of the service to the object store fails: no point without its bytes, no blob lost."""

from __future__ import annotations

import itertools

import pytest

ATTEMPTS = 3
"""How often the service asks the object store before it tells the uploader to come again."""

FAULTS = ("500", "half sent", "lost", "unanswered")
BLOBS_MIN = 4


def test_object_calls_that_fail_sometimes_are_repeated(world, clean):
    faults = dict(zip(range(1, 50, 2), itertools.cycle(FAULTS), strict=False))
    assert clean.upload_with(world.objects, faults) >= BLOBS_MIN


@pytest.mark.parametrize("fault", ["500", "unanswered"])
def test_object_store_that_is_away_for_while_delays_upload(world, clean, fault):
    calls = range(1, 1 + ATTEMPTS * BLOBS_MIN)
    assert clean.upload_with(world.objects, dict.fromkeys(calls, fault)) == len(calls)


@pytest.mark.every_fault
@pytest.mark.parametrize("fault", FAULTS)
def test_each_single_call_fails_as_often_as_it_is_tried(world, clean, fault):
    for at in itertools.count(1):
        if not clean.upload_with(world.objects, dict.fromkeys(range(at, at + ATTEMPTS), fault)):
            break
    assert at >= BLOBS_MIN
