"""Pages with curves without a browser: which tags and runs they show to whom, in which order, and
what their script gets.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from html import unescape
from urllib.parse import urlencode

import pytest

from support.batches import scalars, segment, stream
from support.hparams import HparamsClient, start
from support.page_forms import HTML
from support.servers import new_workspace
from support.share_links import make_link
from tbservice.pages.experiments.chart_cards import CARD_ITEMS
from tbservice.runs import comparison, group_bands

HOSTILE = '"><script>alert(1)</script>\u202e' + "x" * 2_000


def config_of(page):
    """Return what a page's script gets."""
    return json.loads(unescape(re.search(r'data-charts="([^"]*)"', page.text)[1]))


def about(experiment, **query):
    return f"/experiment/{experiment}/about?{urlencode(query)}"


def write(api, experiment, run, tags, points=9):
    series = [scalars(tag, range(points)) for tag in tags]
    api.write(experiment, segment(stream(run), 0, 9, *series))


def test_cards_are_in_order_of_lists_and_in_pages(api, viewer, experiment):
    tags = [f"metric {number:02}" for number in range(CARD_ITEMS)]
    write(api, experiment, "run", ["system/cpu", *tags, "val loss"])
    write(api, experiment, "final", ["a final value"], points=1)
    first = config_of(viewer.get(about(experiment)))
    assert first["tags"] == ["val loss", *tags[:-1]]
    last = viewer.get(about(experiment, page=2))
    assert config_of(last)["tags"] == [tags[-1], "system/cpu", "a final value"]
    assert "Tags 13 to 15 of 15" in last.text
    searched = viewer.get(about(experiment, tag="METRIC 0"))
    assert config_of(searched)["tags"] == tags[:10]
    assert "No scalar has a tag like that" in viewer.get(about(experiment, tag="%")).text
    for page in ("0", "-1", "x", "9" * 30):
        assert config_of(viewer.get(about(experiment, page=page)))["tags"] == first["tags"]
    for search in ({}, {"tag": "l"}):
        assert "No more tags" in viewer.get(about(experiment, page=9, **search)).text


def test_runs_of_cards_are_found_by_name(api, viewer, experiment):
    for name in ("train", "validation", "train/deep"):
        write(api, experiment, name, ["loss"])
    config = config_of(viewer.get(about(experiment)))
    assert {each["run"] for each in config["runs"]} == {"train", "validation", "train/deep"}
    assert config["has_all_runs"]
    config = config_of(viewer.get(about(experiment, run="TRAIN")))
    assert {each["run"] for each in config["runs"]} == {"train", "train/deep"}
    assert not config["has_all_runs"]


def test_page_without_script_has_picture_and_table(api, viewer, experiment):
    write(api, experiment, "train", ["loss"], points=8)
    page = viewer.get(about(experiment)).text
    assert re.search(r'<svg class="plain".*<polyline class="plain-0"', page)
    assert re.search(r"<bdi>train</bdi></th><td class=\"number\">7</td>", page)
    assert (
        "<label>X axis <select" in page
    )  # a line that is too narrow parts no label from its field


def test_heads_stand_above_numbers_where_first_run_has_none(api, viewer, workspace_id):
    client = HparamsClient(api, api.new_experiment())
    client.write("trial", start({"lr": 0.1}))
    client.write("trial/train", scalars("loss", [1]))
    head = r'<th scope="col" class="number"[^>]*>(<a[^>]*>)?<bdi>loss</bdi>'
    for address in (about(client.experiment_id), f"/workspace/{workspace_id}/runs"):
        assert re.search(head, viewer.get(address).text), address


def test_hostile_names_are_text_for_page_and_script(api, viewer, experiment):
    write(api, experiment, HOSTILE, [HOSTILE, "__proto__"])
    page = viewer.get(about(experiment))
    config = config_of(page)
    assert config["runs"][0]["run"] == HOSTILE
    assert set(config["tags"]) == {HOSTILE, "__proto__"}
    assert "<script>alert" not in page.text


