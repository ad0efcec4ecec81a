"""Suspended workspaces, people, links and experiments: who is kept out of what, and until when."""

from __future__ import annotations

import html
import json
from contextlib import closing

import grpc
import pytest

from support import api_routes, page_routes
from support.batches import ApiClient, images, scalars, segment, stream
from support.page_forms import PageReader, new_link
from support.people import new_member, new_personal_token, owner_of, sign_in
from support.share_links import make_link, reader_of, target_of
from support.suspending import REASON, release, suspend
from tbservice import limits
from tbservice.api.grpc.calls import status_of
from tbservice.auth import grants, invitations, people
from tbservice.db.database import Database
from tbservice.errors import Conflict, Forbidden, Invalid, NotFound, Suspended
from tbservice.reading import full_scan
from tbservice.types.grants import Scope
from tbservice.types.people import Role
from tbservice.types.sampling import Selection
from tbwire.points import DataClass


class World:
    """A workspace with an owner, a colleague and an experiment, and their tokens and browsers."""

    def __init__(self, client, database, workspace_id, owner_token):
        self.client, self.database, self.workspace_id = client, database, workspace_id
        self.machine = ApiClient(client, owner_token)
        self.owner, self.colleague = (new_member(database, workspace_id) for _ in range(2))
        self.api, self.colleagues_api = (
            ApiClient(client, new_personal_token(database, workspace_id, each, Scope.ADMIN))
            for each in (self.owner, self.colleague)
        )
        self.page, self.colleagues_page = (
            PageReader(client, sign_in(database, each)) for each in (self.owner, self.colleague)
        )
        self.experiment = self.api.new_experiment(name="Shown")
        series = scalars("loss", range(9)), images("cat", [0], [[b"png"]])
        self.api.write(self.experiment, segment(stream(), 0, 9, *series))
        blobs = self.api.get(self.experiment, "blob_sequences/data")
        self.blob_key = blobs["train"]["cat"]["values"][0][0]["key"]

    def ask(self, api, route):
        method, path, _, _, options = route
        address = path.format(
            experiment_id=self.experiment,
            workspace_id=self.workspace_id,
            user_id=self.colleague.user_id,
            blob_key=self.blob_key,
            **api_routes.NAMES,
        )
        return api.request(method, address, **options)

    def refused(self, api):
        """Return the routes of the API that do not say that something is suspended."""
        answers = [(route, self.ask(api, route)) for route in api_routes.TABLE]
        return [
            (route[:2], answer.status_code)
            for route, answer in answers
            if (answer.status_code, answer.json().get("code")) not in EXPECTED
        ]


EXPECTED = {(451, "suspended"), (403, "suspended")}


@pytest.fixture
def world(client, database, workspace_id, owner_token):
    return World(client, database, workspace_id, owner_token)


def read(api, experiment):
    return api.request("GET", f"/experiments/{experiment}/scalars/data")


def test_suspended_workspace_is_closed_on_every_route(world):
    before = read(world.api, world.experiment).json()
    suspend(world.database, "workspace", world.workspace_id)
    assert world.refused(world.machine) == []
    assert world.refused(world.api) == []
    told = read(world.machine, world.experiment)
    assert told.status_code == 451
    assert told.json()["detail"].startswith(f"this workspace is suspended: {REASON}. Nothing was")
    release(world.database, "workspace", world.workspace_id)
    assert read(world.api, world.experiment).json() == before
    again = world.api.send(world.experiment, segment(stream(), 9, 10, scalars("loss", [9])))
    assert again.status_code == 200


def test_suspended_person_is_closed_out_alone(world):
    suspend(world.database, "person", world.owner.user_id)
    assert world.refused(world.api) == []
    assert read(world.api, world.experiment).status_code == 403
    assert world.page.get("/me").status_code == 403
    for reader in (world.colleagues_api, world.machine):
        assert read(reader, world.experiment).status_code == 200
    assert world.colleagues_page.get("/me").status_code == 200
    release(world.database, "person", world.owner.user_id)
    assert read(world.api, world.experiment).status_code == 200
    assert world.page.get("/me").status_code == 200


def test_pages_say_why_the_workspace_is_suspended(world):
    suspend(world.database, "workspace", world.workspace_id)
    shown = html.escape(REASON, quote=True).replace("&quot;", "&#34;")
    for named, form, statuses in page_routes.TABLE:
        if form is not None or statuses[0] == 200 or statuses[4] != 200:
            continue
        path = named.replace("EXPERIMENT", world.experiment)
        path = path.replace("ID", str(world.workspace_id))
        answer = world.page.get(path)
        is_own = path.startswith("/me") or path in {"/device", "/workspace/new"}
        assert answer.status_code == (200 if is_own else 451), path
        assert is_own or shown in answer.text, path
        assert REASON not in answer.text, path


