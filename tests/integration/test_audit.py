"""The audit log: written with the act or not at all, bounded, chained, expired, and read."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta

import pytest
from psycopg import sql
from psycopg.errors import UndefinedTable
from sqlalchemy import exc, make_url, text

from support.batches import ApiClient, scalars
from support.page_forms import PageReader, new_reader
from support.people import new_member, new_personal_token, owner_of
from support.servers import database_name
from support.share_links import make_link
from tbservice.audit import acting
from tbservice.audit.acts import (
    AUDIT_DAY_ITEMS_MAX,
    AUDIT_NETWORKS_ITEMS_MAX,
    AUDIT_PERSON_DAY_ITEMS_MAX,
    SIGN_IN_FAILURES_PER_NETWORK_ITEMS_MAX,
    Act,
)
from tbservice.audit.chain import compute_digest
from tbservice.audit.log import check_chains, expire
from tbservice.audit.recording import NO_WORKSPACE, record
from tbservice.audit.tables import audit_records
from tbservice.auth import grants, people, tokens, workspaces
from tbservice.db.cluster import distribution
from tbservice.db.database import Database
from tbservice.db.engine import make_engine
from tbservice.errors import Conflict, StartupError
from tbservice.metrics import REGISTRY
from tbservice.server.administration import read_audit
from tbservice.types.audit import EPOCH, AuditFilter, AuditRecord, ChainHead
from tbservice.types.grants import Scope


def read(database, workspace_id, act=None, **wanted):
    """Return the records of a workspace, the newest first."""
    with database.snapshot(workspace_id) as db:
        return audit_records.list_page(db, workspace_id, AuditFilter(act, **wanted), None, 10_000)


def breaks(database, *workspace_ids):
    return list(check_chains(database, workspace_ids))


def new_token(database, workspace_id, label=""):
    owner = new_member(database, workspace_id)
    with database.transaction(workspace_id) as db:
        return tokens.create_workspace_token(db, owner_of(workspace_id, owner), [Scope.READ], label)


@pytest.fixture
def owner_api(client, database, workspace_id):
    """The API for a person who owns the workspace."""
    owner = new_member(database, workspace_id)
    return ApiClient(client, new_personal_token(database, workspace_id, owner, Scope.ADMIN))


def fail_after_record(db, workspace_id):
    record(db, Act.WORKSPACE_RENAME, workspace_id, "x")
    db.execute(text("SELECT 1 / 0"))


def test_act_that_is_rolled_back_leaves_no_record(database, workspace_id):
    before = read(database, workspace_id)
    with pytest.raises(exc.DataError), database.transaction(workspace_id) as db:
        fail_after_record(db, workspace_id)
    assert read(database, workspace_id) == before


def test_record_needs_a_transaction_that_writes_it(database, workspace_id):
    with database.without_transaction() as db, pytest.raises(LookupError):
        record(db, Act.WORKSPACE_RENAME, workspace_id, "x")


@pytest.mark.own_database
def test_act_fails_if_its_record_cannot_be_written(owner_api, rename_table, workspace_id, database):
    path = f"/workspaces/{workspace_id}/tokens"
    count = len(owner_api.request("GET", path).json()["tokens"])
    rename_table("audit_chains", "away")
    with pytest.raises(UndefinedTable):
        owner_api.request("POST", path, json={"scopes": ["read"]})
    rename_table("away", "audit_chains")
    assert len(owner_api.request("GET", path).json()["tokens"]) == count
    assert owner_api.request("POST", path, json={"scopes": ["read"]}).status_code == 201
    assert breaks(database, workspace_id) == []


@pytest.mark.own_database
def test_acts_work_before_the_migration(rename_table, workspace_id, database_url):
    rename_table("audit_records", "away")
    with closing(Database(database_url, 1)) as database:
        assert new_token(database, workspace_id)[0].token_id
        assert breaks(database, workspace_id) == []
    rename_table("away", "audit_records")


def test_acts_at_once_form_one_chain(database, workspace_id):
    before = len(read(database, workspace_id))

    def create(number):
        return new_token(database, workspace_id, str(number))[0].token_id

    with ThreadPoolExecutor(6) as threads:
        made = list(threads.map(create, range(24)))
    records = read(database, workspace_id)
    assert {each.object_id for each in records if each.act == Act.TOKEN_CREATE} >= set(made)
    assert [each.number for each in records] == list(range(before + 24, 0, -1))
    assert sorted(records, key=lambda each: each.recorded_at, reverse=True) == records
    assert breaks(database, workspace_id) == []


@pytest.mark.plain("the role that serves a cluster lacks the right")
def test_service_can_neither_change_nor_delete_records(database, workspace_id):
    before = read(database, workspace_id)
    assert before
    with database.transaction(workspace_id) as db:
        for statement in ("UPDATE audit_records SET network = 'x'", "DELETE FROM audit_records"):
            assert db.execute(text(statement)).rowcount == 0
    assert read(database, workspace_id) == before


@contextmanager
def application_role(servers, database_url):
    """Yield the URL of a role that serves beside the owner, and lacks the owner's rights."""
    engine = make_engine(database_url)
    url = make_url(database_url)
    role = sql.Identifier(f"{url.username}_app")
    superuser = servers.instance.postgres.connect_as_superuser
    with superuser("postgres") as db:
        db.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'test'").format(role))
    try:
        distribution.arrange(engine)
        url = url.set(username=f"{url.username}_app", password="test")
        yield url.render_as_string(hide_password=False)
    finally:
        engine.dispose()
        with superuser(database_name(database_url)) as db:
            db.execute(sql.SQL("DROP OWNED BY {}").format(role))
        with superuser("postgres") as db:
            db.execute(sql.SQL("DROP ROLE {}").format(role))


