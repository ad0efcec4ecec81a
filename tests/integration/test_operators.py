"""Operators: who has the right, for how long, and what their pages show and do."""

from __future__ import annotations

import contextvars
import json
import re
from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from support.batches import ApiClient, scalars, segment, stream
from support.page_forms import PageReader
from support.people import (
    new_machine_token,
    new_member,
    new_person,
    new_personal_token,
    sign_in,
)
from support.servers import new_workspace
from support.share_links import make_link
from tbservice.audit import acting
from tbservice.audit.acting import Means
from tbservice.audit.acts import Act
from tbservice.audit.recording import NO_WORKSPACE, record
from tbservice.audit.tables import audit_records
from tbservice.auth import operators, people, sessions, suspensions, tokens
from tbservice.db.database import set_local
from tbservice.db.schema_versions import list_migrations
from tbservice.errors import Conflict, Forbidden, NotFound
from tbservice.experiments import reports
from tbservice.types.audit import AuditFilter
from tbservice.types.grants import Scope
from tbservice.types.suspensions import Suspendable

HTML_TYPE = "text/html; charset=utf-8"


@pytest.fixture
def person(database):
    return new_person(database)


@pytest.fixture
def operator(database, person):
    with database.transaction() as db:
        operators.make_operator(db, person.user_id)
    return person


@pytest.fixture
def secret(database, operator):
    return sign_in(database, operator)


def find(database, secret):
    with database.transaction() as db:
        return sessions.find_session(db, secret)


def revoke(database, person):
    with database.transaction() as db:
        operators.revoke_operator(db, person.user_id)


def let_sign_in_be_old(database, person):
    with database.transaction() as db:
        set_local(db, "user_id", person.user_id)
        statement = "UPDATE browser_sessions SET created_at = now() - interval '16 minutes'"
        assert db.execute(text(statement)).rowcount


def acts_of(database, object_id, workspace=NO_WORKSPACE):
    """The acts done to something, the latest first."""
    with database.snapshot(workspace) as db:
        wanted = AuditFilter(None, None, object_id)
        return audit_records.list_page(db, workspace, wanted, None, 20)


def test_operator_is_found_with_session_until_revoked(database, person, secret):
    assert find(database, secret).is_operator
    assert not find(database, sign_in(database, new_person(database))).is_operator
    revoke(database, person)
    assert not find(database, secret).is_operator
    acts = [each.act for each in acts_of(database, person.user_id)]
    assert [act for act in acts if act.startswith("operator")] == [
        "operator.remove",
        "operator.add",
    ]


def test_operator_is_made_and_revoked_once(database, operator):
    with pytest.raises(Conflict, match="already"), database.transaction() as db:
        operators.make_operator(db, operator.user_id)
    revoke(database, operator)
    with pytest.raises(Conflict, match="no operator"):
        revoke(database, operator)


def test_first_operator_stays_revoked(database, person):
    def start():
        with database.transaction() as db:
            operators.make_first_operator(db, person.user_id)
            return person.user_id in {each.user_id for each, _ in operators.list_operators(db)}

    assert start()
    revoke(database, person)
    assert not start()


def test_act_of_operator_needs_recent_sign_in(database, operator, secret):
    session = find(database, secret)

    def check():
        with database.transaction() as db:
            operators.check_act(db, operator.user_id, session.session_id)

    check()
    let_sign_in_be_old(database, operator)
    with pytest.raises(Forbidden, match="more than 15 minutes ago"):
        check()
    revoke(database, operator)
    with pytest.raises(NotFound):
        check()


PAGES = ("", "/people", "/reports", "/health", "/workspace/{workspace}", "/person/{person}")
FORMS = ("/workspace/{workspace}", "/person/{person}", "/reports")


class World:
    """An operator, and another person's workspace with a link, a token and a report."""

    def __init__(self, client, database, workspace_id, operator):
        self.client, self.database, self.workspace_id = client, database, workspace_id
        self.operator = operator
        self.page = PageReader(client, sign_in(database, operator))
        self.owner = new_member(database, workspace_id)
        self.token = new_personal_token(database, workspace_id, self.owner, Scope.ADMIN)
        self.api = ApiClient(client, self.token)
        self.experiment = self.api.new_experiment(name="Not for operators")
        self.link = make_link(self.api, self.experiment)

    def address(self, path):
        names = {"workspace": self.workspace_id, "person": self.owner.user_id}
        return "/operator" + path.format(**names)

    def post(self, path, reader=None, **fields):
        return (reader or self.page).post(self.address(path), fields)

    def report(self):
        """The id of a new report of the shared page."""
        cookie = {"cookie": f"tbhub_read={self.link['token']}"}
        fields = {"reason": "illegal", "details": "Look: <b>", "contact": ""}
        address = f"/experiment/{self.experiment}/report"
        answer = PageReader(self.client).post(address, fields, **cookie)
        assert answer.status_code == 303, answer.text
        with self.database.transaction() as db:
            return next(
                each.report_id
                for each in reports.list_reports(db, with_closed=False)
                if each.experiment_id == self.experiment
            )

    def session_id(self):
        sign_in(self.database, self.owner)
        with self.database.transaction() as db:
            return sessions.list_sessions(db, self.owner.user_id)[0].session_id

    def token_id(self):
        with self.database.transaction() as db:
            return tokens.list_personal_tokens(db, self.owner.user_id)[0].token_id


