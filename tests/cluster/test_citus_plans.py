"""Routes and calls on a cluster: each is one task, on one node, or documented."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack, aclosing

import pytest
from sqlalchemy import text

from support.api_routes import DOOMED, GONE_AFTERWARDS, NAMES, TABLE
from support.batches import ApiClient, images, packed_scalars, scalars, segment, stream, texts
from support.grpc_calls import call_server
from support.katib_client import katib_client
from support.page_forms import new_reader
from support.page_routes import TABLE as PAGES
from support.people import new_member, new_personal_token
from support.plans import explained_statements
from support.read_routes import SHOWN, api_reads, fill, page_reads
from support.share_links import make_link, target_of
from support.tail_readers import events_of, following, reader_of
from tbservice import limits
from tbservice.auth import deletion, workspaces
from tbservice.experiments.eraser import erase_due
from tbservice.handlers.pool import HandlerPool
from tbservice.katib.katib_pb2 import Experiment, GetSuggestionsRequest
from tbservice.katib.methods import KatibMethods
from tbservice.types.people import Role

pytestmark = pytest.mark.cluster

SEVERAL = {
    "compaction of old work": "SELECT data_at, experiment_id FROM experiments WHERE workspace_id",
    "erasing": "SELECT workspace_id, experiment_id, deleted_at IS NULL AND snapshot_of",
    "experiments of a deleted person": "is_listed FROM experiments WHERE created_by",
    "experiments of a deleted workspace": "AND (snapshot_of IS NULL OR",
    "erasing series": "SELECT DISTINCT workspace_id, experiment_id FROM erased_series",
    "request keys": "WHERE workspace_id = %(workspace_id)s AND request_key =",
    "new token": "WITH t AS ( INSERT INTO tokens",
    "words of an experiment": "INSERT INTO experiment_words",
    "rows of blobs": "INSERT INTO blobs ",
    "deleted experiments": "AND deleted_at IS NOT NULL AND snapshot_of IS NULL",
    "lists": "AND e.is_listed",
    "archived experiments": "NOT e.is_listed",
    "uploads by status": "FROM uploads WHERE workspace_id",
    "stars of a person": "FROM experiment_stars WHERE workspace_id",
    "unfinished uploads": "FROM blob_uploads WHERE touched_at",
    "copies, and links of an experiment": "snapshot_of =",
    "links of a workspace": "JOIN tokens AS t ON t.experiment_id = e.experiment_id",
    "freezing": "SELECT %(snapshot)s",
    "trials of Katib by name": "SELECT t.experiment_id FROM katib_trials AS t JOIN experiments",
    "trials of Katib of other experiments": "SELECT name_digest, experiment_id FROM katib_trials",
    "usage of a workspace": "SELECT coalesce(e.snapshot_of, e.experiment_id) AS shown",
    "what a workspace stores": "FROM usage_counters AS u WHERE u.workspace_id",
    "blobs that no counter has": "FROM usage_counters WHERE workspace_id",
    "reservations that have ended": "DELETE FROM usage_counters WHERE workspace_id",
}
"""Statements of several tasks, by what they are for; each is in docs/citus.md."""

RUN = "shown/a"


class World:
    """An owner, with an experiment that has everything, and the plans of all statements."""

    def __init__(self, client, database, settings, workspace_id, plans):
        self.client = client
        self.database = database
        self.settings = settings
        self.workspace_id = workspace_id
        self.plans = plans
        self.owner = new_member(database, workspace_id, Role.OWNER)
        self.secret = new_personal_token(database, workspace_id, self.owner, *Role.OWNER.scopes)
        self.api = ApiClient(client, self.secret)
        self.experiment = self.new_experiment()

    def new_experiment(self):
        """Create an experiment with everything in it."""
        experiment = self.api.new_experiment(name="plans")
        fill(self.api, experiment)
        return experiment

    def ask(self, api, method, path, options):
        """Send a request, which is answered, with an error or without."""
        headers = api.headers | options.get("headers", {})
        answer = self.client.request(method, path, **{**options, "headers": headers})
        assert answer.status_code < 500, (method, path, answer.text)
        return answer


@pytest.fixture(scope="module", autouse=True)
def plans():
    """The plans of all statements of the module's application, and of its tests."""
    with explained_statements() as plans:
        yield plans


@pytest.fixture
def world(plans, client, database, settings, workspace_id):
    """A World; afterwards, all that was executed in it is found to be of one task, or known."""
    plans.tasks.clear()
    yield World(client, database, settings, workspace_id, plans)
    several = {
        statement: plan
        for statement, plan in plans.of_several_tasks().items()
        if not any(known in statement for known in SEVERAL.values())
    }
    assert not several, "\n\n".join(f"{key}\n{plan}" for key, plan in several.items())


def test_flushes_and_bulk_are_one_task_each(world):
    api, experiment = world.api, world.experiment
    for turn in range(3):
        start, steps = turn * 100, range(turn * 2000, turn * 2000 + 2000)
        api.write(
            experiment,
            segment(stream(), start, start + 100, *[scalars(f"s{n}", [turn]) for n in range(3)]),
            segment(stream("second"), start, start + 100, packed_scalars("packed", [*steps])),
        )
    api.write(experiment, segment(stream(), 300, 400, texts("t", [0, 1], [b"a", b"b"])))
    api.write(experiment, segment(stream(), 400, 500, images("i", [0], [[b"png"]])))
    assert len(world.plans.tasks) > 20