@pytest.mark.own_database
@pytest.mark.plain("makes a role that a cluster has")
def test_role_that_serves_lacks_the_rights(servers, database_url, database, workspace_id):
    with (
        application_role(servers, database_url) as url,
        closing(Database(url, 2)) as served,
    ):
        assert new_token(served, workspace_id)[0].token_id
        for statement in (
            "UPDATE audit_records SET network = 'x'",
            "DELETE FROM audit_records",
            "TRUNCATE audit_records",
            "DROP TABLE audit_records",
            "ALTER TABLE audit_records DISABLE ROW LEVEL SECURITY",
        ):
            with (
                pytest.raises(exc.ProgrammingError, match=r"permission denied|must be owner"),
                served.transaction(workspace_id) as db,
            ):
                db.execute(text(statement))
        assert breaks(served, workspace_id) == []
        old_id = workspace_of_records(database, 50)
        with pytest.raises(StartupError, match="cannot delete records"):
            expire(served, old_id, 40)
        assert expire(database, old_id, 40) == 1
        assert breaks(served, old_id) == []
    with database.transaction() as db:  # the policies still bind the owner, which may serve too
        assert db.execute(text("SELECT count(*) FROM workspaces")).scalar()
        assert not db.execute(text("SELECT count(*) FROM audit_records")).scalar()


def at(network):
    acting.begin_request(network, "a-request")


def test_first_use_from_each_network_is_recorded(database, workspace_id):
    token, secret = new_token(database, workspace_id)
    for network in ("192.0.2.1", "192.0.2.1", "2001:db8::/48", "192.0.2.1", "192.0.2.2"):
        at(network)
        with database.without_transaction() as db:
            grants.grant_workspace(db, secret, Scope.READ)
    records = read(database, workspace_id, Act.TOKEN_NETWORK)
    assert [each.network for each in records] == ["192.0.2.2", "2001:db8::/48", "192.0.2.1"]
    assert {(each.means, each.means_id, each.object_id) for each in records} == {
        ("token", token.token_id, token.token_id)
    }


def test_networks_of_a_token_are_bounded(database, workspace_id):
    _, secret = new_token(database, workspace_id)
    for number in range(AUDIT_NETWORKS_ITEMS_MAX + 3):
        at(f"198.51.100.{number}")
        with database.without_transaction() as db:
            grants.grant_workspace(db, secret, Scope.READ)
    assert len(read(database, workspace_id, Act.TOKEN_NETWORK)) == AUDIT_NETWORKS_ITEMS_MAX


