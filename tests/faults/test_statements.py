"""Every statement of the service fails: its connection breaks before it arrives, or before its
result does.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter

import pytest

FAULTS = ("before", "after")
STATEMENTS_MIN = 200
"""An upload of fewer statements, merges included, tries too little."""

DIFFERENT_MIN = 22
"""Different statements of the requests of an upload; those of merges may come only after its end.
"""

STATEMENTS_AT_ONCE = 20
"""Different statements that fail in one upload: far apart, and each at another occurrence, so that
no request fails over and over, and is repeated later and later.
"""

MERGING = re.compile(r"(DELETE FROM|INSERT INTO) scalar_blocks|DELETE FROM scalar_tail")

SOME_OF_MERGES = {"before": (4,), "after": (12,)}

COMMITS = ({1, 2, 5, 9, 14, 20}, {3, 7, 8, 13, 18, 25})


@pytest.fixture(scope="module")
def different_statements(world, clean):
    """Return how often each statement occurs in an upload and its compactions."""
    tenant = world.tenant()
    world.disarm()
    tenant.upload(clean.logdir)
    assert len(world.sql.statements) >= STATEMENTS_MIN
    return Counter(world.sql.statements)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_different_statement_fails(
    world, clean, different_statements, fault, is_everything_tried
):
    """Half of them in one way, half in the other, unless everything is tried."""
    hits, statements = 0, list(different_statements)
    if not is_everything_tried:
        statements = statements[FAULTS.index(fault) :: 2]
    uploads = math.ceil(len(statements) / STATEMENTS_AT_ONCE)
    for first in range(uploads):
        group = statements[first::uploads]
        places = {
            (text, min(turn, different_statements[text])) for turn, text in enumerate(group, 1)
        }
        hits += clean.upload_with(
            world.sql, lambda _, text, time, at=places: fault if (text, time) in at else ""
        )
    assert hits >= DIFFERENT_MIN / 2


@pytest.mark.parametrize("times", COMMITS)
def test_commit_with_lost_answer_is_done_exactly_once(world, clean, times):
    hits = clean.upload_with(
        world.sql, lambda _, text, time: "after" if text == "COMMIT" and time in times else ""
    )
    assert hits > 2


def merge_hits(world, clean, both, fault, at):
    """Upload twice with a fault at the compaction statement `at`, and check the result; return
    whether it was met.
    """
    count = itertools.count(1)
    tenant = world.tenant()
    world.disarm()
    world.sql.arm(
        lambda _, text, _time: fault if MERGING.search(text) and next(count) == at else ""
    )
    experiment_id = tenant.upload(clean.logdir).experiment_id
    ended = tenant.upload(both.logdir, "--experiment", experiment_id)
    hits = world.sql.hits
    assert ended.code == 0, ended.err
    both.check_stored(tenant, experiment_id, in_order=False)
    return hits


@pytest.mark.parametrize("fault", FAULTS)
def test_compaction_broken_anywhere_leaves_no_trace(world, clean, both, fault, is_everything_tried):
    for at in itertools.count(1) if is_everything_tried else SOME_OF_MERGES[fault]:
        if not merge_hits(world, clean, both, fault, at):
            break
    assert at >= max(SOME_OF_MERGES[fault])


@pytest.mark.every_fault
@pytest.mark.parametrize("fault", FAULTS)
def test_each_single_statement_fails(world, clean, fault):
    for at in itertools.count(1):
        if not clean.upload_with(
            world.sql, lambda number, _text, _time, at=at: fault if number == at else ""
        ):
            break
    assert at >= STATEMENTS_MIN