@pytest.fixture
def world(client, database, workspace_id, operator):
    return World(client, database, workspace_id, operator)


def test_pages_of_operator_are_not_there_for_others(world, database):
    token = {"authorization": f"Bearer {world.token}"}
    for reader, headers in (
        (PageReader(world.client), {}),
        (PageReader(world.client), token),
        (PageReader(world.client, sign_in(database, world.owner)), {}),
    ):
        nothing = reader.get("/operatr", **headers)
        for path in PAGES:
            answer = reader.get(world.address(path), **headers)
            assert (answer.status_code, answer.headers["content-type"]) == (404, HTML_TYPE), path
            same = answer.text.replace(f"next={world.address(path)}", "next=/operatr")
            assert same == nothing.text, path
        for path in FORMS:
            assert (
                reader.post(world.address(path), {"act": "release"}, **headers).status_code == 404
            )
    for path in PAGES:
        assert world.page.get(world.address(path)).status_code == 200, path
        script = world.page.get(world.address(path), sec_fetch_mode="cors", sec_fetch_dest="empty")
        assert script.status_code == 404


def test_page_of_operator_ends_with_the_right(world, database):
    assert world.page.get("/operator").status_code == 200
    revoke(database, world.operator)
    assert world.page.get("/operator").status_code == 404
    assert world.post("/reports", act="release").status_code == 404


def test_pages_of_operator_show_no_secret_and_no_experiment(world):
    world.report()
    for path in PAGES:
        shown = world.page.get(world.address(path)).text
        assert not re.search(r"tb[hsli]_\w{20}", shown), path
        assert "Not for operators" not in shown, path
    assert world.page.get(f"/experiment/{world.experiment}/about").status_code == 404


def test_commands_show_what_pages_show_and_no_secret(world, run_tbservice, database):
    session_id, person = world.session_id(), world.owner
    world.api.write(world.experiment, segment(stream(), 0, 1, scalars("loss", range(3))))
    world.client.app.state.traffic.store()
    code, lines, _ = run_tbservice("workspace", "show", world.workspace_id)
    text = "\n".join(lines)
    shown = json.loads(text)
    assert code == 0
    assert person.user_id in {each["user_id"] for each in shown["members"]}
    assert world.token_id() in {each["id"] for each in shown["tokens"]}
    assert [(each["id"], each["experiment_id"]) for each in shown["links"]] == [
        (world.link["id"], world.experiment)
    ]
    usage = shown["usage"]
    assert [each["experiment_id"] for each in usage["experiments"]] == [world.experiment]
    for by, key in (("members", "user_id"), ("months", "month")):
        assert [each["scalars"] for each in usage[by] if each[key]] == [3]
    page = world.page.get(f"/operator/workspace/{world.workspace_id}").text
    assert f"<code>{world.experiment}</code></td>" in page
    assert usage["months"][0]["month"] in page

    code, lines, _ = run_tbservice("user", "show", person.user_id)
    text += "\n".join(lines)
    shown = json.loads("\n".join(lines))
    assert [each["session_id"] for each in shown["sessions"]] == [session_id]
    assert [each["id"] for each in shown["tokens"]] == [world.token_id()]
    (month,) = shown.pop("traffic")
    assert (month["workspace_id"], month["requests"] > 0) == (world.workspace_id, True)
    assert 'id="traffic"' in world.page.get(f"/operator/person/{person.user_id}").text
    listed = map(json.loads, run_tbservice("user", "list", "--json")[1])
    (summary,) = (each for each in listed if each["user_id"] == person.user_id)
    assert summary == shown | {"sessions": 1, "tokens": 1}
    assert not re.search(r"tb[hsli]_\w{20}", text)
    assert "Not for operators" not in text

    assert run_tbservice("user", "sign-out", person.user_id, "--session", session_id)[0] == 0
    with database.transaction() as db:
        assert sessions.list_sessions(db, person.user_id) == []