def test_pages_say_why_the_person_is_suspended(world):
    suspend(world.database, "person", world.owner.user_id)
    for path in ("/me", f"/workspace/{world.workspace_id}/runs", "/device"):
        answer = world.page.get(path)
        assert (answer.status_code, "this account is suspended" in answer.text.lower()) == (
            403,
            True,
        )
    own = world.page.get(f"/experiment/{world.experiment}/about")
    assert (own.status_code, "suspended" in own.text) == (403, True)
    secret = html.unescape(world.page.secret)
    assert PageReader(world.client, secret).get("/sign-in").status_code == 200


@pytest.mark.parametrize("kind", ["link", "experiment", "workspace"])
def test_link_is_closed_and_comes_back(world, kind):
    links = [make_link(world.api, world.experiment, **each) for each in ({}, {"frozen": True})]
    targets = [target_of(link) for link in links]
    ids = {
        "link": links[1]["id"],
        "experiment": world.experiment,
        "workspace": world.workspace_id,
    }
    pairs = list(zip(links, targets, strict=True))
    before = [read(reader_of(world.client, link), at).json() for link, at in pairs]

    def statuses():
        return [
            answer.status_code
            for link, at in pairs
            for answer in (
                read(reader_of(world.client, link), at),
                PageReader(world.client).get(f"/experiment/{at}/?token={link['token']}"),
                PageReader(world.client).get(
                    f"/experiment/{at}/about", cookie=f"tbhub_read={link['token']}"
                ),
                world.client.get(
                    f"/experiment/{at}/data/runs",
                    headers={"cookie": f"tbhub_read={link['token']}"},
                ),
                world.client.get(f"/experiment/{at}/card.svg?tag=loss&token={link['token']}"),
            )
        ]

    open_ = statuses()
    assert 451 not in open_
    suspend(world.database, kind, ids[kind])
    closed = [451] * 5
    assert statuses() == (open_[:5] + closed if kind == "link" else closed * 2)
    member = read(world.api, world.experiment).status_code
    assert member == (451 if kind == "workspace" else 200)
    release(world.database, kind, ids[kind])
    assert statuses() == open_
    assert [read(reader_of(world.client, link), at).json() for link, at in pairs] == before


def test_public_experiment_is_closed_for_strangers_alone(world):
    path = f"/experiments/{world.experiment}"
    world.api.request("PATCH", path, json={"visibility": "link"}).raise_for_status()
    stranger = ApiClient(world.client, None)
    passed_on = ApiClient(world.client, world.api.new_token(world.experiment, "read"))
    page = PageReader(world.client)
    address = f"/experiment/{world.experiment}/about"
    suspend(world.database, "experiment", world.experiment)
    for reader in (stranger, passed_on):
        assert read(reader, world.experiment).status_code == 451
    assert page.get(address).status_code == 451
    assert world.page.get(address).status_code == 200
    assert read(world.api, world.experiment).status_code == 200
    release(world.database, "experiment", world.experiment)
    assert page.get(address).status_code == 200


def test_suspended_link_leaves_what_else_the_browser_may_read(world):
    link = make_link(world.api, world.experiment)
    suspend(world.database, "link", link["id"])
    cookie = f"tbhub_session={world.page.secret}; tbhub_read={link['token']}"
    for path in ("about", "", "data/runs"):
        answer = world.client.get(
            f"/experiment/{world.experiment}/{path}", headers={"cookie": cookie}
        )
        assert answer.status_code == 200, path


@pytest.mark.parametrize("kind", ["workspace", "person", "link"])
def test_long_read_ends_at_its_next_part(world, monkeypatch, kind):
    monkeypatch.setattr(limits, "SCAN_CHUNK_POINTS", 4)
    link = make_link(world.api, world.experiment)
    ids = {"workspace": world.workspace_id, "person": world.owner.user_id, "link": link["id"]}
    api = reader_of(world.client, link) if kind == "link" else world.api
    secret = api.headers["Authorization"].split()[1]
    with world.database.transaction() as db:
        grant = grants.grant_read(db, world.experiment, secret)
    chunks = full_scan.stream_all(world.database, grant, Selection(), DataClass.SCALAR)
    next(chunks)
    suspend(world.database, kind, ids[kind])
    with pytest.raises(Forbidden if kind == "person" else Suspended):
        list(chunks)


def test_katib_is_told_that_it_may_not(world, owner_token):
    suspend(world.database, "workspace", world.workspace_id)
    with world.database.transaction() as db, pytest.raises(Suspended) as refused:
        grants.grant_katib(db, owner_token)
    assert status_of(refused.value) is grpc.StatusCode.PERMISSION_DENIED


