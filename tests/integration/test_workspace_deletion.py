"""Deleted workspaces: closed at once, all back when restored, and erased with a receipt."""

from __future__ import annotations

import contextvars
import html
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from support import api_routes, page_routes
from support.batches import ApiClient, images, scalars, segment, stream
from support.breaking_database import erase_broken_at_each_step
from support.page_forms import PageReader
from support.people import new_member, new_personal_token, owner_of, race, sign_in
from support.servers import s3_client
from support.share_links import make_link, reader_of
from support.suspending import release, suspend
from support.uploading import wait_until
from tbservice import limits
from tbservice.audit.log import check_chains
from tbservice.auth import deletion, grants, invitations, members, people, tokens, workspaces
from tbservice.db import link_views
from tbservice.errors import Conflict, Forbidden, NotFound
from tbservice.experiments import share_links, snapshots
from tbservice.experiments.eraser import erase_due
from tbservice.integrity.sweeper import sweep_now
from tbservice.reading import full_scan
from tbservice.throttle import Progress
from tbservice.types.grants import AdminGrant, LinkView, Scope
from tbservice.types.people import Role
from tbservice.types.sampling import Selection
from tbservice.types.suspensions import Suspendable
from tbwire.points import DataClass


class World:
    """A workspace with two owners, an experiment with a blob, and a link to it."""

    def __init__(self, client, database, workspace_id, owner_token):
        self.client, self.database, self.workspace_id = client, database, workspace_id
        self.machine = ApiClient(client, owner_token)
        self.owner, self.colleague = (new_member(database, workspace_id) for _ in range(2))
        secret = new_personal_token(database, workspace_id, self.owner, Scope.ADMIN)
        self.api = ApiClient(client, secret)
        self.page, self.colleagues_page = (
            PageReader(client, sign_in(database, each)) for each in (self.owner, self.colleague)
        )
        self.experiment = self.api.new_experiment(name="doomed trial")
        self.api.write(
            self.experiment,
            segment(stream(), 0, 9, scalars("loss", range(9)), images("cat", [0], [[b"png" * 99]])),
        )
        self.reader = reader_of(client, make_link(self.api, self.experiment))
        self.home = f"/workspace/{workspace_id}"
        self.name = f"Doomed & {workspace_id}"
        with database.transaction(workspace_id) as db:
            workspaces.rename(db, owner_of(workspace_id), self.name)

    def delete(self):
        path = f"/workspaces/{self.workspace_id}"
        return self.api.request("DELETE", path, params={"name": self.name})

    def restore(self, person):
        with self.database.transaction(self.workspace_id) as db:
            user_id = None if person is None else person.user_id
            deletion.restore_workspace(db, user_id, self.workspace_id)

    def statuses(self):
        """Return the statuses that members, a machine, a link and an upload get."""
        batch = segment(stream("more"), 0, 1, scalars("more", [1]))
        return [
            self.page.get(self.home).status_code,
            self.colleagues_page.get(f"/experiment/{self.experiment}/about").status_code,
            *(
                api.request("GET", f"/experiments/{self.experiment}/scalars/data").status_code
                for api in (self.api, self.machine, self.reader)
            ),
            self.machine.send(self.experiment, batch).status_code,
        ]

    def pass_days(self, owner_url):
        """Let the days pass in which the workspace can be restored."""
        with psycopg.connect(owner_url) as db:
            db.execute(
                "UPDATE suspensions SET erase_at = now() - interval '1 s' WHERE subject = %s",
                (f"workspace/{self.workspace_id}",),
            )

    def erase(self, stopping=None):
        """One look of the eraser."""
        call = self.database, stopping or threading.Event()
        return contextvars.Context().run(erase_due, *call)


@pytest.fixture
def world(client, database, workspace_id, owner_token):
    return World(client, database, workspace_id, owner_token)


@pytest.fixture
def rows(owner_url, workspace_id):
    """Returns the tables with rows of the workspace, and how many."""

    def count():
        counts = {}
        with psycopg.connect(owner_url) as db:
            listed = db.execute("""
                SELECT table_name FROM information_schema.columns
                JOIN information_schema.tables USING (table_schema, table_name)
                WHERE column_name = 'workspace_id' AND table_schema = 'public'
                    AND table_type = 'BASE TABLE'
            """)
            for (table,) in listed.fetchall():
                db.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
                statement = f"SELECT count(*) FROM {table} WHERE workspace_id = %s"  # noqa: S608 - names of our tables
                counts[table] = db.execute(statement, (workspace_id,)).fetchone()[0]
            db.rollback()
        return {table: count for table, count in counts.items() if count}

    return count


