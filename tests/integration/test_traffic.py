"""Requests and exported bytes of workspaces: counted by month, limited, shown."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import pytest
from sqlalchemy import text

from support.batches import ApiClient, scalars, segment, stream
from support.people import (
    cookie_of,
    new_member,
    new_person,
    new_personal_token,
    new_session,
    sign_in,
)
from support.quotas import set_quota
from support.share_links import make_link, reader_of, target_of
from tbservice.auth import workspaces
from tbservice.db.database import Database
from tbservice.errors import QuotaExceeded, Unavailable
from tbservice.experiments import deletion
from tbservice.experiments.tables import person_rows, workspace_rows
from tbservice.experiments.usage import read_usage
from tbservice.quotas.tables import traffic_groups, workspace_traffic
from tbservice.quotas.traffic import TrafficMeter
from tbservice.types.grants import Scope, WorkspaceGrant
from tbservice.types.identifiers import UserId
from tbservice.types.quotas import MACHINES

POINTS = 100


@pytest.fixture
def meter(client):
    """The counts of the test's application, which are stored when the test says so alone; `store`
    looks at the limits that tests set, too.
    """
    client.app.state.traffic.stop()
    return client.app.state.traffic


@pytest.fixture
def limit(database, workspace_id, meter, api):
    """Set limits of the workspace, and let the worker look at them, which takes a request."""

    def limit(**limits):
        set_quota(database, workspace_id, **limits)
        api.request("GET", f"/workspaces/{workspace_id}/usage")
        meter.store()

    return limit


def read(api, experiment):
    return api.request("GET", f"/experiments/{experiment}/scalars/data")


def write(api, experiment, number):
    steps = range(number * POINTS, (number + 1) * POINTS)
    return api.send(experiment, segment(stream(), number, number + 1, scalars("loss", steps)))


def usage_of(api, meter, workspace_id):
    meter.store()
    return api.request("GET", f"/workspaces/{workspace_id}/usage").json()


def test_requests_and_sent_bytes_are_counted(client, api, experiment, meter, workspace_id):
    write(api, experiment, 0)
    before = usage_of(api, meter, workspace_id)["traffic"][0]
    answers = [read(api, experiment) for _ in range(3)]
    stranger = client.get(f"/api/v1/experiments/{experiment}/scalars/data")
    head = client.head(f"/api/v1/experiments/{experiment}/scalars/data", headers=api.headers)
    assert (stranger.status_code, head.status_code) == (401, 200)
    after = usage_of(api, meter, workspace_id)
    (month,) = after["traffic"]
    assert re.fullmatch(r"\d{4}-\d{2}", month["month"])
    # With the question of before, which was answered after its own counts were stored.
    assert month["requests"] - before["requests"] == 1 + len(answers) + 1
    sent = month["export_bytes"] - before["export_bytes"]
    assert sent - sum(int(answer.headers["content-length"]) for answer in answers) < 4000
    assert after["limits"]["requests"] == {
        "used": month["requests"],
        "limit": None,
        "remaining": None,
    }
    csv = api.request("GET", f"/workspaces/{workspace_id}/usage", params={"format": "csv"}).text
    assert f"traffic,{month['month']},,,,,,,,,,{month['requests']},{month['export_bytes']}" in csv


def test_requests_are_counted_by_person_and_experiment(
    client, api, experiment, database, meter, workspace_id
):
    member = new_member(database, workspace_id)
    token = new_personal_token(database, workspace_id, member, Scope.READ)
    write(api, experiment, 0)
    reader = reader_of(client, make_link(api, experiment))
    frozen = make_link(api, experiment, frozen=True)
    session = cookie_of(sign_in(database, member))
    usage_of(api, meter, workspace_id)
    for _ in range(2):
        read(ApiClient(client, token), experiment).raise_for_status()
    client.get(f"/experiment/{experiment}/about", headers=session).raise_for_status()
    client.get(f"/workspace/{workspace_id}/settings", headers=session).raise_for_status()
    read(reader, experiment).raise_for_status()
    read(reader_of(client, frozen), target_of(frozen)).raise_for_status()
    usage = usage_of(api, meter, workspace_id)
    people = {each["key"]: each for each in usage["traffic_people"]}
    assert people[member.user_id]["requests"] == 4
    assert people[member.user_id]["name"] == member.name
    assert people["links"]["requests"] == 2
    for count in ("requests", "export_bytes"):
        assert sum(each[count] for each in people.values()) == usage["traffic"][0][count]
    (of_experiment,) = usage["traffic_experiments"]
    assert of_experiment["key"] == experiment
    # A batch and two links, and all above but the page of settings.
    assert of_experiment["requests"] == 3 + 5
    csv = api.request("GET", f"/workspaces/{workspace_id}/usage", params={"format": "csv"}).text
    month = usage["traffic"][0]["month"]
    assert f"\ntraffic_person,links{',' * 10}2,{people['links']['export_bytes']},{month}\n" in csv
    page = client.get(f"/workspace/{workspace_id}/usage", headers=session).text
    assert "Readers of links" in page[page.index('id="traffic-person"') :]
    assert f'href="/experiment/{experiment}/"' in page[page.index('id="traffic-experiment"') :]


def test_request_counts_for_one_person_and_each_experiment(database, workspace_id):
    meter = TrafficMeter(database)
    request = meter.begin_request()
    for experiment_id in (None, "first", "second", "first"):
        request.count(workspace_id, Scope.READ, MACHINES, experiment_id, is_member=True)
    request.add_bytes(10)
    meter.store()
    assert groups_of(database, workspace_id) == {
        MACHINES: (1, 10),
        "first": (1, 10),
        "second": (1, 10),
    }


def test_people_and_experiments_over_the_limit_are_one_row(database, workspace_id, monkeypatch):
    monkeypatch.setattr("tbservice.quotas.tables.traffic_groups.TRAFFIC_GROUPS_ITEMS_MAX", 2)
    meter = TrafficMeter(database)
    for experiment_id in ("first", "second", "third", "fourth", "fourth"):
        count(meter, workspace_id, experiment_id=experiment_id)
    meter.store()
    for experiment_id in ("first", "fifth"):
        count(meter, workspace_id, experiment_id=experiment_id)
    meter.store()
    assert groups_of(database, workspace_id) == {
        MACHINES: (7, 0),
        "first": (2, 0),
        "second": (1, 0),
        "others": (4, 0),
    }


def test_groups_go_with_their_month_person_and_experiment(experiment, database, workspace_id):
    person = new_member(database, workspace_id)
    meter = TrafficMeter(database)

    def count_all():
        for who in (person.user_id, MACHINES):
            meter.begin_request().count(workspace_id, Scope.READ, who, experiment, is_member=True)
        meter.store()

    count_all()
    with database.transaction(workspace_id) as db:
        db.execute(text("UPDATE traffic_groups SET month = month - interval '13 months'"))
    count_all()
    with database.transaction(workspace_id) as db:
        months = db.execute(text("SELECT count(DISTINCT month) FROM traffic_groups")).scalar_one()
    assert months == 1
    with database.transaction(workspace_id) as db:
        person_rows.delete_of_workspace(db, workspace_id, person.user_id)
    assert set(groups_of(database, workspace_id)) == {MACHINES, experiment}
    with database.transaction(workspace_id) as db:
        erasure = deletion.begin_erasure(db, workspace_id, experiment, is_due=True)
        assert deletion.erase_some(db, workspace_id, experiment, 1000, erasure)
    assert experiment not in groups_of(database, workspace_id)


@pytest.mark.own_database
def test_requests_are_counted_before_the_migration(rename_table, workspace_id, database_url):
    rename_table("traffic_groups", "away")
    with closing(Database(database_url, 1)) as database:
        meter = TrafficMeter(database)
        assert count(meter, workspace_id, 3) == 3
        meter.store()
        with database.transaction(workspace_id) as db:
            stored = read_usage(db, WorkspaceGrant(workspace_id), 10)
            assert (stored.totals.traffic.requests, stored.traffic_groups) == (3, [])
            person_rows.delete_of_workspace(db, workspace_id, UserId("nobody"))
            assert workspace_rows.delete_some(db, workspace_id, 100)["workspace_traffic"] == 1
    rename_table("away", "traffic_groups")


def groups_of(database, workspace_id):
    """Return what people and experiments have of all months, by key."""
    with database.transaction(workspace_id) as db:
        listed = traffic_groups.list_all(db, workspace_id)
    return {each.key: each.traffic for each in listed}


def test_counts_of_erased_workspace_are_not_stored(api, experiment, database, meter, workspace_id):
    meter.store()
    read(api, experiment)
    values = {"id": workspace_id}
    with database.transaction(workspace_id) as db:
        db.execute(text("DELETE FROM workspace_traffic WHERE workspace_id = :id"), values)
    with database.transaction(workspace_id) as db:
        db.execute(text("UPDATE workspaces SET name = '' WHERE workspace_id = :id"), values)
    meter.store()
    with database.transaction(workspace_id) as db:
        assert workspace_traffic.list_months(db, workspace_id) == []


def test_requests_over_quota_are_refused_exactly(
    api, experiment, database, workspace_id, meter, limit
):
    used = usage_of(api, meter, workspace_id)["limits"]["requests"]["used"]
    limit(requests=used + 10)
    answers = [read(api, experiment) for _ in range(12)]
    let_in = [answer.status_code for answer in answers].index(507)
    assert {answer.status_code for answer in answers[let_in:]} == {507}
    refused = answers[-1]
    content = refused.json()
    assert content["used"] == content["limit"] == used + 10
    assert content | {"detail": "", "resets_at": ""} == {
        "code": "quota_exceeded",
        "detail": "",
        "quota": "requests",
        "holder": "workspace",
        "used": used + 10,
        "limit": used + 10,
        "remaining": 0,
        "needed": 1,
        "resets_at": "",
    }
    assert content["resets_at"].endswith("-01T00:00:00+00:00")
    assert "may have" in content["detail"]
    seconds = int(refused.headers["Retry-After"])
    assert 0 < seconds <= 31 * 86_400
    policy = rf'"requests";q={used + 10};w=(2419200|2505600|2592000|2678400)'
    assert re.fullmatch(policy, refused.headers["RateLimit-Policy"])
    assert refused.headers["RateLimit"].startswith('"requests";r=0;t=')
    assert answers[0].headers["RateLimit"].startswith(f'"requests";r={let_in - 1};t=')
    # Also after the worker has looked again, and by a worker that begins.
    meter.store()
    assert read(api, experiment).status_code == 507
    with database.transaction(workspace_id) as db:
        stored = db.execute(text("SELECT requests FROM workspace_traffic")).scalar_one()
    assert stored == used + 10
    set_quota(database, workspace_id, requests=used + 20)
    meter.store()
    assert read(api, experiment).status_code == 200


def test_workspace_without_requests_left_can_be_managed(
    client, api, experiment, workspace_id, limit, database
):
    session = cookie_of(new_session(database, workspace_id))
    limit(requests=0)
    assert write(api, experiment, 0).status_code == 507
    assert api.request("POST", "/experiments", json={}).status_code == 507
    page = client.get(f"/workspace/{workspace_id}/usage", headers=session)
    assert (page.status_code, "Requests this month" in page.text) == (200, True)
    assert client.get(f"/workspace/{workspace_id}/settings", headers=session).status_code == 200
    assert client.get(f"/workspace/{workspace_id}", headers=session).status_code == 200
    refused = client.get(f"/experiment/{experiment}/about", headers=session)
    assert (refused.status_code, "may have 0 requests in a month" in refused.text) == (507, True)
    assert api.request("DELETE", f"/experiments/{experiment}").status_code == 204


def test_exports_over_quota_leave_uploads_alone(client, api, experiment, limit):
    write(api, experiment, 0)
    link = make_link(api, experiment)
    limit(export_bytes=1)
    assert write(api, experiment, 1).status_code == 200
    refused = read(api, experiment)
    assert (refused.status_code, refused.json()["quota"]) == (507, "export_bytes")
    assert 'qu="content-bytes"' in refused.headers["RateLimit-Policy"]
    reader = reader_of(client, link)
    answer = reader.request("GET", f"/experiments/{experiment}/scalars/data")
    # What is left, and of what, is for members.
    assert (answer.status_code, "RateLimit" in answer.headers) == (507, False)


def count(meter, workspace_id, times=1, experiment_id=None):
    """Count requests for uploads as a worker does; return how many were let in."""
    let_in = 0
    for _ in range(times):
        try:
            meter.begin_request().count(
                workspace_id, Scope.APPEND, MACHINES, experiment_id, is_member=True
            )
        except QuotaExceeded as error:
            assert error.used >= error.limit  # noqa: PT017 - of those that are refused
        else:
            let_in += 1
    return let_in


def look(meter, workspace_id):
    """Let a worker look at the limits, by a request that no quota refuses."""
    meter.begin_request().count(workspace_id, Scope.ADMIN, MACHINES, is_member=True)
    meter.store()


def test_threads_of_a_worker_let_in_exactly_the_quota(database, workspace_id):
    set_quota(database, workspace_id, requests=1001)
    meter = TrafficMeter(database)
    look(meter, workspace_id)
    with ThreadPoolExecutor(8) as pool:
        let_in = pool.map(lambda _: count(meter, workspace_id, 300), range(8))
    assert sum(let_in) == 1000
    meter.store()
    assert count(TrafficMeter(database), workspace_id) == 1  # a worker that has not looked yet


def test_workers_share_a_quota_that_a_month_brings_back(database, workspace_id):
    set_quota(database, workspace_id, requests=10)
    first, second = TrafficMeter(database), TrafficMeter(database)
    for meter in (first, second):
        look(meter, workspace_id)
    first.store()
    # What the other has let in since this one looked is not known to it: that much may be too much.
    assert [count(meter, workspace_id, 20) for meter in (first, second)] == [9, 8]
    first.store()
    second.store()
    with database.transaction(workspace_id) as db:
        assert workspace_traffic.find_present(db, workspace_id).requests == 19
        db.execute(text("UPDATE workspace_traffic SET month = month - interval '1 month'"))
    look(first, workspace_id)
    assert count(first, workspace_id, 20) == 9


def test_account_limits_requests_of_its_workspaces(database):
    person = new_person(database)
    with database.transaction() as db:
        make = partial(workspaces.create_for_person, db, person.user_id, is_permitted=True)
        places = [make(name).workspace_id for name in ("one", "two")]
    set_quota(database, person.user_id, requests=7)
    meter = TrafficMeter(database)
    for place in places:
        look(meter, place)
    assert count(meter, places[0], 3) == 3
    look(meter, places[0])
    look(meter, places[1])
    assert [count(meter, place, 3) for place in places] == [1, 0]
    names = dict(meter.list_fields(places[1]))["RateLimit-Policy"]
    assert names.startswith('"account_requests";q=7;w=')


def test_counts_wait_for_a_database_that_is_away(database, workspace_id):
    meter = TrafficMeter(Database("postgresql://nobody@127.0.0.1:1/none", 1))
    assert count(meter, workspace_id, 3) == 3
    with pytest.raises(Unavailable):
        meter.store()
    meter._database = database
    assert count(meter, workspace_id, 2) == 2
    meter.store()
    meter.store()
    with database.transaction(workspace_id) as db:
        assert workspace_traffic.find_present(db, workspace_id).requests == 5