def test_reads_of_api_and_pages_are_one_task_each(world):
    link = make_link(world.api, world.experiment, runs="shown.*", tags="shown.*", anonymous=True)
    frozen = make_link(world.api, world.experiment, frozen=True)
    readers = (
        (world.api, world.experiment),
        (ApiClient(world.client, link["token"]), world.experiment),
        (ApiClient(world.client, frozen["token"]), target_of(frozen)),
    )
    for api, experiment in readers:
        for read in api_reads(experiment, RUN, f"{SHOWN}/loss"):
            world.ask(api, *read)
        for read in page_reads(experiment, RUN, f"{SHOWN}/loss", compared=api is world.api):
            world.ask(api, *read)
    for method, path, *_, options in TABLE:
        if method == "GET":
            world.ask(world.api, method, f"/api/v1{address(world, path)}", options)
    assert len(world.plans.tasks) > 100


def address(world, path):
    """Return the path of a route that is in the table of all."""
    return path.format(
        experiment_id=world.experiment,
        workspace_id=world.workspace_id,
        user_id=new_member(world.database, world.workspace_id, Role.VIEWER).user_id,
        blob_key="none",
        **NAMES,
    )


def test_changes_by_api_and_pages_are_one_task_each(world):
    for method, path, *_, options in sorted(
        TABLE, key=lambda row: row[:2] in DOOMED or row[:2] in GONE_AFTERWARDS
    ):
        if method != "GET" and path not in ENDS:
            world.ask(world.api, method, f"/api/v1{address(world, path)}", options)
    browser = new_reader(world.client, world.database, world.owner)
    names = {"ID": str(world.workspace_id), "EXPERIMENT": world.experiment}
    for path, fields, _ in PAGES:
        sent = {name: names.get(value, value) for name, value in (fields or {}).items()}
        for name, value in names.items():
            path = path.replace(name, value)  # noqa: PLW2901 - of each in turn
        answer = browser.get(path) if fields is None else browser.post(path, sent)
        assert answer.status_code < 500, (path, answer.text)
    assert len(world.plans.tasks) > 100


ENDS = ("/experiments/{experiment_id}", "/me/token")
"""Routes whose DELETE ends what the others need; `test_deletions_and_erasing` has the first."""


def test_deletions_and_erasing_are_one_task_each(world):
    api, path = world.api, f"/api/v1/experiments/{world.experiment}"
    make_link(api, world.experiment, frozen=True)
    steps = (
        ("DELETE", "/series", {"run": RUN, "tag": f"{SHOWN}/loss"}, 204),
        ("DELETE", "/runs", {"run": RUN}, 204),
        ("DELETE", "", {}, 204),
        ("POST", "/restore", {}, 200),
        ("DELETE", "", {"final": True}, 204),
    )
    for method, more, params, status in steps:
        answer = world.ask(api, method, f"{path}{more}", {"params": params})
        assert answer.status_code == status, (more, answer.text)
        erase_until_done(world)
    assert world.ask(api, "POST", f"{path}/restore", {}).status_code == 404


def test_deleting_and_erasing_workspace_and_person_stay_known(world):
    with world.database.transaction() as db:
        name = workspaces.get_name(db, world.workspace_id)
    person = new_member(world.database, world.workspace_id, Role.EDITOR)
    with world.database.transaction() as db:
        deletion.delete_person(db, person.user_id)
    address = f"/api/v1/workspaces/{world.workspace_id}"
    assert world.ask(world.api, "DELETE", address, {"params": {"name": name}}).status_code == 204
    with world.database.transaction() as db:
        db.execute(text("UPDATE suspensions SET erase_at = now() - interval '1 s'"))
    for _ in range(3):
        erase_due(world.database, threading.Event())
    with world.database.transaction() as db:
        assert workspaces.list_deleted(db) == []
        assert deletion.list_deleted_people(db) == set()


def erase_until_done(world):
    """Erase all that is due."""
    while erase_due(world.database, threading.Event()):
        pass


def test_tails_are_one_task_each(world, monkeypatch):
    monkeypatch.setattr(limits, "LIVE_POLL_SECONDS", 0.02)

    async def read():
        reader = reader_of(world.database, followers, world.experiment, world.secret)
        async with aclosing(events_of(reader)) as events:
            first = await anext(events)
            await asyncio.to_thread(
                world.api.write, world.experiment, segment(stream("new"), 0, 9, scalars("x", [1]))
            )
            async for event in events:
                if event is not None and "new" in str(event):
                    break
            return first

    async def follow():
        nonlocal followers
        async with following(world.database) as followers:
            async with asyncio.timeout(60):
                return await read()

    followers = None
    assert asyncio.run(follow()) is not None


def test_calls_of_katib_are_one_task_each(world):
    processes = HandlerPool("tbservice.katib.suggestions.handler_jobs")
    methods = KatibMethods(world.client.app.state.ingest, processes)
    served = call_server(world.settings, world.database, more_handlers=methods.handlers)
    with ExitStack() as stack:
        stack.callback(processes.close)
        katib = katib_client(stack, stack.enter_context(served).port, world.secret)
        for trial in ("random-bcdf2456", "random-aaaa1111"):
            katib.report(trial, ("accuracy", 0.5), ("loss", 1.5))
            assert katib.logs(trial)
        experiment = Experiment(name="random")
        experiment.spec.algorithm.algorithm_name = "random"
        experiment.spec.objective.objective_metric_name = "accuracy"
        experiment.spec.parameter_specs.parameters.add(
            name="lr", parameter_type=1, feasible_space={"min": "0.01", "max": "0.1"}
        )
        request = GetSuggestionsRequest(experiment=experiment, current_request_number=1)
        request.trials.add(name="random-bcdf2456")
        assert katib.suggest(request).parameter_assignments
        katib.stop("random-bcdf2456")
        katib.delete("random-aaaa1111")