def test_use_of_a_link_is_one_of_a_link(client, owner_api, database, workspace_id):
    experiment = owner_api.new_experiment()
    link = make_link(owner_api, experiment)
    reader = ApiClient(client, link["token"])
    for _ in range(2):
        assert reader.request("GET", f"/experiments/{experiment}").status_code == 200
    (records,) = read(database, workspace_id, Act.LINK_NETWORK)
    assert (records.means, records.means_id, records.user_id) == ("link", link["id"], "")


def test_export_is_recorded_once_a_day(owner_api, database, workspace_id):
    experiment = owner_api.new_experiment(scalars("loss", [1]))
    owner_api.get(experiment, "scalars/data", downsample=10)
    assert read(database, workspace_id, Act.EXPERIMENT_EXPORT) == []
    for _ in range(2):
        owner_api.get(experiment, "scalars/data", sampling="all")
    (records,) = read(database, workspace_id, Act.EXPERIMENT_EXPORT)
    assert (records.object_id, records.means) == (experiment, "token")


def test_download_is_an_export(client, database, workspace_id, owner_api):
    experiment = owner_api.new_experiment()
    reader = new_reader(client, database, new_member(database, workspace_id))
    answer = reader.get(f"/experiment/{experiment}/download/scalars.csv")
    assert answer.status_code == 200
    assert [each.means for each in read(database, workspace_id, Act.EXPERIMENT_EXPORT)] == [
        "session"
    ]


def test_frozen_link_is_recorded_before_it_is_made(owner_api, database, workspace_id):
    experiment = owner_api.new_experiment()
    make_link(owner_api, experiment, frozen=True)
    (made,) = read(database, workspace_id, Act.LINK_FREEZE)
    assert made.object_id == experiment


@pytest.mark.own_database
def test_failed_sign_ins_are_recorded_up_to_a_limit(client, database):
    def counted():
        name = "tbhub_sign_in_failures_total"
        return REGISTRY.get_sample_value(name, {"recorded": "false"}) or 0

    strangers, before = PageReader(client), counted()
    for _ in range(SIGN_IN_FAILURES_PER_NETWORK_ITEMS_MAX + 5):
        assert strangers.post("/sign-in/link", {"token": "x"}).status_code == 404
    records = read(database, NO_WORKSPACE, Act.SIGN_IN_FAIL)
    assert len(records) == SIGN_IN_FAILURES_PER_NETWORK_ITEMS_MAX
    assert json.loads(records[0].details) == {"reason": "link"}
    assert records[0].network
    assert counted() - before == 5
    assert breaks(database) == []


def set_day(database, workspace_id, items):
    """Let the workspace have so many acts today."""
    with database.transaction(workspace_id) as db:
        head, now = audit_records.lock_chain(db, workspace_id)
        full = head._replace(day=(now - EPOCH).days, day_items=items)
        audit_records.append(db, workspace_id, [], full)


def test_day_that_is_full_refuses_all_but_what_ends_a_right(owner_api, database, workspace_id):
    path = f"/workspaces/{workspace_id}/tokens"
    set_day(database, workspace_id, AUDIT_DAY_ITEMS_MAX - 1)
    made = owner_api.request("POST", path, json={"scopes": ["read"]}).json()
    refused = owner_api.request("POST", path, json={"scopes": ["read"]})
    assert (refused.status_code, refused.json()["code"]) == (409, "audit_full")
    assert owner_api.request("DELETE", f"{path}/{made['id']}").status_code == 204
    assert ApiClient(owner_api.client, made["token"]).request("GET", "/me").status_code == 401
    set_day(database, workspace_id, 0)
    assert owner_api.request("POST", path, json={"scopes": ["read"]}).status_code == 201


def test_deletion_without_room_for_its_record_deletes_nothing(owner_api, database, workspace_id):
    experiment = owner_api.new_experiment(scalars("loss", [1]))
    set_day(database, workspace_id, AUDIT_DAY_ITEMS_MAX)
    path = f"/experiments/{experiment}"
    for address, query in (
        (path, {}),
        (f"{path}/runs", {"run": "train"}),
        (f"{path}/series", {"run": "train", "tag": "loss"}),
    ):
        refused = owner_api.request("DELETE", address, params=query)
        assert (refused.status_code, refused.json()["code"]) == (409, "audit_full")
    assert owner_api.get(experiment, "scalars/data")["train"]["loss"]["total"] == 1
    assert breaks(database, workspace_id) == []