def test_token_of_script_reads_this_experiment_alone(api, client, viewer, experiment):
    write(api, experiment, "train", ["loss"])
    other = api.new_experiment()
    sources = config_of(viewer.get(about(experiment)))["sources"]
    assert sources == config_of(viewer.get(about(experiment)))["sources"]
    assert [each["id"] for each in sources] == [experiment]
    headers = {"Authorization": f"Bearer {sources[0]['token']}"}
    for id_, status in ((experiment, 200), (other, 404)):
        data = f"/api/v1/experiments/{id_}/scalars/data"
        assert client.get(data, headers=headers).status_code == status
    change = {"name": "changed"}
    path = f"/api/v1/experiments/{experiment}"
    assert client.patch(path, json=change, headers=headers).status_code == 403
    assert client.get("/api/v1/experiments", headers=headers).status_code == 403


def test_link_shows_its_slice_and_what_people_wrote(api, client):
    experiment = api.new_experiment(
        description="**bold**", notes="seen", tags=["paper"], properties={"area": "vision"}
    )
    for run in ("train", "secret-run"):
        write(api, experiment, run, ["loss", "secret-tag"])
    link = make_link(api, experiment, runs="train", tags="loss")
    headers = {**HTML, "cookie": f"tbhub_read={link['token']}"}
    page = client.get(about(experiment), headers=headers)
    assert page.status_code == 200
    for shown in ("<strong>bold</strong>", "seen", "paper", "vision", "Shared by link"):
        assert shown in page.text
    assert "secret" not in page.text
    config = config_of(page)
    assert config["sources"] == [{"id": experiment, "token": link["token"]}]
    assert ([each["run"] for each in config["runs"]], config["tags"]) == (["train"], ["loss"])
    for path, status in (("downloads", 200), ("access", 403)):
        answer = client.get(f"/experiment/{experiment}/{path}", headers=headers)
        assert answer.status_code == status
        assert "secret" not in answer.text


def test_link_shows_hyperparameters_that_its_pattern_shows(api, client, experiment):
    hparams = HparamsClient(api, experiment)
    for run in ("train", "secret-run"):
        hparams.write(run, start({"lr": 0.125, f"of {run}": 1}), scalars("loss", [1], [0.625]))
    for tags, is_shown in (("loss", False), ("loss|_hparams_/.*", True), (None, True)):
        link = make_link(api, experiment, runs="train", **({"tags": tags} if tags else {}))
        headers = {**HTML, "cookie": f"tbhub_read={link['token']}"}
        page = client.get(about(experiment), headers=headers).text
        assert "0.625" in page
        assert ("0.125" in page) is is_shown
        assert "secret-run" not in page


def test_page_takes_token_of_address_into_its_cookie(api, client, experiment):
    link = make_link(api, experiment)
    answer = client.get(
        about(experiment, token=link["token"]), headers=HTML, follow_redirects=False
    )
    assert (answer.status_code, answer.headers["location"]) == (303, about(experiment)[:-1])
    assert f"tbhub_read={link['token']}" in answer.headers["set-cookie"]
    assert f"Path=/experiment/{experiment}/" in answer.headers["set-cookie"]
    client.cookies.clear()
    nobody = client.get(about(experiment, token="tbh_" + "x" * 38), headers=HTML)
    assert nobody.status_code == 401


def test_everybody_reads_what_is_visible_by_link_without_token(api, client, experiment):
    write(api, experiment, "train", ["loss"])
    assert client.get(about(experiment), headers=HTML, follow_redirects=False).status_code == 303
    api.request("PATCH", f"/experiments/{experiment}", json={"visibility": "link"})
    page = client.get(about(experiment), headers=HTML)
    assert config_of(page)["sources"] == [{"id": experiment, "token": None}]


