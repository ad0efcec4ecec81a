"""The exit code of an upload is true: 0 all stored, 1 something skipped, 75 try again later, which
then completes.
"""

from __future__ import annotations

import itertools

import pytest

AWAY_FOR_GOOD = 10_000
SOME_CALLS = {"lost": (1, 9), "unanswered": (4,), "503": (3,)}
SOON = ("--retry-timeout", 0.3)


def away_from(call, fault):
    """Return faults for this call and all later ones."""
    return dict.fromkeys(range(call, AWAY_FOR_GOOD), fault)


def give_up_at(world, tenant, call, fault, logdir):
    """Upload with a short retry timeout to a server that stops answering."""
    world.disarm()
    world.http.arm(away_from(call, fault))
    ended = tenant.upload(logdir, *SOON)
    is_hit = bool(world.http.hits)
    world.disarm()
    return ended, is_hit


@pytest.mark.parametrize("fault", ["lost", "unanswered", "503"])
def test_server_that_goes_away_is_75_and_rest_can_be_sent_later(
    world, clean, fault, is_everything_tried
):
    for call in itertools.count(1) if is_everything_tried else SOME_CALLS[fault]:
        tenant = world.tenant()
        ended, is_hit = give_up_at(world, tenant, call, fault, clean.logdir)
        if not is_hit:
            break
        assert ended.code == 75, ended.err
        go_on = ("--experiment", ended.experiment_id) if "/experiment/" in ended.out else ()
        if go_on and fault != "unanswered":
            assert tenant.stored(ended.experiment_id)["streams"] != clean.stored["streams"]
        again = tenant.upload(clean.logdir, *go_on)
        assert again.code == 0, again.err
        clean.check_stored(tenant, again.experiment_id)
    assert call >= max(SOME_CALLS[fault])