def test_revocation_that_is_repeated_is_recorded_once(owner_api, database, workspace_id):
    path = f"/workspaces/{workspace_id}/tokens"
    made = owner_api.request("POST", path, json={"scopes": ["read"]}).json()
    for _ in range(3):
        assert owner_api.request("DELETE", f"{path}/{made['id']}").status_code == 204
    assert len(read(database, workspace_id, Act.TOKEN_REVOKE)) == 1


def test_acts_of_a_person_are_bounded_in_a_day(database, workspace_id):
    member = new_member(database, workspace_id)
    acting.begin_request("192.0.2.1", "")
    with database.transaction() as db:
        for _ in range(AUDIT_PERSON_DAY_ITEMS_MAX):
            record(db, Act.PERSON_RENAME, None, member.user_id)
    with pytest.raises(Conflict, match="times today"), database.transaction() as db:
        people.rename(db, member.user_id, "another")
    with database.transaction() as db:
        assert people.find_person(db, member.user_id).name == "Ann"
        people.disable(db, member.user_id)


def test_texts_are_cut_and_stored(owner_api, database, workspace_id):
    owner_api.request("PATCH", f"/workspaces/{workspace_id}", json={"name": "n" * 200})
    owner = owner_of(workspace_id, new_member(database, workspace_id))
    with database.transaction(workspace_id) as db:
        record(db, Act.WORKSPACE_RENAME, workspace_id, "x", name="ä\0" * 300, of=owner.user_id)
    records = read(database, workspace_id, Act.WORKSPACE_RENAME)
    assert [json.loads(each.details)["name"] for each in records] == ["ä" * 200, "n" * 200]


def write_old(database, workspace_id, days):
    """Append a record that is so many days old, as if it had been written then."""
    with database.transaction(workspace_id) as db:
        head, now = audit_records.lock_chain(db, workspace_id)
        moment = now - timedelta(days=days)
        made = AuditRecord(
            head.number + 1, moment, Act.TOKEN_CREATE, "", "", "", "", "", f"{days}", "{}", b""
        )
        made = made._replace(digest=compute_digest(head.digest, workspace_id, made))
        moved = ChainHead(made.number, made.digest)
        audit_records.append(db, workspace_id, [made], moved)


def workspace_of_records(database, *days):
    """Return a new workspace whose records are so many days old."""
    with database.transaction() as db:
        statement = "INSERT INTO workspaces (name) VALUES ('old') RETURNING workspace_id"
        workspace_id = db.execute(text(statement)).scalar_one()
    for each in days:
        write_old(database, workspace_id, each)
    return workspace_id


@pytest.mark.own_database
@pytest.mark.plain("the role that serves a cluster lacks the right")
def test_expired_records_leave_an_anchor(database, workspace_id, settings, maintenance_command):
    other = workspace_of_records(database, 500, 450, 100)
    assert maintenance_command(settings)("expire-audit") == (
        0,
        "",
        "2 records older than 400 days deleted\n",
    )
    left = read(database, other)
    assert [each.act for each in left] == [Act.AUDIT_EXPIRE, Act.TOKEN_CREATE]
    assert json.loads(left[0].details)["last_number"] == 2
    assert breaks(database, workspace_id, other) == []
    assert expire(database, other, 50) == 1
    assert [each.number for each in read(database, other)] == [5, 4]
    assert breaks(database, workspace_id, other) == []
    assert expire(database, other, 1) == 0


@pytest.mark.plain("the role that serves a cluster lacks the right")
def test_expiry_ends_before_a_record_of_a_clock_that_jumped(database):
    workspace_id = workspace_of_records(database, 500, 5, 500)
    assert expire(database, workspace_id, 400) == 1
    assert [each.number for each in read(database, workspace_id)] == [4, 3, 2]
    assert breaks(database, workspace_id) == []