@pytest.fixture
def sweep(api):
    """Two experiments with two runs each; a fact and a package of their uploads differ."""
    ids = []
    for number, name in enumerate(("first", "second")):
        experiment = api.new_experiment(name=name)
        hparams = HparamsClient(api, experiment)
        for run in ("a", "b"):
            values = {"lr": 0.1 if run == "a" else 0.2, "optimizer": "adam"}
            values |= {"seed": (1, "1")[number], "eps": 0.25 + number * 1e-9}
            hparams.write(run, start(values), scalars("loss", range(3), [3, 2, number]))
        fields = {
            "origin": {"host": "gpu7", "gpus": f"{number + 1} x A100", "command": HOSTILE[:200]},
            "packages": [f"numpy=={number}", "torch==2"],
            "status_of": "upload",
            "started_at": "2026-01-31T12:00:00Z",
        }
        path = f"/experiments/{experiment}/uploads/{'a' * 16}"
        api.request("PUT", path, json=fields).raise_for_status()
        ids.append(experiment)
    return ids


def compare(workspace_id, **query):
    return f"/workspace/{workspace_id}/runs/compare?{urlencode(query, doseq=True)}"


def rows_of(page, part):
    """Return the properties in a part of the page of a comparison, with their values."""
    table, _, equal = page.text.partition("Equal in all runs")
    text = equal if part == "equal" else table[table.index('class="differences"') :]
    if part == "equal":
        facts = re.findall(r"<dt><bdi>(.*?)</bdi></dt><dd[^>]*>(.*?)</dd>", text)
        return dict(facts)
    rows = re.findall(r'<tr><th scope="row"><bdi[^>]*>(.*?)</bdi></th>(.*?)</tr>', text)
    return {name: re.findall(r"<td><bdi[^>]*>(.*?)</bdi>", cells) for name, cells in rows}


def test_selected_runs_are_compared(viewer, sweep, workspace_id):
    table = viewer.get(f"/workspace/{workspace_id}/runs").text
    ids = re.findall(r'name="id" value="(\w+:\w+)"', table)
    assert len(ids) == 4
    page = viewer.get(compare(workspace_id, id=ids))
    assert page.status_code == 200
    differences = rows_of(page, "different")
    assert differences["lr"] == ["0.1", "0.2", "0.1", "0.2"]
    assert differences["seed"] == ["&#34;1&#34;"] * 2 + ["1"] * 2
    assert differences["eps"] == ["0.250000001"] * 2 + ["0.25"] * 2
    assert differences["gpus"] == ["2 x A100"] * 2 + ["1 x A100"] * 2
    assert differences["numpy"] == ["1", "1", "0", "0"]
    assert differences["loss"] == ["1", "1", "0", "0"]
    equal = rows_of(page, "equal")
    assert (equal["optimizer"], equal["host"], equal["torch"]) == ("adam", "gpu7", "2")
    assert "<script>alert" not in page.text
    config = config_of(page)
    assert [each["label"] for each in config["runs"]] == ["second / a", "second / b", "first / a", "first / b"]  # fmt: skip
    assert (len(config["sources"]), config["tags"]) == (2, ["loss"])

    assert [each["id"] for each in config["sources"]] == sweep[::-1]
    single = viewer.get(compare(workspace_id, id=ids[0]))
    assert rows_of(single, "equal")["lr"] == "0.1"
    gone = viewer.get(compare(workspace_id, id=[ids[0], f"{sweep[0]}:{'0' * 16}"]))
    assert "1 run not there any more" in gone.text


@pytest.mark.usefixtures("sweep")
def test_runs_of_filter_are_compared(viewer, workspace_id):
    page = viewer.get(compare(workspace_id, where="lr < 0.15", sort="experiment_name"))
    assert [each["label"] for each in config_of(page)["runs"]] == ["first / a", "second / a"]
    assert "left out" not in page.text


@pytest.mark.usefixtures("sweep")
def test_comparison_says_what_is_wrong(api, viewer, workspace_id, database_url, client):
    for query in ({}, {"where": "lr <"}, {"where": "nothing = 1"}, {"id": "x"}, {"id": "x:y"}):
        page = viewer.get(compare(workspace_id, **query))
        assert page.status_code == 422, query
        assert 'role="alert"' in page.text
    other = new_workspace(database_url)
    foreign = type(api)(client, other.owner_token).new_experiment()
    assert viewer.get(compare(workspace_id, id=f"{foreign}:{'0' * 16}")).status_code == 422
    assert viewer.get(compare(other.workspace_id, id="x")).status_code == 404