def test_every_route_says_that_there_is_no_such_workspace(world):
    assert world.statuses() == [200, 200, 200, 200, 200, 200]
    assert world.delete().status_code == 204
    for api in (world.api, world.machine):
        for method, path, need, _, options in api_routes.TABLE:
            address = path.format(
                experiment_id=world.experiment,
                workspace_id=world.workspace_id,
                user_id=world.colleague.user_id,
                blob_key="x",
                **api_routes.NAMES,
            )
            answer = api.request(method, address, **options)
            assert answer.status_code == 404, (method, path, need, answer.text)
    for named, form, statuses in page_routes.TABLE:
        is_of_it = "ID" in named or "EXPERIMENT" in named
        if is_of_it and form is None and statuses[4] == 200:
            path = named.replace("EXPERIMENT", world.experiment)
            path = path.replace("ID", str(world.workspace_id))
            # As to a stranger: 404, or 401 where a token may be given in place of a sign-in.
            expected = {200, 404} if "?workspace" in path else {statuses[1]}
            assert world.page.get(path).status_code in expected, path
    assert world.statuses() == [404] * 6
    digest = grants.parse_token_digest(world.api.headers["Authorization"].split()[1])
    with world.database.transaction() as db:
        assert grants.find_caller(db, digest) is None
    assert html.escape(world.name) not in world.page.get("/").text


def test_public_page_of_a_deleted_workspace_looks_like_none(world):
    public = {"visibility": "link"}
    world.api.request("PATCH", f"/experiments/{world.experiment}", json=public).raise_for_status()

    def ask(experiment):
        answer = world.client.get(f"/api/v1/experiments/{experiment}")
        return answer.status_code, answer.json().get("detail")

    assert ask(world.experiment)[0] == 200
    world.delete()
    assert ask(world.experiment) == ask("0" * 22)


def test_restored_workspace_has_all_that_it_had(world):
    before = world.api.get(world.experiment, "scalars/data")
    world.delete()
    assert html.escape(world.name) in world.colleagues_page.get("/me").text
    form = {"workspace_id": str(world.workspace_id)}
    stranger = new_member(world.database, world.workspace_id, Role.EDITOR)
    stranger = PageReader(world.client, sign_in(world.database, stranger))
    assert stranger.post("/me/workspace/restore", form).status_code == 404
    assert html.escape(world.name) not in stranger.get("/me").text
    assert world.colleagues_page.post("/me/workspace/restore", form).status_code == 303
    assert world.statuses() == [200] * 6
    assert (
        world.api.get(world.experiment, "scalars/data")["train"]["loss"] == before["train"]["loss"]
    )
    assert world.page.post("/me/workspace/restore", form).status_code == 404


def test_workspace_is_deleted_by_its_name_and_a_person(world):
    path = f"/workspaces/{world.workspace_id}"
    assert world.api.request("DELETE", path).status_code == 422
    assert world.api.request("DELETE", path, params={"name": "other"}).status_code == 422
    machine = world.machine.request("DELETE", path, params={"name": world.name})
    assert machine.status_code == 403
    assert world.page.post(f"{world.home}/delete", {"name": "other"}).status_code == 422
    assert world.statuses() == [200] * 6
    shown = {"name": f" {world.name} "}
    assert world.page.post(f"{world.home}/delete", shown).headers["location"].startswith("/me?")
    assert world.page.post(f"{world.home}/delete", shown).status_code == 404


def test_two_deletions_and_an_undo_at_once(world):
    grants = [owner_of(world.workspace_id, each) for each in (world.owner, world.colleague)]

    def delete(grant):
        return lambda db: deletion.delete_workspace(db, grant, world.name)

    second = race(world.database, world.workspace_id, *map(delete, grants))
    assert isinstance(second, NotFound)
    user_id = world.colleague.user_id

    def restore(db):
        deletion.restore_workspace(db, user_id, world.workspace_id)

    assert isinstance(race(world.database, world.workspace_id, restore, restore), NotFound)
    assert world.statuses() == [200] * 6


