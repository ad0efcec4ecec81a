"""Observers of the door: all ways of storing points tell them, in the transaction and after it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import text

from support.batches import images, scalars, segment, stream
from support.katib import KatibClient, log
from support.share_links import make_link
from tbservice.errors import Conflict
from tbservice.ingest.observers import PointObserver
from tbservice.types.grants import KatibGrant

_RUNS = text("SELECT count(*) FROM runs WHERE experiment_id = :id")


class Observer(PointObserver):
    """Notes what it is told; raises `error`, if that is set, in the transaction."""

    error = None

    def __init__(self):
        self.before, self.after = [], []

    def before_commit(self, db, stored):
        seen = db.execute(_RUNS, {"id": stored.grant.experiment_id}).scalar_one()
        self.before.append((stored, seen))
        if self.error is not None:
            raise self.error

    def after_commit(self, stored):
        self.after.append(stored)


@pytest.fixture
def observer(client):
    """An observer of the application, beside its own."""
    observer, ingest = Observer(), client.app.state.ingest
    door = replace(ingest.door, observers=[*ingest.door.observers, observer])
    client.app.state.ingest = replace(ingest, door=door)
    yield observer
    client.app.state.ingest = ingest


@pytest.fixture
def katib(client, workspace_id, experiment, observer):
    """Calls of Katib that the observer is told of."""
    assert observer in client.app.state.ingest.door.observers
    grant = KatibGrant(workspace_id, experiment, may_read=True, may_delete=True)
    return KatibClient(client.app.state.ingest, grant)


def send_batch(api, experiment, _katib):
    api.write(
        experiment, segment(stream("new"), 0, 9, scalars("a", range(3)), images("b", [1], [[b"x"]]))
    )


def set_session(api, experiment, _katib):
    path = f"/experiments/{experiment}/runs/hparams"
    answer = api.request("PUT", path, params={"run": "new"}, json={"hparams": {"lr": 1}})
    answer.raise_for_status()


def report(_api, _experiment, katib):
    katib.report("new", log("loss", 0.5), log("loss", 0.4))


def freeze(api, experiment, _katib):
    make_link(api, experiment, frozen=True)


WAYS = {send_batch: 4, set_session: 1, report: 4, freeze: 2}
"""Ways of storing points, and how many each stores; a report also sets start and end of the session."""


@pytest.fixture
def stored_before(api, experiment):
    """Two points, which a copy has, too."""
    api.write(experiment, segment(stream("old"), 0, 9, scalars("a", [1, 2])))


@pytest.mark.usefixtures("stored_before")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_observer_sees_points_in_transaction_and_after(api, experiment, katib, observer, way):
    observer.before.clear()
    observer.after.clear()
    way(api, experiment, katib)
    (stored, seen_runs), *others = observer.before
    assert others == []
    assert observer.after == [stored]
    assert stored.size.points == WAYS[way]
    is_copy = way is freeze
    assert (stored.grant.experiment_id != experiment) == is_copy
    assert seen_runs == (1 if is_copy else 2)


@pytest.mark.usefixtures("stored_before")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_observer_error_stores_nothing(
    api, experiment, katib, observer, database, workspace_id, way
):
    observer.after.clear()
    observer.error = Conflict("the quota is used up")
    with pytest.raises(Exception, match=r"409|quota"):
        way(api, experiment, katib)
    assert observer.after == []
    assert api.get(experiment, "names") == {"old": ["a"]}
    with database.snapshot(workspace_id) as db:
        copies = text("SELECT count(*) FROM experiments WHERE snapshot_of = :id")
        assert db.execute(copies, {"id": experiment}).scalar_one() == 0
