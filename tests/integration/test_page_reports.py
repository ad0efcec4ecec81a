"""Reports of shared pages: who can report what, what operators see, and the limits of it."""

from __future__ import annotations

import json
import re

import pytest
from sqlalchemy import text

from support.batches import scalars
from support.page_forms import PageReader, new_reader
from support.people import new_member
from support.share_links import make_link, target_of
from tbservice import metrics
from tbservice.audit.acting import begin_request
from tbservice.auth import grants
from tbservice.errors import Conflict
from tbservice.experiments import reports
from tbservice.types.people import Role
from tbservice.types.reports import ReportReason

HOSTILE = 'Look: <script>alert(1)</script>\r\n\x1b[2Jreport_id\tforged & "more"'
REPORT = {"reason": "private_data", "details": HOSTILE, "contact": "ann@example.org"}


@pytest.fixture
def experiment(api):
    return api.new_experiment(scalars("loss", [1]), name="Shared")


@pytest.fixture
def link(api, experiment):
    return make_link(api, experiment)


def stored(database):
    with database.transaction() as db:
        return reports.list_reports(db, with_closed=True)


def cookie_of(link):
    return {"cookie": f"tbhub_read={link['token']}"}


def send(client, experiment, fields=REPORT, **headers):
    return PageReader(client).post(f"/experiment/{experiment}/report", fields, **headers)


def outcomes():
    """Return how many reports had each outcome, of this process."""
    samples = [each for metric in metrics.REGISTRY.collect() for each in metric.samples]
    return {
        each.labels["outcome"]: each.value
        for each in samples
        if each.name == "tbhub_page_reports_total"
    }


@pytest.mark.own_database
def test_reader_of_link_reports_and_operator_closes(
    client, api, experiment, link, database, run_tbservice, workspace_id
):
    before = outcomes()
    page = PageReader(client)
    about = page.get(f"/experiment/{experiment}/about", **cookie_of(link))
    assert f'href="/experiment/{experiment}/report"' in about.text
    stock = page.get(f"/experiment/{experiment}/", **cookie_of(link))
    assert ">Report this page</a>" in stock.text
    form = page.get(f"/experiment/{experiment}/report", **cookie_of(link))
    assert set(re.findall(r'name="(\w+)"', form.text)) >= {"reason", "details", "contact"}
    sent = send(client, experiment, **cookie_of(link))
    assert (sent.status_code, sent.headers["location"][-14:]) == (303, "?done=reported")
    assert send(client, experiment, **cookie_of(link)).status_code == 303
    assert outcomes().get("stored", 0) - before.get("stored", 0) == 1
    assert outcomes().get("repeated", 0) - before.get("repeated", 0) == 1

    with database.transaction(workspace_id) as db:
        assert db.execute(text("SELECT count(*) FROM page_reports")).scalar() == 0  # of no tenant
    (listed,) = [json.loads(line) for line in run_tbservice("reports", "list", "--json")[1]]
    assert (listed["experiment_id"], listed["link_id"]) == (experiment, link["id"])
    assert (listed["reason"], listed["contact"], listed["user_id"]) == (
        *("private_data", "ann@example.org", ""),
    )
    assert "\x1b" not in listed["details"]
    report_id = listed["report_id"]
    _, lines, _ = run_tbservice("reports", "show", report_id)
    assert [line for line in lines if line.startswith("report_id\t")] == [f"report_id\t{report_id}"]
    assert "\t<script>" not in "".join(run_tbservice("reports", "list")[1])
    details = json.loads(run_tbservice("workspace", "list", "--json")[1][0])
    assert details["open_reports"] == 1
    seen_by_owner = api.request("GET", f"/workspaces/{workspace_id}/audit").text
    assert "report" not in seen_by_owner

    assert run_tbservice("reports", "close", report_id, "--note", "taken down")[0] == 0
    assert run_tbservice("reports", "list")[1] == []
    (closed,) = [
        json.loads(each) for each in run_tbservice("reports", "list", "--all", "--json")[1]
    ]
    assert (closed["note"], closed["closed_at"] is None) == ("taken down", False)
    code, _, err = run_tbservice("reports", "close", report_id)
    assert (code, "closed already" in err) == (1, True)
    assert run_tbservice("reports", "show", "none")[0] == 1
    acts = [json.loads(line) for line in run_tbservice("audit", "--workspace", "0")[1]]
    assert [each["object_id"] for each in acts if each["act"] == "report.close"] == [report_id]


