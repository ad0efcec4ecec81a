"""No object that is referred to is deleted: all interleavings of a small model, with all crashes."""

from __future__ import annotations

import pytest

from support.sweep_model import Broken, Model, World, explore

SAME, EXPIRED = "two uploads of the same bytes", "an upload that counts as left behind"
SWEEPS, COPY, BACKUP = "two sweeps", "a frozen copy", "a backup"

SCENARIOS = {
    SAME: {
        "w1": "write_look",
        "w2": "write_look",
        "d1": "sweep_look",
        "old": "erase",
    },
    EXPIRED: {
        "w1": "write_look",
        "d1": "sweep_look",
        "time": "expire",
        "old": "erase",
    },
    SWEEPS: {"w1": "write_look", "d1": "sweep_look", "d2": "sweep_look", "old": "erase"},
    COPY: {"c": "copy_begin", "d1": "sweep_look", "d2": "sweep_look", "old": "erase"},
    BACKUP: {"b": "backup_begin", "w1": "write_look", "d1": "sweep_look", "old": "erase"},
}

LOST = World(objects=frozenset(), references=frozenset())
"""The bucket has lost the object of a blob that nothing refers to."""

GUARDS = {
    "a key is used once": EXPIRED,
    "only an upload with a row records its key": EXPIRED,
    "who refers to a blob holds its row": SWEEPS,
    "who holds a row takes its mark away": SWEEPS,
    "a frozen copy holds the rows of its blobs": COPY,
    "a mark waits for those who hold the row": SWEEPS,
    "references are read after the mark": SWEEPS,
    "no row is deleted while a backup runs": BACKUP,
    "only rows with the sweep's own mark": SWEEPS,
    "the object is deleted after the row": SWEEPS,
    "the bucket is listed before the tables are read": SAME,
    "uploads are read before rows": SAME,
    "a backup locks sweeps out before its snapshot": BACKUP,
}
"""Each guard of the protocol, and a scenario that loses an object without it."""


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_sweep_deletes_nothing_that_is_referred_to(scenario):
    model = Model()
    explored = explore(model, scenario)
    assert explored.states > 500
    after = {end for world in explored.ends for end in swept(model, world)}
    assert any(world.row is None for world in after)  # the model does delete
    for world in after:
        kept = {world.row[0]} if world.references else set()
        assert (world.objects, world.row is not None) == (kept, bool(kept))


def swept(model, world):
    """Return the ends of a sweep that nobody disturbs or kills, after uploads have expired."""
    world, local = model.expire(world, "time")[0], ("sweep_look",)
    while local != ("ended",):
        world, local = getattr(model, local[0])(world, "last", *local[1:])
    return [world]


def test_lost_object_is_replaced_beside_sweeps_and_other_repairs():
    writers = {"w1": "write_look", "w2": "write_look", "d1": "sweep_look"}
    ends = explore(Model(), writers, LOST).ends
    assert any({"w1", "w2"} == world.references for world in ends)


@pytest.mark.parametrize("guard", GUARDS)
def test_model_breaks_without_any_of_its_guards(guard):
    with pytest.raises(Broken):
        explore(Model(without=guard), SCENARIOS[GUARDS[guard]])