def test_undo_and_erasing_wait_for_each_other(world, owner_url):
    world.delete()
    world.pass_days(owner_url)
    with pytest.raises(Conflict, match="is being erased"):
        world.restore(world.owner)

    with psycopg.connect(owner_url) as db:  # due within the transaction that restores it
        db.execute(
            "UPDATE suspensions SET erase_at = now() + interval '1 h' WHERE subject = %s",
            (f"workspace/{world.workspace_id}",),
        )

    def look(db):
        return deletion.lock_due(db, Suspendable.WORKSPACE, str(world.workspace_id))

    def restore(db):
        deletion.restore_workspace(db, world.owner.user_id, world.workspace_id)

    assert race(world.database, world.workspace_id, restore, look) is None
    world.erase()
    assert world.statuses() == [200] * 6


def test_administrators_deletion_is_not_for_owners_to_undo(world, run_tbservice):
    named = ("workspace", "delete", world.workspace_id)
    assert run_tbservice(*named, "other")[0] != 0
    world.delete()
    assert run_tbservice(*named, world.name)[0] == 0
    with pytest.raises(Forbidden):
        world.restore(world.owner)
    assert html.escape(world.name) not in world.page.get("/me").text
    listed = run_tbservice("workspace", "list", "--deleted")[1]
    assert str(world.workspace_id) in [line.split("\t")[0] for line in listed]
    shown = [line.split("\t")[0] for line in run_tbservice("workspace", "list")[1]]
    assert str(world.workspace_id) not in shown
    assert run_tbservice("token", "create", "--workspace", world.workspace_id)[0] != 0
    assert run_tbservice("workspace", "restore", world.workspace_id)[0] == 0
    assert world.statuses() == [200] * 6


def test_listed_name_neither_controls_terminal_nor_begins_line(world, run_tbservice):
    name = "a\x1b[2J\tb\n9\tc\u202e"
    change = {"name": name}
    address = f"/workspaces/{world.workspace_id}"
    assert world.machine.request("PATCH", address, json=change).json()["name"] == name
    shown = r"a\x1b[2J\tb\n9\tc\u202e"
    assert f"{world.workspace_id}\t{shown}" in run_tbservice("workspace", "list")[1]


def test_suspension_outlasts_deletion_and_undo(world):
    suspend(world.database, "workspace", world.workspace_id)
    assert world.delete().status_code == 451
    with world.database.transaction() as db:
        deletion.delete_any_workspace(db, world.workspace_id, world.name)
    assert world.statuses() == [404] * 6
    world.restore(None)
    assert world.statuses()[:2] == [451, 451]
    with world.database.transaction() as db:
        deletion.delete_any_workspace(db, world.workspace_id, world.name)
    release(world.database, "workspace", world.workspace_id)
    assert world.statuses() == [404] * 6


def test_nobody_joins_or_gets_a_token_of_a_deleted_workspace(world):
    grant = owner_of(world.workspace_id, world.owner)
    with world.database.transaction(world.workspace_id) as db:
        invited = invitations.invite(db, grant, Role.OWNER, "", None)[1]
    world.delete()
    with world.database.transaction() as db, pytest.raises(NotFound):
        invitations.accept(db, invited, world.owner)
    with world.database.transaction() as db, pytest.raises(NotFound):
        people.add_member(db, world.workspace_id, world.owner.user_id, Role.OWNER)
    with world.database.transaction(world.workspace_id) as db:
        secret = tokens.create_personal_token(
            db, world.owner.user_id, world.workspace_id, [Scope.READ]
        )[1]
    assert ApiClient(world.client, secret).request("GET", "/me").status_code == 404
    with world.database.transaction(world.workspace_id) as db, pytest.raises(NotFound):
        members.remove_member(db, grant, world.colleague.user_id)


def test_deleted_workspaces_count_until_they_are_erased(world):
    user_id = world.owner.user_id
    with world.database.transaction() as db:
        for number in range(4):
            workspaces.create_for_person(db, user_id, f"w{number}", is_permitted=True)
    world.delete()
    with world.database.transaction() as db, pytest.raises(Conflict, match="can create no more"):
        workspaces.create_for_person(db, user_id, "one more", is_permitted=True)