@pytest.mark.own_database
def test_stranger_reports_what_is_public_alone(client, api, experiment, database):
    for name in (experiment, "0" * 22, "none"):
        answer = send(client, name)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/sign-in"), name
    assert send(client, experiment, cookie="tbhub_read=nonsense").status_code == 401
    assert stored(database) == []
    frozen = make_link(api, experiment, frozen=True)
    assert send(client, target_of(frozen), **cookie_of(frozen)).status_code == 303
    path = f"/experiments/{experiment}"
    api.request("PATCH", path, json={"visibility": "link"}).raise_for_status()
    assert send(client, experiment).headers["location"].endswith("done=reported")
    assert [(each.experiment_id, each.link_id) for each in stored(database)] == [
        (target_of(frozen), frozen["id"]),
        (experiment, ""),
    ]


@pytest.mark.own_database
def test_signed_in_reporter_is_stored_and_members_see_no_link(
    client, api, experiment, database, workspace_id
):
    path = f"/experiments/{experiment}"
    api.request("PATCH", path, json={"visibility": "link"}).raise_for_status()
    member = new_reader(client, database, new_member(database, workspace_id, Role.VIEWER))
    assert "/report" not in member.get(f"/experiment/{experiment}/about").text
    reader = new_reader(client, database)
    reader.post(f"/experiment/{experiment}/report", REPORT)
    assert stored(database)[0].user_id


@pytest.mark.own_database
def test_wrong_reports_are_refused(client, experiment, link, database):
    for fields, said in (
        ({**REPORT, "reason": "x"}, "offered values"),
        ({"details": HOSTILE}, "offered values"),
        ({**REPORT, "details": "y" * 2_001}, "at most 2000"),
        ({**REPORT, "contact": "y" * 255}, "at most 2000"),
    ):
        answer = send(client, experiment, fields, **cookie_of(link))
        assert (answer.status_code, said in answer.text) == (422, True), fields
        assert "<script>alert" not in answer.text
    elsewhere = {**cookie_of(link), "sec_fetch_site": "cross-site"}
    assert send(client, experiment, **elsewhere).status_code == 403
    assert stored(database) == []


@pytest.mark.own_database
def test_reports_are_limited_by_network_page_and_in_all(client, api, database, monkeypatch):
    links = [make_link(api, api.new_experiment()) for _ in range(4)]

    def report(network, link):
        """Report in the place of a route, from any network; return whether it was stored."""
        begin_request(network, "")
        with database.transaction() as db:
            grant = grants.grant_read(db, target_of(link), link["token"])
            return reports.report_page(db, grant, None, ReportReason.OTHER, "", "")

    monkeypatch.setattr(reports, "REPORTS_PER_NETWORK_ITEMS_MAX", 2)
    answers = [send(client, target_of(each), **cookie_of(each)) for each in links[:3]]
    assert [each.status_code for each in answers] == [303, 303, 409]
    assert "from your network" in answers[2].text

    monkeypatch.setattr(reports, "REPORTS_PER_EXPERIMENT_ITEMS_MAX", 2)
    assert [report(network, links[0]) for network in ("a", "a", "b")] == [True, False, False]

    monkeypatch.setattr(reports, "REPORTS_ITEMS_MAX", 3)
    with pytest.raises(Conflict) as full:
        report("c", links[3])
    assert full.value.code == "too_many_reports"
    assert len(stored(database)) == 3
    with database.transaction() as db:
        reports.close_report(db, stored(database)[0].report_id, "")
    assert report("c", links[3])
    assert len(stored(database)) == 3