ACTS = {
    "suspend a workspace": (
        "/workspace/{workspace}",
        lambda w: {"act": "suspend", "kind": "workspace", "subject": w.workspace_id, "reason": "x"},
        lambda w: (Act.WORKSPACE_SUSPEND, w.workspace_id, w.workspace_id),
    ),
    "suspend a link": (
        "/workspace/{workspace}",
        lambda w: {"act": "suspend", "kind": "link", "subject": w.link["id"], "reason": "x"},
        lambda w: (Act.LINK_SUSPEND, w.link["id"], w.workspace_id),
    ),
    "suspend an experiment": (
        "/reports",
        lambda w: {"act": "suspend", "kind": "experiment", "subject": w.experiment, "reason": "x"},
        lambda w: (Act.EXPERIMENT_SUSPEND, w.experiment, w.workspace_id),
    ),
    "suspend a person": (
        "/person/{person}",
        lambda w: {"act": "suspend", "kind": "person", "subject": w.owner.user_id, "reason": "x"},
        lambda w: (Act.PERSON_SUSPEND, w.owner.user_id, NO_WORKSPACE),
    ),
    "set a quota": (
        "/workspace/{workspace}",
        lambda _w: {"act": "quota", "points": "5,000", "members": "none"},
        lambda w: (Act.QUOTA_SET, w.workspace_id, w.workspace_id),
    ),
    "revoke a token of a workspace": (
        "/workspace/{workspace}",
        lambda w: {"act": "revoke-token", "token_id": w.token_id()},
        lambda w: (Act.TOKEN_REVOKE, w.token_id(), w.workspace_id),
    ),
    "revoke a token of a person": (
        "/person/{person}",
        lambda w: {"act": "revoke-token", "token_id": w.token_id()},
        lambda w: (Act.TOKEN_REVOKE, w.token_id(), w.workspace_id),
    ),
    "end a session": (
        "/person/{person}",
        lambda w: {"act": "end-session", "session_id": w.session_id()},
        lambda w: (Act.SESSION_END, w.owner.user_id, NO_WORKSPACE),
    ),
    "end all sessions": (
        "/person/{person}",
        lambda w: {"act": "end-sessions", "x": w.session_id()},
        lambda w: (Act.SESSION_END, w.owner.user_id, NO_WORKSPACE),
    ),
    "close a report": (
        "/reports",
        lambda w: {"act": "close", "report": w.report(), "note": "done"},
        lambda _w: (Act.REPORT_CLOSE, "", NO_WORKSPACE),
    ),
}


@pytest.mark.parametrize("name", ACTS)
def test_act_of_operator_is_done_and_recorded_with_person(world, database, name):
    path, make_fields, make_record = ACTS[name]
    fields = make_fields(world)
    answer = world.post(path, **fields)
    assert answer.status_code == 303, answer.text
    assert 'role="status"' in world.page.get(answer.headers["location"]).text
    act, object_id, workspace = make_record(world)
    made = acts_of(database, str(object_id or fields["report"]), workspace)[0]
    assert (made.act, made.means, made.user_id) == (act, "session", world.operator.user_id)
    if fields["act"] == "suspend":
        fields |= {"act": "release"}
        assert world.post(path, **fields).status_code == 303
        assert world.post(path, **fields).status_code == 409  # it is not suspended any more


def test_act_of_operator_holds_from_the_next_request(world):
    suspension = {"kind": "workspace", "subject": world.workspace_id}
    world.post("/workspace/{workspace}", act="suspend", reason="Write to <us>", **suspension)
    refused = world.api.request("GET", f"/experiments/{world.experiment}")
    assert (refused.status_code, refused.json()["code"]) == (451, "suspended")
    assert "Write to &lt;us&gt;" in world.page.get(world.address("/workspace/{workspace}")).text
    world.post("/workspace/{workspace}", act="release", **suspension)
    world.post("/person/{person}", act="revoke-token", token_id=world.token_id())
    assert world.api.request("GET", f"/experiments/{world.experiment}").status_code == 401


def test_act_of_operator_with_old_sign_in_is_refused(world, database):
    let_sign_in_be_old(database, world.operator)
    for path in FORMS:
        person = {"kind": "person", "subject": world.owner.user_id}
        answer = world.post(path, act="suspend", reason="x", **person)
        assert answer.status_code == 403
        assert "You signed in more than 15 minutes ago" in answer.text
    assert world.post("/workspace/{workspace}", act="quota", points="1").status_code == 403
    assert "suspended" not in {
        each.act.split(".")[-1] for each in acts_of(database, world.owner.user_id)
    }