def test_invitation_of_suspended_is_closed_meanwhile(world):
    with world.database.transaction(world.workspace_id) as db:
        grant = owner_of(world.workspace_id, world.owner)
        secret = invitations.invite(db, grant, Role.EDITOR)[1]
    for kind, object_id in (("person", world.owner.user_id), ("workspace", world.workspace_id)):
        suspend(world.database, kind, object_id)
        with world.database.transaction() as db, pytest.raises(NotFound):
            invitations.accept(db, secret, world.colleague)
        release(world.database, kind, object_id)
    with world.database.transaction() as db:
        assert invitations.accept(db, secret, world.colleague).workspace_id == world.workspace_id


def test_suspended_person_gets_in_by_no_other_way(world, database):
    link = new_link(database, world.owner)
    suspend(database, "person", world.owner.user_id)
    assert PageReader(world.client).post("/sign-in/link", {"token": link}).status_code == 403
    with database.transaction() as db, pytest.raises(Forbidden, match="suspended"):
        people.check_joins(db, world.owner.email)
    with pytest.raises(Forbidden, match="suspended"):
        new_link(database, world.owner)
    release(database, "person", world.owner.user_id)
    assert PageReader(world.client).post("/sign-in/link", {"token": link}).status_code == 303


def test_suspension_refuses_what_is_not_there(world, database):
    for kind, named in (
        ("workspace", 2**62),
        ("workspace", 2**70),
        ("workspace", "x"),
        ("workspace", "01"),
        ("person", "none"),
        ("link", "none"),
        ("experiment", "none"),
        ("experiment", "0" * 22),
    ):
        with pytest.raises((NotFound, Invalid)):
            suspend(database, kind, named)
    for reason in ("", " \n\0", "x" * 501):
        with pytest.raises(Invalid):
            suspend(database, "workspace", world.workspace_id, reason)
    with pytest.raises(Conflict, match="not suspended"):
        release(database, "workspace", world.workspace_id)
    with pytest.raises(Conflict, match="not suspended"):
        release(database, "link", "none")


def test_link_that_was_deleted_can_be_released(world, database):
    link = make_link(world.api, world.experiment)
    suspend(database, "link", link["id"])
    world.api.request("DELETE", f"/experiments/{world.experiment}").raise_for_status()
    release(database, "link", link["id"])


@pytest.mark.own_database
def test_server_works_before_the_migration(world, settings, rename_table):
    rename_table("suspensions", "later")
    with closing(Database(settings.database_url.get_secret_value(), 1)) as database:
        secret = world.api.headers["Authorization"].split()[1]

        def look_up():
            with database.transaction() as db:
                return grants.grant_read(db, world.experiment, secret)

        assert look_up().experiment_id == world.experiment
        rename_table("later", "suspensions")
        suspend(world.database, "workspace", world.workspace_id)
        with pytest.raises(Suspended):
            look_up()


@pytest.mark.own_database
def test_commands_suspend_list_and_release(world, run_tbservice):
    run = run_tbservice
    alone = new_member(world.database, world.workspace_id)
    hostile = "first\x1b[2Jline\nsecond"
    assert run("suspend", "person", world.colleague.email, "--reason", "a")[::2] == (0, "")
    assert run("suspend", "person", world.owner.user_id, "--reason", "a")[::2] == (0, "")
    code, _, err = run("suspend", "person", alone.user_id, "--reason", "a")
    assert (code, "no other person owns" in err) == (0, True)
    named = ("workspace", world.workspace_id)
    assert run("suspend", *named, "--reason", "b")[1] == [
        f"workspace {world.workspace_id} is suspended"
    ]
    assert "already" in run("suspend", *named, "--reason", "b")[1][0]
    assert run("suspend", *named, "--reason", hostile)[0] == 0
    listed = [json.loads(line) for line in run("suspensions", "--json")[1]]
    assert [each["kind"] for each in listed] == ["workspace", "person", "person", "person"]
    assert listed[0]["reason"] == "first [2Jline second"
    assert listed[0]["id"] == str(world.workspace_id)
    (details,) = (
        each
        for each in map(json.loads, run("workspace", "list", "--json")[1])
        if each["workspace_id"] == world.workspace_id
    )
    assert (details["points"], details["suspended"]) == (10, "first [2Jline second")
    assert world.owner.email in details["owners"]
    assert any("\tsuspended\t" in line for line in run("workspace", "list", "--usage")[1])
    assert run("release", *named)[0] == 0
    assert run("release", *named)[::2] == (
        1,
        f"tbservice: workspace {world.workspace_id} is not suspended\n",
    )
    acts = world.machine.request("GET", f"/workspaces/{world.workspace_id}/audit").json()["records"]
    own = [(each["act"], each["means"]) for each in acts if each["object_id"] == str(named[1])]
    assert own[:3] == [("workspace.release", "command"), *[("workspace.suspend", "command")] * 2]
