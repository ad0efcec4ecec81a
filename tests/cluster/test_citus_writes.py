"""Batches are written on a cluster, where their statements have other forms than on one server."""

import pytest
from sqlalchemy import text

from support.batches import ApiClient, scalars, segment, stream
from tbservice.auth import grants
from tbservice.experiments import lifecycle
from tbservice.series.tables import runs_tags
from tbservice.types.grants import AppendGrant, WorkspaceGrant

pytestmark = pytest.mark.cluster

SPECIAL = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1 / 3]


@pytest.fixture
def api(client, owner_token):
    return ApiClient(client, owner_token)


@pytest.fixture
def experiment(api):
    return api.new_experiment(name="writes")


def write(api, experiment, start, by_run):
    """Send a segment of each run, with these values by tag at one step."""
    segments = [
        segment(
            stream(run),
            start,
            start + 1,
            *[scalars(tag, [start], [value]) for tag, value in values.items()],
        )
        for run, values in by_run.items()
    ]
    api.write(experiment, *segments)


def read(api, experiment):
    """Return the values by run and tag, as text: NaN is no number that equals itself."""
    data = api.get(experiment, "scalars/data", downsample=1_000)
    return {
        (run, tag): [repr(float(value)) for value in points["values"]]
        for run, tags in data.items()
        for tag, points in tags.items()
    }


def test_series_of_many_runs_get_their_own_values(api, experiment):
    # As many runs with tags of their own as combine to more than twice the series, and two that
    # share all of theirs.
    own = {f"run {n}": {f"tag {n}": float(n)} for n in range(9)}
    shared = {run: {f"s{n}": n + i / 2 for n in range(5)} for i, run in enumerate("ab")}
    for start in range(4):
        write(api, experiment, start, own)
        write(api, experiment, start, shared)

    points = read(api, experiment)
    assert points == {
        (run, tag): [repr(value)] * 4
        for run, values in (own | shared).items()
        for tag, value in values.items()
    }


def test_special_values_are_kept_as_they_are(api, experiment, database, workspace_id):
    for start in range(3):
        values = SPECIAL[start:] + SPECIAL[:start]
        write(api, experiment, start, {"train": {f"s{n}": v for n, v in enumerate(values)}})
        write(api, experiment, start, {"alike": dict.fromkeys(["x", "y"], SPECIAL[start + 1])})
        write(api, experiment, start, {"zeros": {"x": 0.0, "y": -0.0}})

    sent = {("train", f"s{n}"): [(SPECIAL * 2)[start + n] for start in range(3)] for n in range(6)}
    sent |= dict.fromkeys([("alike", "x"), ("alike", "y")], SPECIAL[1:4])
    sent |= {("zeros", "x"): [0.0] * 3, ("zeros", "y"): [-0.0] * 3}
    points = read(api, experiment)
    assert points == {key: list(map(repr, values)) for key, values in sent.items()}
    with database.transaction(workspace_id) as db:
        last = db.execute(
            text("SELECT last_value FROM time_series WHERE experiment_id = :id"), {"id": experiment}
        )
        assert sorted(map(repr, last.scalars())) == sorted(repr(v[-1]) for v in sent.values())


def test_transaction_that_is_open_holds_up_no_numbering(database, api, experiment, owner_token):
    with database.without_transaction(experiment) as db:
        grant = grants.grant_append(db, experiment, owner_token)
    with database.transaction(grant) as db:
        runs_tags.resolve_runs(db, grant, ["first", "second"])
        write(api, experiment, 0, {"third": {"loss": 1.0}})
    write(api, experiment, 0, {"fourth": {"loss": 1.0}})
    runs = [run["run"] for run in api.get(experiment, "runs")["runs"]]
    assert runs == ["first", "second", "third", "fourth"]


def test_runs_are_created_in_transaction_of_their_experiment(database, workspace_id):
    with database.transaction(workspace_id) as db:
        made = lifecycle.create_experiment(db, WorkspaceGrant(workspace_id))
        grant = AppendGrant(workspace_id, made.experiment_id)
        for names in ("a", "b"), ("b", "c"):
            runs_tags.resolve_runs(db, grant, names)
        listed = runs_tags.list_runs(db, made.experiment_id)
    assert [run.name for run in listed.values()] == ["a", "b", "c"]


def test_sessions_keep_no_plan(database):
    # Citus 14.0.1 would never find it again, and lose the memory.
    statement = text("SELECT version FROM experiments WHERE experiment_id = :id")
    with database.transaction() as db:
        for _ in range(30):
            db.execute(statement, {"id": "none"})
        kept = db.execute(text("SELECT sum(generic_plans) FROM pg_prepared_statements")).scalar()
        prepared = db.execute(text("SELECT sum(custom_plans) FROM pg_prepared_statements")).scalar()
    assert (kept, prepared > 20) == (0, True)