def test_comparison_of_more_runs_than_are_drawn_says_so(
    api, viewer, workspace_id, experiment, monkeypatch
):
    monkeypatch.setattr(comparison, "COMPARED_RUNS_ITEMS_MAX", 100)
    for first in range(0, 110, 55):
        series = [scalars("loss", [1])]
        runs = [segment(stream(f"run {n:03}"), 0, 9, *series) for n in range(first, first + 55)]
        api.write(experiment, *runs)
    where = f'experiment = "{experiment}"'
    page = viewer.get(compare(workspace_id, where=where))
    config = config_of(page)
    assert (len(config["runs"]), config["is_distribution"], config["where"]) == (100, True, where)
    assert "left out" not in page.text
    assert "Of the first 100 runs; the first 25 have a column" in page.text

    other = api.new_experiment(name="the <other>")
    api.write(other, segment(stream("a"), 0, 1, scalars("loss", [1])))
    page = viewer.get(compare(workspace_id, where="loss.points = 1", sort="experiment"))
    assert not config_of(page).get("is_distribution")
    assert "11 runs left out" in page.text
    links = re.findall(r'<a href="([^"]*)"><bdi>([^<]*)</bdi></a> \((\d+)\)', page.text)
    assert [runs for _, _, runs in links] == ["1", "110"]
    assert links[0][1] == "the &lt;other&gt;"
    cut = viewer.get(unescape(links[1][0]))
    assert config_of(cut)["where"] == f"(loss.points = 1) and {where}"


def test_comparison_follows_running_experiments_first(api, viewer, workspace_id):
    ids = []
    for number in range(6):
        ids.append(api.new_experiment(name=f"try {number}"))
        api.write(ids[-1], segment(stream("a"), 0, 9, scalars("followed", [1])))
        if number:
            upload = {"origin": {}, "packages": [], "status_of": "upload"}
            started = {**upload, "started_at": datetime.now(UTC).isoformat()}
            path = f"/experiments/{ids[-1]}/uploads/{'a' * 16}"
            api.request("PUT", path, json=started).raise_for_status()
    where = " or ".join(f'experiment = "{id_}"' for id_ in ids[:5])
    page = viewer.get(compare(workspace_id, where=where))
    assert config_of(page)["live"] == [
        0,
        1,
        2,
        3,
    ]  # newest first: the one that does not run is last
    assert "appear by themselves" not in page.text
    everything = viewer.get(
        compare(workspace_id, where="followed.points = 1", sort="experiment_name")
    )
    assert config_of(everything)["live"] == [1, 2, 3, 4]
    assert "5 of these experiments are running" in everything.text
    for path in (f"/workspace/{workspace_id}/runs", f"/?workspace={workspace_id}"):
        assert "Rows of 4 of the 5 running experiments here" in viewer.get(path).text
    view = {"where": "followed.points = 1", "view": "x"}
    gone = viewer.get(compare(workspace_id, **view, sort="-gone", group="no"))
    assert "no run has a column &#39;gone&#39;" in gone.text
    assert 'card.svg?tag=followed&amp;where=followed.points+%3D+1"' in gone.text  # of runs
    groups = viewer.get(compare(workspace_id, where="followed.points = 1", group="run"))
    assert "5 of these experiments are running" in groups.text


