"""Runs that are selected in the table of a workspace: tagged, deleted and compared, by the page and
the API.
"""

from __future__ import annotations

import html
import re
from urllib.parse import urlencode

import numpy as np
import psycopg
import pytest

from support.batches import scalars, segment, stream
from support.direct_writer import new_grant, write_points
from support.hparams import HparamsClient, start
from support.page_forms import new_reader
from support.people import new_member
from support.share_links import make_link
from tbservice.db.database import Database
from tbservice.errors import Conflict
from tbservice.ingest.door import PointWriter
from tbservice.runs.comparison import choose_run
from tbservice.runs.grouped_reader import GroupsQuery, groups_address
from tbservice.runs.run_tags import change_run_tags
from tbservice.runs.use_cases import RunsQuery, list_runs
from tbservice.types.grants import AdminGrant, WorkspaceGrant
from tbservice.types.people import Role
from tbwire.points import ScalarPoints

RUN = "<b>a</b>/train"


@pytest.fixture
def table(workspace_id):
    """The path of the page."""
    return f"/workspace/{workspace_id}/runs"


@pytest.fixture
def experiments(api):
    """Two experiments with two runs of the same names."""
    ids = [api.new_experiment(name=name, tags=["paper"]) for name in ("<i>one</i>", "two")]
    for id_ in ids:
        for name in (RUN, "b"):
            api.write(id_, segment(stream(name), 0, 9, scalars("loss", range(5))))
    return ids


def refer(experiment, name):
    run = choose_run(experiment, name)
    return f"{run.experiment_id}:{run.digest}"


def runs_with(api, workspace_id, where):
    answer = api.request("GET", f"/workspaces/{workspace_id}/runs", params={"where": where})
    return sorted((run["experiment"], run["run"]) for run in answer.json()["runs"])


def test_selected_runs_are_tagged_and_found(api, browser, table, workspace_id, experiments):
    first, second = experiments
    selected = {"id": [refer(first, RUN), refer(second, "b"), refer(second, "gone"), "no run"]}
    fields = {**selected, "list": "where=loss+%3E+0&path=x", "tags": "best, <u>x</u>"}
    answer = browser.post(f"{table}/tag", {**fields, "act": "add"})
    assert answer.headers["location"] == f"{table}?where=loss+%3E+0&done=runs-tagged"
    tagged = sorted([(first, RUN), (second, "b")])
    assert runs_with(api, workspace_id, 'tags = "best" and tags = "<u>x</u>"') == tagged
    assert len(runs_with(api, workspace_id, 'tags = "paper"')) == 4
    page = browser.get(table).text
    assert page.count("<bdi>best</bdi>") == 2
    assert "<u>x</u>" not in page
    assert "where=tags+%3D+%22best%22" in page

    browser.post(f"{table}/tag", {**selected, "act": "remove", "tags": "BEST"})
    assert runs_with(api, workspace_id, 'tags = "best"') == []
    assert runs_with(api, workspace_id, 'tags = "<u>x</u>"') == tagged


def test_selected_runs_are_deleted_after_a_question(api, browser, table, workspace_id, experiments):
    first, second = experiments
    selected = {"id": [refer(first, RUN), refer(second, "b")], "list": "sort=-loss"}
    asked = browser.post(f"{table}/delete", selected)
    assert "Delete 2 runs?" in asked.text
    assert "<b>a</b>" not in asked.text
    assert all(html.escape(text) in asked.text for text in (RUN, "<i>one</i>", "two"))
    assert f'href="{table}?sort=-loss"' in asked.text
    assert len(runs_with(api, workspace_id, "")) == 4
    for _ in range(2):  # a button that is clicked twice
        answer = browser.post(f"{table}/delete", {**selected, "confirmed": "yes"})
        assert answer.headers["location"] == f"{table}?sort=-loss&done=runs-deleted"
    assert runs_with(api, workspace_id, "") == sorted([(first, "b"), (second, RUN)])