def test_wrong_form_of_operator_says_why(world):
    for path, fields, status, said in (
        ("/workspace/{workspace}", {"act": "nonsense"}, 422, "choose one of the offered values"),
        (
            "/workspace/{workspace}",
            {"act": "quota", "points": "-1"},
            422,
            "points is a whole number",
        ),
        ("/workspace/{workspace}", {"act": "quota", "plan": "gold"}, 422, "there is no plan"),
        ("/workspace/{workspace}", {"act": "end-sessions"}, 422, "on the page of a person"),
        ("/person/{person}", {"act": "quota", "points": "1"}, 422, "on the page of a workspace"),
        ("/person/{person}", {"act": "end-session", "session_id": "x"}, 404, "no such session"),
        ("/reports", {"act": "close", "report": "x"}, 404, "there is no report x"),
        ("/reports", {"act": "suspend", "kind": "link", "subject": "x"}, 422, "a reason has 1 to"),
    ):
        answer = world.post(path, **fields)
        assert (answer.status_code, said in answer.text.lower()) == (status, True), answer.text
    for path in ("/workspace/999999", "/workspace/x", "/person/x"):
        assert world.page.get(f"/operator{path}").status_code == 404


def rows_of(answer):
    """The ids in the links of a list."""
    return re.findall(r'<a href="/operator/(?:workspace|person)/(\w+)" dir', answer.text)


@pytest.mark.own_database
def test_list_of_workspaces_is_ordered_filtered_and_paged(world, database, database_url):
    made = [new_workspace(database_url).workspace_id for _ in range(51)]
    api = ApiClient(world.client, new_machine_token(database, made[7], Scope.APPEND))
    api.new_experiment(scalars("loss", range(9)))
    with database.transaction() as db:
        suspensions.suspend(db, Suspendable.WORKSPACE, str(made[3]), "x")

    def listed(query=""):
        return [int(each) for each in rows_of(world.page.get(f"/operator?{query}"))]

    assert listed("order=points")[0] == listed()[0] == made[7]
    assert listed("order=oldest") == [world.workspace_id, *made[:49]]
    assert listed("order=oldest&page=2") == made[49:]
    assert listed("order=newest")[0] == made[-1]
    assert listed("state=suspended") == [made[3]]
    world.client.app.state.traffic.store()
    world.api.request("GET", "/experiments")
    world.client.app.state.traffic.store()
    assert listed("order=used")[:2] == [world.workspace_id, made[7]]
    assert listed(f"q={made[5]}") == [made[5]]
    assert listed("q=nothing%25") == listed("page=9") == []
    world.report()
    assert listed("state=reported") == [listed("order=reports")[0]] == [world.workspace_id]
    for wrong in ("page=x", "page=-1", "order=x", "state=x", "q=%00", "page=99999999999999999999"):
        assert world.page.get(f"/operator?{wrong}").status_code == 200, wrong


def test_list_of_people_is_ordered_filtered_and_paged(world, database):
    bob = new_person(database, "bob.of.lists@example.org", name="Bob")

    def listed(query):
        return rows_of(world.page.get(f"/operator/people?{query}"))

    assert listed("q=Bob.of.LISTS") == [bob.user_id] == listed("")[:1]

    def record_sign_in():
        acting.identify(Means.LINK, "", bob.user_id)
        with database.transaction() as db:
            record(db, Act.SIGN_IN, None, bob.user_id)

    contextvars.Context().run(record_sign_in)
    assert listed("order=sign_in")[0] == bob.user_id
    assert listed("state=operator&q=" + world.operator.user_id) == [world.operator.user_id]
    with database.transaction() as db:
        people.disable(db, bob.user_id)
    assert listed("state=disabled&q=bob.of") == [bob.user_id]
    assert listed("state=active&q=bob.of") == []
    assert world.page.get("/operator/people?order=name&page=2").status_code == 200


def test_health_page_counts_what_was_refused(world):
    world.page.get("/no/such/page")
    shown = world.page.get("/operator/health").text
    assert "Writable" in shown
    assert f"<code>{list_migrations()[-1].name}</code>" in shown
    assert re.search(r"<code>unmatched</code></td><td><code>not_found</code>", shown)


def test_health_page_shows_the_last_backup(world, database):
    assert "None is recorded" in world.page.get("/operator/health").text
    began_at = datetime.now(UTC).isoformat()
    details = {"bytes": 2_000_000, "objects": 1, "lost": 1, "keep_days": "30.0"}
    with database.transaction() as db:
        record(db, Act.DATABASE_BACKUP, None, "one", target="/b", began_at=began_at, **details)
    shown = world.page.get("/operator/health").text
    assert "<code>one</code> in <code>/b</code>" in shown
    assert "1 object lost" in shown
    assert "kept until" in shown