def test_groups_are_computed_of_all_that_is_selected(
    api, viewer, workspace_id, experiment, monkeypatch
):
    monkeypatch.setattr(comparison, "COMPARED_RUNS_ITEMS_MAX", 1)
    hparams = HparamsClient(api, experiment)
    for run, kind, first in (("a", HOSTILE, 0), ("b", HOSTILE, 1), ("c", "far", 7)):
        losses = scalars("loss", range(first, first + 3), [3 * first, 3 * first + 1, 3 * first + 2])
        hparams.write(run, start({"kind": kind, "seed": first, "one": 1}), losses)
    hparams.write("d", start({"kind": "no loss", "seed": 9, "one": 1}), scalars("other", [0], [1]))

    where = f'experiment = "{experiment}"'
    page = viewer.get(compare(workspace_id, where=where, group="-seed", band="range", tag="loss"))
    config = config_of(page)
    labels = [each["label"] for each in config["runs"]]
    assert [label[:8] for label in labels] == ['kind="\\"', "kind=far", 'kind="no']
    assert [len(label) for label in labels] == [500, 8, 14]
    [[hostile, far]] = config["groups"]["cards"]
    assert (hostile["steps"], hostile["counts"]) == ([0, 1, 2, 3], [1, 2, 2, 1])
    assert (hostile["lower"], hostile["upper"]) == ([0, 1, 2, 5], [0, 3, 4, 5])
    assert hostile["center"] == [0, 2, 3, 5]
    assert (far["group"], far["runs"], far["steps"]) == (1, 1, [7, 8, 9])
    assert "<script>alert" not in page.text
    assert ("left out" in page.text, "Of the first" in page.text) == (False, False)

    key = re.search(r'data-key="(\w+)"', page.text)[1]
    query = {"where": where, "group": "-seed", "band": "range", "metric": "loss"}
    zoom = compare(workspace_id, **query, step_min=1, step_max=2).replace("?", "/groups?")
    script = {"sec_fetch_mode": "cors", "sec_fetch_dest": "empty", "x_tbhub_page": key}
    assert viewer.get(zoom, **{**script, "x_tbhub_page": "0" * 64}).status_code == 403
    for _ in range(2):  # the second is kept
        answer = viewer.get(zoom, **script).json()
        assert [name[:8] for name in answer["names"]] == [label[:8] for label in labels]
        [[curve]] = answer["cards"]
        assert (curve["steps"], curve["upper"]) == ([1, 2], [3, 4])
    hparams.write("a", scalars("loss", [2], [9]))
    [[curve]] = viewer.get(zoom, **script).json()["cards"]
    assert curve["upper"] == [3, 9]

    std = config_of(viewer.get(compare(workspace_id, where=where, group="kind", band="x")))
    [_, far] = std["groups"]["cards"][std["tags"].index("loss")]
    assert (far["center"], far["lower"]) == ([21, 22, 23], [None] * 3)  # of one run


@pytest.mark.usefixtures("sweep")
def test_groups_of_chosen_runs_say_what_limits_cut(viewer, workspace_id, monkeypatch):
    ids = re.findall(r'value="(\w+:\w+)"', viewer.get(f"/workspace/{workspace_id}/runs").text)
    monkeypatch.setattr(group_bands, "DRAWN_GROUP_ITEMS_MAX", 1)
    page = viewer.get(compare(workspace_id, id=ids[1:3], group="lr"))
    [[curve]] = config_of(page)["groups"]["cards"]
    assert (curve["runs"], curve["counts"]) == (1, [1] * 3)  # not that of the other experiment
    assert [each["label"] for each in config_of(page)["runs"]] == ["lr=0.1"]
    assert "2 groups" in page.text
    assert "The first 1 are drawn" in page.text
    monkeypatch.setattr(group_bands, "CURVE_POINTS_MAX", 5)
    page = viewer.get(compare(workspace_id, id=ids, group="lr"))
    assert config_of(page)["groups"]["cards"] == [[]]
    assert "5 are left, and this tag has 6" in page.text
    monkeypatch.setattr(comparison, "COMPARED_RUNS_ITEMS_MAX", 3)
    assert "1 run left out" in viewer.get(compare(workspace_id, id=ids, group="lr")).text
    for group, problem in (("nothing", "no run has a column"), ("-loss", "no hyperparameter")):
        page = viewer.get(compare(workspace_id, id=ids, group=group))
        assert page.status_code == 422
        assert problem in page.text
        assert len(config_of(page)["runs"]) == 3  # the comparison of the runs
