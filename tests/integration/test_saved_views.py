"""Views of the page of runs: history, names, what is gone, and what their links show."""

from __future__ import annotations

import html
import re
from urllib.parse import parse_qs, urlsplit

import pytest

from support.batches import ApiClient, scalars
from support.hparams import HparamsClient, start
from tbservice.runs.views import VIEW_VERSION_ITEMS_MAX


class Views:
    """Calls the views of the workspace of a token."""

    def __init__(self, api):
        self.api = api
        workspace = api.request("GET", "/me").json()["workspace"]["workspace_id"]
        self.path = f"/workspaces/{workspace}/views"

    def call(self, method, path="", **body):
        return self.api.request(method, self.path + path, json=body)

    def new(self, query, name="a view", **more):
        answer = self.call("POST", name=name, query=query, **more)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def names(self):
        return [view["name"] for view in self.api.request("GET", self.path).json()["views"]]


@pytest.fixture
def views(api):
    return Views(api)


@pytest.fixture
def sweep(api):
    """An experiment of three runs, with a hyperparameter and two metrics."""
    client = HparamsClient(api)
    for number in range(3):
        series = scalars("loss", [1, 2], [number, number]), scalars("secret", [1], [7.0])
        client.write(f"r{number}", start({"lr": number, "seed": number}), *series)
    return client.experiment_id


def open_page(reader, view):
    """Return the page that the address of a view leads to."""
    answer = reader.get(urlsplit(view["url"]).path)
    assert answer.status_code == 303
    return reader.get(answer.headers["location"])


def test_view_has_versions_of_which_last_ones_are_kept(views):
    view = views.new("where=lr+%3C+1&token=tbh_x&columns=lr&after=1")
    assert view["query"] == "where=lr+%3C+1&columns=lr"  # no page, and what is no view's
    path = f"/{view['id']}"
    for number in range(VIEW_VERSION_ITEMS_MAX):
        changed = views.call("PATCH", path, query=f"columns=c{number}").json()
    assert (changed["version"], changed["name"]) == (VIEW_VERSION_ITEMS_MAX + 1, "a view")
    assert views.call("PATCH", path, name="renamed").json()["query"] == changed["query"]
    versions = views.api.request("GET", views.path + path).json()["versions"]
    assert [each["version"] for each in versions] == list(range(52, 2, -1))
    assert views.names() == ["renamed"]
    assert views.call("DELETE", path).status_code == 204
    assert views.call("DELETE", path).status_code == 404
    assert views.names() == []


def test_view_refuses_bad_names_and_queries(views):
    view = views.new("")
    assert views.call("POST", name=" a  view ", query="").status_code == 409
    other = views.new("", name="other")
    assert views.call("PATCH", f"/{other['id']}", name="a view").status_code == 409
    for body in (
        {"name": " ", "query": ""},
        {"name": "x" * 61, "query": ""},
        {"name": "n", "query": "x" * 16_001},
        {"name": "n", "query": "where=%00"},
        {"name": "n", "query": "", "page": "experiments"},
        {"name": "n", "query": "where=%ff"},
    ):
        assert views.call("POST", **body).status_code == 422, body
    assert views.call("PATCH", "/%00", name="n").status_code == 404
    assert views.names() == ["a view", "other"]
    assert views.api.request("GET", f"{views.path}/{view['id']}").status_code == 200


@pytest.mark.usefixtures("sweep")
def test_view_of_gone_column_says_so_and_shows_rest(views, editor):
    view = views.new("columns=lr,momentum,loss&sort=-momentum&group=")
    page = open_page(editor, view)
    assert page.status_code == 200
    assert "no run has a column &#39;momentum&#39;" in page.text
    assert re.findall(r'class="name clip-lines"[^>]*>(r\d)', page.text) == ["r0", "r1", "r2"]
    grouped = views.new("group=-nothing,optimizer&columns=loss&sort=-runs", "grouped")
    page = open_page(editor, grouped).text
    assert "no run has a column &#39;optimizer&#39;" in page
    assert "3 groups" in page  # by all hyperparameters
    filtered = open_page(editor, views.new("where=nothing+%3C+1", "filtered"))
    assert filtered.status_code == 422


@pytest.mark.usefixtures("sweep")
def test_page_saves_changes_renames_and_deletes(views, editor):
    home = f"/workspace/{views.path.split('/')[2]}"
    form = {"page": "runs", "query": "columns=lr", "name": '"><b>Ann'}
    saved = editor.post(f"{home}/views", form).headers["location"]
    assert editor.post(f"{home}/views", form).status_code == 409
    page = editor.get(editor.get(saved).headers["location"])
    assert "<bdi>&#34;&gt;&lt;b&gt;Ann</bdi>" in page.text
    path = saved.replace("/view/", "/views/")
    editor.post(path, {**form, "query": "columns=lr,loss", "act": "save"})
    assert "columns=lr%2Closs&view=" in editor.get(saved).headers["location"]
    assert "columns=lr&view=" in editor.get(f"{saved}?version=1").headers["location"]
    for version in ("3", "0", "x", "9" * 30):
        assert editor.get(f"{saved}?version={version}").status_code == 404
    editor.post(path, {"act": "rename", "name": "Bob"})
    assert views.names() == ["Bob"]
    editor.post(path, {"act": "delete"})
    assert editor.get(saved).status_code == 404


def test_link_of_view_shows_its_runs_and_metrics_alone(client, views, sweep):
    view = views.new("where=lr+%3C+1.5&columns=lr,loss.min")
    shared = views.call("POST", f"/{view['id']}/links").json()
    (link,) = shared["links"]
    assert (link["runs"], link["tags"]) == ("r0|r1", "loss")
    (token,) = parse_qs(urlsplit(shared["url"]).query)["token"]
    reader = ApiClient(client, token)
    shown = reader.get(sweep, "scalars")
    assert {run: list(tags) for run, tags in shown.items()} == {"r0": ["loss"], "r1": ["loss"]}
    with_hparams = views.call("POST", f"/{view['id']}/links", hparams=True).json()
    assert with_hparams["links"][0]["tags"] == "loss|_hparams_/.*"


@pytest.mark.usefixtures("sweep")
def test_link_of_view_over_experiments_opens_comparison(client, views, editor):
    other = HparamsClient(views.api)
    other.write("r0", start({"lr": 5}), scalars("loss", [1], [5.0]))
    view = views.new("columns=loss")
    path = f"/workspace/{views.path.split('/')[2]}/views/{view['id']}/share"
    page = editor.post(path, {"expires_days": "7"})
    url = urlsplit(html.unescape(re.search(r'id="link" value="([^"]+)"', page.text)[1]))
    assert url.path.startswith("/compare/")
    assert url.path.count(":") == 2
    opened = client.get(f"{url.path}?{url.query}", follow_redirects=False)
    assert opened.status_code == 303
    assert "token" not in opened.headers["location"]
    assert editor.post(path, {"expires_days": "x"}).status_code == 422


@pytest.mark.usefixtures("sweep")
def test_link_of_view_refuses_what_links_cannot_show(views):
    for query, reason in (
        ("where=lr+%3E+9&columns=loss", "no run"),
        ("columns=lr", "no metric"),
        ("where=lr+%3C", "expected"),
    ):
        view = views.new(query, query)
        answer = views.call("POST", f"/{view['id']}/links")
        assert answer.status_code == 422
        assert reason in answer.json()["detail"]