def test_selected_runs_are_compared(browser, table, experiments):
    selected = [refer(id_, RUN) for id_ in experiments]
    answer = browser.post(f"{table}/selected", {"id": selected})
    assert answer.status_code == 303
    assert browser.get(answer.headers["location"]).text.count(html.escape(RUN)) >= 2


def test_bad_selections_are_refused(client, database, browser, table, workspace_id, experiments):
    run = refer(experiments[0], "b")
    for path, fields, problem in (
        ("selected", {}, "Select the runs to compare"),
        ("delete", {"id": "no run"}, "Select 1 to 100 runs"),
        ("tag", {"tags": "x"}, "Select 1 to 100 runs"),
        ("tag", {"id": run, "tags": " , "}, "Name a tag"),
        ("tag", {"id": run, "tags": "x" * 65}, "at most 64 characters"),
        ("tag", {"id": run, "tags": ",".join(map(str, range(51)))}, "A run has at most 50 tags"),
    ):
        answer = browser.post(f"{table}/{path}", {**fields, "list": "sort=-loss"})
        assert (answer.status_code, problem in answer.text) == (422, True), problem
        assert 'value="-loss"' in answer.text
        assert (f'value="{run}" checked' in answer.text) == ("id" in fields and path == "tag")
        assert browser.post(f"{table}/{path}", fields, csrf=False).status_code == 403
    viewer = new_reader(client, database, new_member(database, workspace_id, Role.VIEWER))
    assert "/tag" not in viewer.get(table).text
    assert viewer.post(f"{table}/tag", {"id": run, "tags": "x"}).status_code == 403
    assert viewer.post(f"{table}/delete", {"id": run, "confirmed": "yes"}).status_code == 403


def test_runs_are_tagged_by_the_api(api, workspace_id, experiments):
    first, _ = experiments
    change = {"runs": [RUN, "b"], "add": ["b", " A  a "], "remove": ["x"]}
    for _ in range(2):
        assert api.request("PATCH", f"/experiments/{first}/runs", json=change).status_code == 204
    path = f"/workspaces/{workspace_id}/runs"
    query = {"where": f'experiment = "{first}"', "column": ["tags"], "group_by": ["tags"]}
    (group,) = api.request("GET", path, params=query).json()["runs"]
    assert (group["tags"], group["runs"]) == ("A a\nb\npaper", 2)
    unknown = api.request(
        "PATCH", f"/experiments/{first}/runs", json={**change, "runs": ["b", "?"]}
    )
    assert (unknown.status_code, unknown.json()["detail"]) == (
        404,
        "the experiment has no run '?': nothing was changed",
    )


def test_table_is_copied_with_hostile_names_escaped(api, browser, table):
    client = HparamsClient(api)
    for name, seed in (("a_&\\input{x}</textarea>", 1), ("b", 2)):
        client.write(name, start({"k_%": "x|$", "seed": seed}), scalars("loss", [1], [seed]))
    listed = html.unescape(browser.get(f"{table}?columns=loss").text)
    assert r"a\_\&\textbackslash{}input\{x\}\textless{}/textarea\textgreater{} & 1 \\" in listed
    assert r"| a\_\&\\input\{x\}\</textarea\> | 1 |" in listed
    assert "x}&lt;/textarea" in browser.get(f"{table}?columns=loss").text
    groups = html.unescape(browser.get(f"{table}?group=k_%25,seed&columns=loss").text)
    assert r"x\textbar{}\$ & 1 & 1 & 1 (1) \\" in groups  # a group of one has no deviation
    groups = html.unescape(browser.get(f"{table}?group=k_%25&columns=loss").text)
    assert r"x\textbar{}\$ & 2 & 1.5 $\pm$ 0.7 (2) \\" in groups
    assert r"| x\|\$ | 2 | 1.5 ± 0.7 (2) |" in groups