def test_eraser_broken_at_each_step_erases_once(world, rows, owner_url, settings, run_tbservice):
    with world.database.transaction() as db:
        deletion.delete_person(db, world.colleague.user_id)
    world.delete()
    with psycopg.connect(owner_url) as db:
        db.execute(
            "UPDATE suspensions SET erase_at = now() - interval '1 s' WHERE subject = ANY (%s)",
            ([f"workspace/{world.workspace_id}", f"person/{world.colleague.user_id}"],),
        )
    assert erase_broken_at_each_step(settings.database_url.get_secret_value()) >= 8
    assert "members" not in rows()
    place = f"{world.workspace_id}"
    own = [json.loads(line) for line in run_tbservice("receipts", "--workspace", place)[1]]
    assert [each["erased"]["act"] for each in own] == ["workspace.erase", "experiment.erase"]
    people = [json.loads(line) for line in run_tbservice("receipts")[1]]
    assert [each["person_id"] for each in people].count(world.colleague.user_id) == 1


def test_long_read_ends_when_the_workspace_is_deleted(world, monkeypatch):
    monkeypatch.setattr(limits, "SCAN_CHUNK_POINTS", 4)
    secret = world.api.headers["Authorization"].split()[1]
    with world.database.transaction() as db:
        grant = grants.grant_read(db, world.experiment, secret)
    chunks = full_scan.stream_all(world.database, grant, Selection(), DataClass.SCALAR)
    next(chunks)
    world.delete()
    with pytest.raises(NotFound):
        list(chunks)


def test_frozen_copy_that_is_made_goes_with_its_workspace(
    world, servers, database_url, owner_url, rows
):
    grant = AdminGrant(world.workspace_id, world.experiment)
    door = world.client.app.state.ingest.door
    with ThreadPoolExecutor(1) as threads:
        with share_links.begin_link(door, grant, is_frozen=True) as writer:
            link_views.show(writer.db, world.experiment, LinkView("", None, None))
            snapshots.create_snapshot(writer, grant, None)
            world.delete()
            world.pass_days(owner_url)
            erasing = threads.submit(world.erase)
            wait_until(lambda: servers.count_waiting(database_url))
        erasing.result()
    for _ in range(3):
        world.erase()
    assert not rows().keys() & {"experiments", "time_series", "scalar_tail", "blob_points"}


def test_erased_workspace_leaves_what_its_receipt_says(
    world, rows, owner_url, settings, run_tbservice
):
    world.page.post("/experiments/star", {"experiment": world.experiment, "workspace": "1"})
    view = {"name": "best", "page": "runs", "query": ""}
    views = f"/workspaces/{world.workspace_id}/views"
    assert world.api.request("POST", views, json=view).status_code == 201
    kept = world.api.new_experiment(name="deleted before")
    world.api.request("DELETE", f"/experiments/{kept}")
    world.delete()
    world.erase()
    assert rows()["experiments"] == 2
    world.pass_days(owner_url)
    stopping = threading.Event()
    stopping.set()
    world.erase(stopping)  # killed after its first step
    while rows().get("members"):
        world.erase()
    assert rows().keys() == {
        *("workspaces", "blobs", "usage_counters", "audit_records", "audit_chains")
    }
    database, objects = world.database, world.client.app.state.objects
    contextvars.Context().run(sweep_now, database, objects, 0.0, Progress(None), deletes=True)
    left = rows()
    assert left.keys() - {"object_sweeps"} == {
        *("workspaces", "usage_counters", "audit_records", "audit_chains")
    }
    with closing(s3_client(settings)) as plain:
        prefix = f"{world.workspace_id}/"
        assert plain.list_objects_v2(Bucket=settings.s3_bucket, Prefix=prefix)["KeyCount"] == 0

    file = world.page.get(f"/me/receipt/{world.workspace_id}")
    own, *others = json.loads(file.text)
    assert (own["workspace_id"], own["name"]) == (str(world.workspace_id), world.name)
    assert own["members"] == 2
    assert own["deleted_at"] < own["erased_at"] < own["objects_gone_at"]
    assert {each["experiment_id"] for each in others} == {world.experiment, kept}
    assert html.escape(world.name) in world.page.get("/me").text
    assert world.colleagues_page.get(f"/me/receipt/{world.workspace_id}").status_code == 404
    printed = run_tbservice("receipts", "--workspace", world.workspace_id)[1]
    assert [json.loads(line) for line in printed] == [own, *others]
    assert list(check_chains(database, [world.workspace_id])) == []
    assert world.statuses() == [404, 404, 401, 401, 401, 401]
