"""What an upload's exit code says is so: 0 all is there, 1 something was skipped, 75 later, and
later it is there.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from support import event_files
from support.fault_env import clean_upload, counts

AWAY_FOR_GOOD = 10_000
SOME_CALLS = {"lost": (1, 2, 4, 9), "unanswered": (4, 9), "503": (3,)}
SOON = ("--retry-timeout", 0.3)


def away_from(call, fault):
    """The server is there until this call."""
    return dict.fromkeys(range(call, AWAY_FOR_GOOD), fault)


def give_up_at(world, person, call, fault, logdir):
    """An upload that soon gives up a server that answers no more."""
    world.disarm()
    world.http.arm(away_from(call, fault))
    ended = person.upload(logdir, *SOON)
    is_hit = bool(world.http.hits)
    world.disarm()
    return ended, is_hit


@pytest.mark.parametrize("fault", ["lost", "unanswered", "503"])
def test_server_that_goes_away_is_75_and_rest_can_be_sent_later(
    world, clean, fault, is_everything_tried
):
    for call in itertools.count(1) if is_everything_tried else SOME_CALLS[fault]:
        person = world.person()
        ended, is_hit = give_up_at(world, person, call, fault, clean.logdir)
        if not is_hit:
            break
        assert ended.code == 75, ended.err
        go_on = ("--experiment", ended.experiment_id) if "/experiment/" in ended.out else ()
        if go_on and fault != "unanswered":
            assert person.stored(ended.experiment_id)["streams"] != clean.stored["streams"]
        again = person.upload(clean.logdir, *go_on)
        assert again.code == 0, again.err
        clean.check_stored(person, again.experiment_id)
    assert call >= max(SOME_CALLS[fault])


@pytest.fixture(scope="module")
def spoiled(world, clean, tmp_path_factory):
    """The complete logdir with one payload that fails its checksum, uploaded without faults."""
    logdir = Path(shutil.copytree(clean.logdir, tmp_path_factory.mktemp("spoiled") / "logdir"))
    event_files.spoil_payload(next(logdir.glob("c/*tfevents*")), 100, 20)
    return clean_upload(world, logdir)


@pytest.mark.parametrize("fault", ["lost", "half answered"])
def test_verify_counts_skipped_once_and_exits_1(world, spoiled, fault):
    person = world.person()
    world.disarm()
    world.http.arm(dict.fromkeys(range(2, 100, 2), fault))
    ended = person.upload(spoiled.logdir)
    assert ended.code == 1, ended.err
    assert sum(ended.done["skipped"].values()) == 1
    assert ended.done["skipped"] == spoiled.done["skipped"]
    spoiled.check_stored(person, ended.experiment_id)
    again = person.upload(spoiled.logdir, "--experiment", ended.experiment_id)
    assert (again.code, again.done["skipped"]) == (1, spoiled.done["skipped"])
    spoiled.check_stored(person, ended.experiment_id)


def test_upload_that_was_complete_sends_nothing_and_is_0(world, clean, person):
    first = person.upload(clean.logdir)
    world.disarm()
    again = person.upload(clean.logdir, "--experiment", first.experiment_id)
    assert [
        again.code,
        *(counts(again.done)[name] for name in ("scalars", "tensors", "blobs", "bytes")),
    ] == [0] * 5
    assert not [
        call
        for call in world.http.calls
        if call[0] in {"PUT", "PATCH"} or call[1].endswith("/batches")
    ]
    clean.check_stored(person, first.experiment_id)