def test_columns_are_pinned_and_offered(api, browser, table):
    client = HparamsClient(api)
    client.write("a", start({"lr": 0.1, "seed": 1}), scalars("loss", [1, 2], [3, 4]))
    client.write("b", start({"lr": 0.1, "seed": 2}), scalars("loss", [1, 2], [3, 4]))
    page = browser.get(f"{table}?pin=loss.min,lr").text
    assert (
        re.findall(r'<td data-column="([\w.]+)" class="[^"]*pin-\d', page) == ["loss.min", "lr"] * 2
    )
    assert "Equal in all" not in page  # what is pinned is not folded away
    (link,) = re.findall(r'href="([^"]+)"><bdi>loss.max<', page)
    added = browser.get(html.unescape(link)).text
    assert 'data-column="loss.max"' in added
    assert 'data-column="seed"' in added
    refused = browser.get(f"{table}?pin=lr,seed,loss,loss.min")
    assert (refused.status_code, "4 columns are over the limit of 3" in refused.text) == (422, True)
    assert "did you mean loss" in html.unescape(browser.get(f"{table}?pin=los").text)


def test_runs_are_listed_before_migration_of_tags(servers):
    with servers.database() as url:
        database = Database(url, 1)
        with psycopg.connect(servers.owner_url(url)) as owner:
            owner.execute("ALTER TABLE runs DROP COLUMN tags")
        grant = new_grant(database)
        points = ScalarPoints(np.arange(3), np.ones(3), np.arange(3.0))
        with database.transaction(grant.workspace_id) as db:
            write_points(PointWriter(db), grant, points, 0, 1)
        with database.snapshot(grant.workspace_id) as db:
            columns = RunsQuery(columns=["run", "tags"])
            assert list_runs(db, WorkspaceGrant(grant.workspace_id), columns).rows == [
                ["run", None]
            ]
            with pytest.raises(Conflict):
                change_run_tags(
                    db, AdminGrant(grant.workspace_id, grant.experiment_id), ["run"], ["x"]
                )
        database.close()


def test_links_show_no_tags_of_runs(api, client, experiments):
    first, _ = experiments
    change = {"runs": ["b"], "add": ["secret"]}
    assert api.request("PATCH", f"/experiments/{first}/runs", json=change).status_code == 204
    path = f"{groups_address([first], GroupsQuery(('tags',)))}data/runs"
    link = make_link(api, first)
    for headers, groups in ((api.headers, 2), ({"Authorization": f"Bearer {link['token']}"}, 1)):
        assert len(client.get(path, headers=headers).json()) == groups


def test_page_has_its_table_as_files(browser, table, experiments):
    where = f'experiment = "{experiments[0]}" and loss.points > 1'
    shown = browser.get(
        f"{table}?{urlencode({'where': where, 'columns': 'loss.points', 'sort': '-run'})}"
    )
    links = [html.unescape(each) for each in re.findall(r'<a href="([^"]+)" download>', shown.text)]
    assert [each.partition("?")[0] for each in links] == [
        f"{table}/download/runs.{kind}" for kind in ("arrow", "csv", "parquet")
    ]
    answer = browser.get(links[1])
    assert answer.headers["content-disposition"] == 'attachment; filename="runs.csv"'
    first = f"{experiments[0]},<i>one</i>"
    lines = ["experiment,experiment_name,run,loss.points", f"{first},b,5", f"{first},{RUN},5"]
    assert answer.text.splitlines() == lines
    groups = browser.get(f"{table}/download/runs.csv?{urlencode({'where': where, 'group': 'run'})}")
    by_name = browser.get(f"{table}?{urlencode({'where': where, 'pattern': '(b)$'})}")
    assert '<td class="nowrap"><bdi>b</bdi></td>' in by_name.text
    (curves,) = re.findall(r'href="([^"]+)">Draw curves', by_name.text)
    drawn = browser.get(html.unescape(curves))
    assert "run_pattern=missing" in drawn.text
    assert "pattern=%28b%29%24" in html.unescape(drawn.text)  # as a picture, too
    assert groups.text.splitlines()[0].startswith("run,runs,loss.mean,loss.std,loss.count")
    for query, status in (("where=lr+<", 422), ("columns=lost", 422)):
        assert browser.get(f"{table}/download/runs.csv?{query}").status_code == status
    assert browser.get(f"{table}/download/runs.xls").status_code == 404
