"""Every route that changes something records its act, or is in the list of those that need none."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from support import api_routes, page_routes
from support.batches import ApiClient, scalars, segment, stream
from support.page_forms import PageReader, new_link, new_reader
from support.people import new_member, new_person, new_personal_token, sign_in
from support.share_links import make_link
from tbservice.audit.acts import Act
from tbservice.audit.recording import NO_WORKSPACE
from tbservice.audit.tables import audit_records
from tbservice.auth import operators, workspaces
from tbservice.experiments.tables import saved_views
from tbservice.experiments.tables.saved_views import ViewVersion
from tbservice.runs.comparison import choose_run
from tbservice.types.audit import AuditFilter
from tbservice.types.grants import Scope
from tbservice.types.people import Role

EXPERIMENT = "/experiments/{experiment_id}"
WORKSPACE = "/workspaces/{workspace_id}"


class World:
    """A workspace with an owner, and what its routes are called on."""

    def __init__(self, client, database, workspace_id):
        self.client, self.database, self.workspace_id = client, database, workspace_id
        self.owner = new_member(database, workspace_id)
        self.api = ApiClient(
            client, new_personal_token(database, workspace_id, self.owner, Scope.ADMIN)
        )
        self.page = PageReader(client, sign_in(database, self.owner))
        self.lonely = new_person(database)
        self.experiment = self.api.new_experiment(name="audited")
        self.place = f"/experiments/{self.experiment}"
        self.home = f"/workspaces/{workspace_id}"

    def member(self):
        return new_member(self.database, self.workspace_id, Role.EDITOR).user_id

    def name(self):
        with self.database.transaction() as db:
            return workspaces.get_name(db, self.workspace_id)

    def deleted_home(self):
        """The id of the workspace, which is deleted."""
        self.api.request("DELETE", self.home, params={"name": self.name()}).raise_for_status()
        return self.workspace_id

    def token(self, place):
        return self.made(f"{place}/tokens", {"scopes": ["read"]})

    def link(self):
        return make_link(self.api, self.experiment)["id"]

    def invitation(self):
        return self.made(f"{self.home}/invitations", {"role": "viewer"})

    def made(self, path, body):
        answer = self.api.request("POST", path, json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    def invited(self):
        """The secret of a new invitation."""
        answer = self.api.request("POST", f"{self.home}/invitations", json={"role": "viewer"})
        return re.search(r"tbi_\w+", answer.text)[0]

    def code(self):
        answer = self.client.post("/api/v1/device-logins", json={"client": "a command"})
        return answer.json()["user_code"]

    def run(self):
        """The place of a new run, with a series."""
        self.api.write(self.experiment, segment(stream(), 0, 9, scalars("loss", [1])))
        return f"{self.place}/runs?run=train"

    def deleted_run(self):
        self.api.request("DELETE", self.run())
        return f"{self.place}/runs/deleted?run=train"

    def run_id(self):
        self.run()
        shown = self.page.get(f"/experiment/{self.experiment}/runs")
        return re.search(r'name="run" value="(\d+)"', shown.text)[1]

    def chosen_run(self):
        """The new run as the table of runs names it."""
        self.run()
        run = choose_run(self.experiment, "train")
        return f"{run.experiment_id}:{run.digest}"

    def deleted(self):
        self.api.request("DELETE", self.place)
        return self.experiment

    def session(self):
        """The id of another session of the owner."""
        answer = PageReader(self.client, sign_in(self.database, self.owner)).get("/me")
        return re.search(r'name="session_id" value="(\w+)"', answer.text)[1]

    def view(self):
        """The id of a view that shows a metric."""
        self.run()
        with self.database.transaction(self.workspace_id) as db:
            view = ViewVersion("x", 1, "losses", "runs", "columns=loss")
            saved_views.insert(db, self.workspace_id, view)
        return "x"

    def read(self, place, limit):
        with self.database.snapshot(place) as db:
            return audit_records.list_page(db, place, AuditFilter(), None, limit)

    def last(self):
        """The number of the last record of the workspace, and of none."""
        return {
            place: max((each.number for each in self.read(place, 1)), default=0)
            for place in (self.workspace_id, NO_WORKSPACE)
        }

    def since(self, last, act, more=()):
        """The records of an act that were added since `last`."""
        places = (self.workspace_id, NO_WORKSPACE, *more)
        records = [(each, last.get(place, 0)) for place in places for each in self.read(place, 50)]
        return [each for each, number in records if each.number > number and each.act == act]


SCOPES = {"scopes": ["read"]}

API_ACTS = {
    ("DELETE", EXPERIMENT): (Act.EXPERIMENT_DELETE, lambda w: w.place),
    ("PATCH", EXPERIMENT): (Act.EXPERIMENT_SHARE, lambda w: w.place, {"visibility": "link"}),
    ("POST", f"{EXPERIMENT}/restore"): (
        Act.EXPERIMENT_RESTORE,
        lambda w: f"/experiments/{w.deleted()}/restore",
    ),
    ("DELETE", f"{EXPERIMENT}/runs"): (Act.RUN_DELETE, World.run),
    ("DELETE", f"{EXPERIMENT}/runs/deleted"): (Act.RUN_ALLOW, World.deleted_run),
    ("DELETE", f"{EXPERIMENT}/series"): (
        Act.SERIES_DELETE,
        lambda w: w.run().replace("runs", "series") + "&tag=loss",
    ),
    ("POST", f"{EXPERIMENT}/tokens"): (Act.TOKEN_CREATE, lambda w: f"{w.place}/tokens", SCOPES),
    ("DELETE", f"{EXPERIMENT}/tokens/{{token_id}}"): (
        Act.TOKEN_REVOKE,
        lambda w: f"{w.place}/tokens/{w.token(w.place)}",
    ),
    ("POST", f"{EXPERIMENT}/links"): (Act.LINK_CREATE, lambda w: f"{w.place}/links", {}),
    ("PATCH", f"{EXPERIMENT}/links/{{link_id}}"): (
        Act.LINK_RENAME,
        lambda w: f"{w.place}/links/{w.link()}",
        {"label": "x"},
    ),
    ("DELETE", f"{EXPERIMENT}/links/{{link_id}}"): (
        Act.LINK_REVOKE,
        lambda w: f"{w.place}/links/{w.link()}",
    ),
    ("POST", "/me/tokens"): (Act.TOKEN_CREATE, lambda _w: "/me/tokens", SCOPES),
    ("DELETE", "/me/tokens/{token_id}"): (
        Act.TOKEN_REVOKE,
        lambda w: f"/me/tokens/{w.token('/me')}",
    ),
    ("DELETE", "/me/token"): (Act.TOKEN_REVOKE, lambda _w: "/me/token"),
    ("POST", "/workspaces"): (Act.WORKSPACE_CREATE, lambda _w: "/workspaces", {"name": "another"}),
    ("PATCH", WORKSPACE): (Act.WORKSPACE_RENAME, lambda w: w.home, {"name": "renamed"}),
    ("DELETE", WORKSPACE): (Act.WORKSPACE_DELETE, lambda w: f"{w.home}?name={quote(w.name())}"),
    ("PATCH", f"{WORKSPACE}/members/{{user_id}}"): (
        Act.MEMBER_ROLE,
        lambda w: f"{w.home}/members/{w.member()}",
        {"role": "viewer"},
    ),
    ("DELETE", f"{WORKSPACE}/members/{{user_id}}"): (
        Act.MEMBER_REMOVE,
        lambda w: f"{w.home}/members/{w.member()}",
    ),
    ("POST", f"{WORKSPACE}/invitations"): (
        Act.INVITATION_CREATE,
        lambda w: f"{w.home}/invitations",
        {"role": "viewer"},
    ),
    ("DELETE", f"{WORKSPACE}/invitations/{{invitation_id}}"): (
        Act.INVITATION_REVOKE,
        lambda w: f"{w.home}/invitations/{w.invitation()}",
    ),
    ("POST", f"{WORKSPACE}/views/{{view_id}}/links"): (
        Act.LINK_CREATE,
        lambda w: f"{w.home}/views/{w.view()}/links",
        {},
    ),
    ("POST", f"{WORKSPACE}/tokens"): (Act.TOKEN_CREATE, lambda w: f"{w.home}/tokens", SCOPES),
    ("DELETE", f"{WORKSPACE}/tokens/{{token_id}}"): (
        Act.TOKEN_REVOKE,
        lambda w: f"{w.home}/tokens/{w.token(w.home)}",
    ),
}
"""By method and route of the API: its act, the path to call, and the body."""

API_WITHOUT_ACT = {
    ("POST", "/experiments"),  # adds data, as all of these; it is recorded if it shares it
    ("POST", f"{EXPERIMENT}/batches"),
    ("PUT", f"{EXPERIMENT}/blobs/{{sha256}}"),
    ("PATCH", f"{EXPERIMENT}/runs"),  # tags, as those of an experiment
    ("PUT", f"{EXPERIMENT}/runs/{{run}}/hparams"),
    ("PUT", f"{EXPERIMENT}/runs/hparams"),
    ("PUT", f"{EXPERIMENT}/uploads/{{upload_id}}"),
    ("PATCH", f"{EXPERIMENT}/uploads/{{upload_id}}"),
    ("PUT", "/me/stars/{experiment_id}"),  # a person's own list, as the page's form
    ("DELETE", "/me/stars/{experiment_id}"),
    ("POST", f"{WORKSPACE}/views"),  # its versions are its history
    ("PATCH", f"{WORKSPACE}/views/{{view_id}}"),
    ("DELETE", f"{WORKSPACE}/views/{{view_id}}"),
    ("POST", f"{WORKSPACE}/runs/curves"),  # reads
    ("POST", f"{WORKSPACE}/runs/curves/table"),
}

PAGE_ACTS = {
    "/sign-in/link": (Act.SIGN_IN, lambda w: {"token": new_link(w.database, w.owner)}),
    "/sign-out": (Act.SIGN_OUT, lambda _w: {}),
    "/invitation": (Act.INVITATION_ACCEPT, lambda w: {"token": w.invited()}),
    "/invitation/join": (Act.INVITATION_ACCEPT, lambda w: {"token": w.invited(), "name": "Bob"}),
    "/me/name": (Act.PERSON_RENAME, lambda _w: {"name": "Ann B."}),
    "/me/session/end": (Act.SESSION_END, lambda w: {"session_id": w.session()}),
    "/me/session/end-others": (Act.SESSION_END, lambda w: {"x": w.session()}),
    "/me/sign-in-link": (Act.SIGN_IN_LINK_CREATE, lambda _w: {}),
    "/me/delete": (Act.PERSON_DELETE, lambda w: {"typed": w.lonely.email}),
    "/me/workspace/restore": (Act.WORKSPACE_RESTORE, lambda w: {"workspace_id": w.deleted_home()}),
    "/me/leave": (Act.MEMBER_LEAVE, lambda w: {"workspace_id": w.workspace_id}),
    "/me/token/new": (
        Act.TOKEN_CREATE,
        lambda w: {"workspace_id": w.workspace_id, "label": "x", "scope": "read"},
    ),
    "/me/token/try": (
        Act.TOKEN_CREATE,
        lambda w: {"workspace_id": w.workspace_id, "scope": "read"},
    ),
    "/me/token/revoke": (Act.TOKEN_REVOKE, lambda w: {"token_id": w.token("/me")}),
    "/workspace/new": (Act.WORKSPACE_CREATE, lambda _w: {"name": "another"}),
    "/workspace/ID/delete": (Act.WORKSPACE_DELETE, lambda w: {"name": w.name()}),
    "/workspace/ID/name": (Act.WORKSPACE_RENAME, lambda _w: {"name": "renamed"}),
    "/workspace/ID/expiry": (Act.WORKSPACE_EXPIRY, lambda _w: {"days": "9"}),
    "/workspace/ID/token/new": (Act.TOKEN_CREATE, lambda _w: {"label": "x", "scope": "read"}),
    "/workspace/ID/token/revoke": (Act.TOKEN_REVOKE, lambda w: {"token_id": w.token(w.home)}),
    "/workspace/ID/link/revoke": (
        Act.LINK_REVOKE,
        lambda w: {"link_id": w.link(), "experiment_id": w.experiment},
    ),
    "/workspace/ID/views/x/share": (Act.LINK_CREATE, lambda w: {"view": w.view()}),
    "/workspace/ID/member/role": (
        Act.MEMBER_ROLE,
        lambda w: {"user_id": w.member(), "role": "viewer"},
    ),
    "/workspace/ID/member/remove": (Act.MEMBER_REMOVE, lambda w: {"user_id": w.member()}),
    "/workspace/ID/invitation": (
        Act.INVITATION_CREATE,
        lambda _w: {"role": "viewer", "expires_days": "7"},
    ),
    "/workspace/ID/invitation/revoke": (
        Act.INVITATION_REVOKE,
        lambda w: {"invitation_id": w.invitation()},
    ),
    "/experiment/EXPERIMENT/links": (Act.LINK_CREATE, lambda _w: {}),
    "/experiment/EXPERIMENT/links/rename": (
        Act.LINK_RENAME,
        lambda w: {"link_id": w.link(), "label": "y"},
    ),
    "/experiment/EXPERIMENT/links/revoke": (Act.LINK_REVOKE, lambda w: {"link_id": w.link()}),
    "/experiment/EXPERIMENT/edit": (
        Act.EXPERIMENT_SHARE,
        lambda _w: {"name": "x", "visibility": "link"},
    ),
    "/experiment/EXPERIMENT/token/new": (
        Act.TOKEN_CREATE,
        lambda _w: {"label": "x", "scope": "read"},
    ),
    "/experiment/EXPERIMENT/token/revoke": (
        Act.TOKEN_REVOKE,
        lambda w: {"token_id": w.token(w.place)},
    ),
    "/experiment/EXPERIMENT/runs/delete": (
        Act.RUN_DELETE,
        lambda w: {"run": w.run_id(), "confirmed": "yes"},
    ),
    "/workspace/ID/runs/delete": (
        Act.RUN_DELETE,
        lambda w: {"id": w.chosen_run(), "confirmed": "yes"},
    ),
    "/experiment/EXPERIMENT/delete": (Act.EXPERIMENT_DELETE, lambda _w: {}),
    "/experiments/delete": (Act.EXPERIMENT_DELETE, lambda w: {"experiment": w.experiment}),
    "/experiments/restore": (
        Act.EXPERIMENT_RESTORE,
        lambda w: {"experiment": w.deleted(), "workspace": w.workspace_id},
    ),
    "/device/approve": (
        Act.DEVICE_LOGIN_APPROVE,
        lambda w: {
            "code": w.code(),
            "workspace_id": w.workspace_id,
            "scope": "read",
            "expires_days": "7",
        },
    ),
    "/device/deny": (Act.DEVICE_LOGIN_DENY, lambda w: {"code": w.code()}),
    "/operator/workspace/ID": (Act.QUOTA_SET, lambda _w: {"act": "quota", "points": "7"}),
    "/operator/person/PERSON": (
        Act.SESSION_END,
        lambda w: {"act": "end-session", "session_id": w.session()},
    ),
    "/operator/reports": (
        Act.PERSON_SUSPEND,
        lambda w: {"act": "suspend", "kind": "person", "subject": w.member(), "reason": "x"},
    ),
}
"""By path of a form: its act, and the fields to send."""

PAGES_WITHOUT_ACT = {
    "/experiments/compare",  # redirects to the comparison
    "/experiments/move",  # redirects to the page with the commands
    "/experiments/star",  # of the person alone, as saved searches
    "/experiments/searches",
    "/experiments/tag",  # what is written about an experiment
    "/experiments/edit",
    "/experiments/archive",  # lists leave it out; all that was there remains
    "/theme",  # a cookie
    "/workspace/ID/runs/selected",  # redirects to the comparison
    "/workspace/ID/runs/tag",  # what is written about a run
    "/workspace/ID/views",  # its versions are its history
    "/workspace/ID/views/x",
    "/experiment/EXPERIMENT/report",  # only its end is recorded (test_page_reports.py)
    "/device",  # shows what waits under a code
    "/sign-in/oidc/nothing",  # begins a sign-in; its end is recorded (test_oidc_sign_in.py)
}


def operate(world):
    """The browser of the owner, who is an operator."""
    with world.database.transaction() as db:
        operators.make_operator(db, world.owner.user_id)
    return world.page


READERS = {
    "/operator/workspace/ID": operate,
    "/operator/person/PERSON": operate,
    "/operator/reports": operate,
    "/sign-in/link": lambda w: PageReader(w.client),
    "/invitation": lambda w: new_reader(w.client, w.database, new_person(w.database)),
    "/invitation/join": lambda w: PageReader(w.client),
    "/me/delete": lambda w: new_reader(w.client, w.database, w.lonely),
    "/me/leave": lambda w: new_reader(
        w.client, w.database, new_member(w.database, w.workspace_id, Role.VIEWER)
    ),
}
"""The person who posts a form, by path, where it is not the owner."""


@pytest.fixture
def world(client, database, workspace_id):
    return World(client, database, workspace_id)


def test_changing_routes_are_all_in_a_list():
    routes = {
        (method, path)
        for method, path, need, *_ in api_routes.TABLE
        if method in {"PUT", "PATCH", "DELETE"} or (method == "POST" and need != "read")
    }
    assert routes == API_ACTS.keys() | API_WITHOUT_ACT
    forms = {path for path, fields, _ in page_routes.TABLE if fields is not None}
    assert forms == PAGE_ACTS.keys() | PAGES_WITHOUT_ACT


@pytest.mark.parametrize(("method", "path"), API_ACTS, ids=str)
def test_route_of_api_records_its_act(world, method, path):
    act, make_address, *body = API_ACTS[method, path]
    address = make_address(world)
    last = world.last()
    answer = world.api.request(method, address, **({"json": body[0]} if body else {}))
    assert answer.is_success, answer.text
    more = [answer.json()["workspace_id"]] if path == "/workspaces" else []
    (made,) = world.since(last, act, more)
    assert (made.user_id, made.means) == (world.owner.user_id, "token")
    assert answer.headers["X-Request-ID"] == made.request_id
    assert not re.search("tb[hsli]_", made.details)


@pytest.mark.parametrize("path", PAGE_ACTS)
def test_form_of_page_records_its_act(world, path):
    act, make_fields = PAGE_ACTS[path]
    reader, fields = READERS.get(path, lambda w: w.page)(world), make_fields(world)
    last = world.last()
    address = path.replace("ID", str(world.workspace_id)).replace("EXPERIMENT", world.experiment)
    address = address.replace("PERSON", world.owner.user_id)
    answer = reader.post(address, fields)
    assert answer.status_code in (200, 303), answer.text
    more = re.findall(r"/workspace/(\d+)", answer.headers.get("location", ""))
    made = world.since(last, act, {int(each) for each in more} - {world.workspace_id})[0]
    assert made.means == ("invitation" if "join" in path else "session")
    assert made.request_id == answer.headers["X-Request-ID"]