@pytest.mark.own_database
def test_check_finds_a_record_that_was_changed(
    servers, settings, database_url, workspace_id, maintenance_command, database
):
    new_token(database, workspace_id)
    run = maintenance_command(settings)
    assert run("check", "--no-objects", "--quiet")[0] == 0
    changes = (
        ("UPDATE audit_records SET network = 'x' WHERE number = 1", "record 1 is not as"),
        ("DELETE FROM audit_records WHERE number = 2", "missing"),
    )
    for statement, message in changes:
        with servers.instance.postgres.connect_as_superuser(database_name(database_url)) as db:
            changed = db.execute(f"{statement} AND workspace_id = {workspace_id}")
            assert changed.rowcount == 1
        code, printed, _ = run("check", "--no-objects", "--quiet")
        assert code == 1
        assert f"(workspace {workspace_id})" in printed
        assert message in printed


def test_list_is_filtered_and_comes_in_pages(owner_api, database, workspace_id):
    path = f"/workspaces/{workspace_id}/audit"
    for number in range(5):
        owner_api.request(
            "POST",
            f"/workspaces/{workspace_id}/tokens",
            json={"scopes": ["read"], "label": f"={number}"},
        ).raise_for_status()

    def get(**query):
        answer = owner_api.request("GET", path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    everything = get()["records"]
    assert len(everything) == len(read(database, workspace_id))
    first = get(limit=4)
    rest = get(limit=1000, after=first["next"])
    assert first["records"] + rest["records"] == everything
    assert rest["next"] is None
    created = get(act="token.create")["records"]
    assert {each["act"] for each in created} == {"token.create"}
    person = created[0]["user_id"]
    assert len(get(actor=person, act="token.create")["records"]) == 5
    assert get(actor=created[0]["means_id"])["records"][0]["user_id"] == person
    assert get(object=created[2]["object_id"])["records"] == [created[2]]
    moment = created[2]["recorded_at"]
    assert get(since=moment, act="token.create")["records"] == created[:3]
    assert get(until=moment, act="token.create")["records"] == created[3:]


@pytest.mark.parametrize(
    "query", [{"act": "x"}, {"after": "x"}, {"since": "yesterday"}, {"limit": 0}, {"x": "y"}]
)
def test_list_refuses_what_it_does_not_know(owner_api, workspace_id, query):
    answer = owner_api.request("GET", f"/workspaces/{workspace_id}/audit", params=query)
    assert answer.status_code in (400, 422)


def test_page_shows_who_did_what_from_where(client, owner_api, database, workspace_id):
    hostile = '"><script>alert(1)</script>'
    owner_api.request("PATCH", f"/workspaces/{workspace_id}", json={"name": hostile})
    reader = new_reader(client, database, new_member(database, workspace_id))
    page = reader.get(f"/workspace/{workspace_id}/audit?act=workspace.rename").text
    assert "workspace.rename</code>" in page
    assert "token.create</code>" not in page
    assert hostile not in page
    nothing = reader.get(f"/workspace/{workspace_id}/audit?actor=nobody").text
    assert "Nothing was recorded that fits the filter." in nothing
    assert reader.get(f"/workspace/{workspace_id}/audit?after=x").status_code == 400


@pytest.mark.own_database
def test_command_prints_records_of_all_workspaces(settings, database, maintenance_command):
    with database.transaction() as db:
        person = people.find_or_create_by_email(db, "ann@example.org", "Ann")
    run = maintenance_command(settings)
    lines = [json.loads(line) for line in run("audit")[1].splitlines()]
    assert (lines[-1]["act"], lines[-1]["object_id"]) == ("person.create", person.user_id)
    assert json.loads(run("audit", "--workspace", "0", "--last", "1")[1]) == lines[-1]
    assert run("audit", "--workspace", "77") == (0, "", "")


@pytest.mark.own_database
def test_audit_follows_workspaces_that_are_created_meanwhile(settings, database):
    rounds = read_audit(settings, None, 100)
    next(rounds)
    with database.transaction() as db:
        created = workspaces.create_workspace(db, "later")
    with database.transaction() as db:
        people.find_or_create_by_email(db, "ann@example.org", "Ann")
    acts = [(place, made.act) for place, made in next(rounds)]
    assert acts == [(created, "workspace.create"), (0, "person.create")]
    assert next(rounds) == []
