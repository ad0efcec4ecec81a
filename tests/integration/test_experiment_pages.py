"""Our own pages of experiments without a browser: who may open and change what, hostile texts, and
forms that another site sends.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qsl, quote, urlsplit

import numpy as np
import pytest
from markupsafe import escape

from support.batches import scalars, segment, stream
from support.page_forms import HTML, new_reader
from support.people import new_member
from support.servers import make_workspace, new_workspace
from support.uploading import wait_until
from tbservice.auth.tables import members
from tbservice.experiments import deletion
from tbservice.experiments.bookmarks import SAVED_SEARCHES_ITEMS_MAX
from tbservice.pages.base.markdown import render_markdown
from tbservice.types.grants import AdminGrant
from tbservice.types.identifiers import ExperimentId
from tbservice.types.people import Role

HOSTILE = '"><script>alert(1)</script>'


@pytest.fixture
def stranger(client, database, database_url):
    other = new_workspace(database_url).workspace_id
    return new_reader(client, database, new_member(database, other))


@pytest.fixture
def hostile(api):
    """An experiment all of whose texts are markup."""
    experiment = api.new_experiment(
        name=HOSTILE,
        description=f"{HOSTILE} [x](javascript:alert(1)) ![i](http://other.example/i.png)",
        notes=f"<img src=x onerror=alert(1)>\n\n{HOSTILE}",
        tags=[HOSTILE],
        properties={HOSTILE: HOSTILE},
        origin={HOSTILE: HOSTILE, "command": HOSTILE},
    )
    api.write(experiment, segment(stream(HOSTILE), 0, 9, scalars(HOSTILE, range(9))))
    return experiment


def test_list_and_page_escape_what_users_write(editor, hostile, workspace_id):
    for path in (
        f"/?workspace={workspace_id}",
        f"/?workspace={workspace_id}&chart={quote(HOSTILE)}&tag={quote(HOSTILE)}&q={quote(HOSTILE)}",
        f"/experiment/{hostile}/about",
        f"/experiment/{hostile}/edit",
    ):
        page = editor.get(path)
        assert page.status_code == 200, page.text
        assert "alert(1)" in page.text
        assert not re.search(r"<script(?! src=)|<img|href=\"javascript", page.text)
        assert "other.example/i.png" not in re.sub('href="[^"]*"|<textarea.*?</textarea>', "", page.text, flags=re.DOTALL)  # fmt: skip


def test_stranger_who_may_read_learns_nothing_of_people(api, editor, stranger):
    experiment = api.new_experiment(visibility="link", origin={"host": "gpu7"})
    assert "gpu7" in editor.get(f"/experiment/{experiment}/about").text
    page = stranger.get(f"/experiment/{experiment}/about")
    assert page.status_code == 200
    assert "gpu7" not in page.text
    assert "Who can see it" not in page.text


def test_reader_of_link_gets_page_in_place_of_sign_in(api):
    experiment = api.new_experiment()
    about = f"/experiment/{experiment}/about"
    link = api.request("POST", f"/experiments/{experiment}/links", json={}).json()["token"]
    for cookie, status in (({"cookie": f"tbhub_read={link}"}, 200), ({}, 303)):
        answer = api.client.get(about, headers={**HTML, **cookie}, follow_redirects=False)
        assert answer.status_code == status
    assert answer.headers["location"].startswith("/sign-in?next=")


def test_selection_is_compared_under_names(api, editor, viewer, stranger):
    names = ("a/b, c:d", "same", "same", "", "..")
    ids = [api.new_experiment(name=name) for name in names]
    answer = editor.post("/experiments/compare", {"experiment": ids})
    assert answer.headers["location"] == (
        f"/compare/a-b- c-d:{ids[0]},same 2:{ids[1]},same 3:{ids[2]},unnamed {ids[3][:6]}:{ids[3]},"
        f"unnamed {ids[4][:6]}:{ids[4]}/".replace(" ", "%20")
    )
    assert viewer.post("/experiments/compare", {"experiment": ids[:2]}).status_code == 303
    assert stranger.post("/experiments/compare", {"experiment": ids}).status_code == 404


def test_move_page_shows_commands_for_chosen_workspace(
    api, client, database, workspace_id, viewer, stranger
):
    person = new_member(database, workspace_id, Role.EDITOR)
    editor = new_reader(client, database, person)
    ids = [api.new_experiment(name=name) for name in (HOSTILE, "b")]
    where = editor.post("/experiments/move", {"experiment": ids}).headers["location"]
    assert "You may change experiments in no other workspace" in editor.get(where).text
    assert "other-server" in editor.get(f"{where}&to=server").text

    others = [make_workspace(database).workspace_id for _ in range(2)]
    for other, role in zip(others, (Role.EDITOR, Role.VIEWER), strict=True):
        with database.transaction(other) as db:
            members.put(db, other, person.user_id, role)
    page = editor.get(where).text  # the only one in which experiments may be changed
    command = f"tbupload move {ids[0]} {ids[1]} --profile workspace-{workspace_id}"
    assert f'value="{command} --to workspace-{others[0]}"' in page
    assert HOSTILE not in page
    assert f'value="{others[1]}"' not in page
    assert "tbupload move" not in editor.get(f"{where}&to={others[1]}").text

    assert viewer.get(where).status_code == 403
    assert stranger.get(where).status_code == 404
    assert editor.get("/experiments/move?experiment=x").headers["location"] == "/"
    nothing = editor.post("/experiments/move", {"list": f"workspace={workspace_id}"})
    assert "Select the experiments to move." in nothing.text


@pytest.mark.parametrize(
    ("form", "selected", "said"),
    [
        ("compare", 0, "Select 2 to 10 experiments to compare, not 0."),
        ("compare", 1, "Select 2 to 10 experiments to compare, not 1."),
        ("compare", 12, "Select 2 to 10 experiments to compare, not 12."),
        ("delete", 0, "Select the experiments to delete."),
    ],
)
def test_refused_selection_keeps_list(api, editor, workspace_id, form, selected, said):
    ids = [api.new_experiment(name="kept") for _ in range(13)]
    fields = {"experiment": ids[:selected], "list": f"workspace={workspace_id}&q=kept&sort=name"}
    answer = editor.post(f"/experiments/{form}", fields)
    assert answer.status_code == 422
    assert f'role="alert" dir="auto">{said}</p>' in answer.text
    assert 'name="q" type="search" value="kept"' in answer.text
    assert 'value="name" selected' in answer.text
    assert sorted(re.findall(r'value="(\w+)" checked', answer.text)) == sorted(ids[:selected])


def test_deletion_and_undo_come_back_to_the_same_list(api, editor, workspace_id):
    experiment = api.new_experiment(name="sweep")
    shown = {"q": "sweep", "sort": "name"}
    fields = {"experiment": experiment, "workspace": workspace_id}
    fields["list"] = f"workspace={workspace_id}&q=sweep&sort=name&path=x&deleted=y&after=z"
    for form, done in (("delete", {"deleted": experiment}), ("restore", {"done": "restored"})):
        answer = editor.post(f"/experiments/{form}", fields)
        query = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
        assert query == {**shown, "workspace": str(workspace_id), **done}
        page = editor.get(answer.headers["location"]).text
        assert 'name="q" type="search" value="sweep"' in page
        if form == "delete":
            undo = re.search(r'action="/experiments/restore">.*?name="list" value="([^"]*)"', page)
            assert "q=sweep" in undo[1]


def test_edit_form_takes_the_longest_notes(api, editor, experiment):
    fields = {"notes": "ж" * 100_000, "description": "ж" * 100_000, "visibility": "private"}
    assert editor.post(f"/experiment/{experiment}/edit", fields).status_code == 303
    assert api.request("GET", f"/experiments/{experiment}").json()["notes"] == fields["notes"]


def test_list_has_pages(api, editor, workspace_id):
    names = [f"experiment {number:02d}" for number in range(60)]
    for name in names:
        api.new_experiment(name=name)
    seen, address = [], f"/?workspace={workspace_id}&sort=name"
    while address:
        page = editor.get(address).text
        seen += re.findall(r'class="name clip-lines"[^>]*>([^<]*)<', page)
        following = re.search(r'rel="next" href="([^"]*)"', page)
        address = following and following[1].replace("&amp;", "&")
    assert seen == names
    wrong = editor.get(
        f"/?workspace={workspace_id}&after=nonsense&sort=none&visibility=no&reverse=x"
    )
    assert wrong.status_code == 200


@pytest.mark.parametrize(
    "text", ["[" * 20_000, "![a" * 6_666, "> " * 10_000, "`" * 20_000, "*a " * 6_666]
)
def test_markdown_takes_bounded_time(text, monkeypatch):
    assert "<script" not in render_markdown(text)
    assert render_markdown("x" * 20_001).startswith("<pre>")
    monkeypatch.setattr("tbservice.pages.base.markdown.NOTES_MARKDOWN_SECONDS_MAX", 0.0)
    assert render_markdown(f"<b>\n{text}") == f"<pre>&lt;b&gt;\n{escape(text)}</pre>"


def test_form_keeps_properties_it_cannot_show(api, editor):
    kept = {"config": "a: 1\nb = 2", "k=v": "x", " spaced ": "y", "page": "\u2028"}
    experiment = api.new_experiment(properties={**kept, "lr": "0.1", "old": "z"})
    address = f"/experiment/{experiment}/edit"
    shown = re.search(
        r'<textarea id="properties".*?>\n(.*?)</textarea>', editor.get(address).text, re.DOTALL
    )
    assert sorted(shown[1].splitlines()) == ["lr = 0.1", "old = z"]

    fields = {"name": "n", "visibility": "private", "properties": "lr = 0.2"}
    assert editor.post(address, fields).status_code == 303
    properties = api.request("GET", f"/experiments/{experiment}").json()["properties"]
    assert properties == {**kept, "lr": "0.2"}


def test_selection_deleted_meanwhile_is_no_error(
    api, editor, database, workspace_id, count_waiting
):
    first, second = api.new_experiment(), api.new_experiment()
    grant = AdminGrant(workspace_id, ExperimentId(first))
    with ThreadPoolExecutor(1) as threads:
        with database.transaction(grant) as db:
            deletion.delete_experiment(db, grant)
            fields = {"experiment": [first, second], "workspace": workspace_id}
            deleting = threads.submit(editor.post, "/experiments/delete", fields)
            wait_until(count_waiting)
        assert deleting.result().status_code == 303
    assert api.request("GET", f"/experiments/{second}").status_code == 404


@pytest.fixture
def shown(workspace_id):
    """Lists the names of experiments on a reader's page of the list."""

    def list_names(reader, query=""):
        page = reader.get(f"/?workspace={workspace_id}&{query}")
        assert page.status_code == 200, page.text
        return re.findall(r'<a class="name clip-lines"[^>]*>([^<]*)</a>', page.text)

    return list_names


def test_list_is_worked_in_by_forms(api, editor, viewer, shown, workspace_id):
    ids = {name: api.new_experiment(name=name, tags=["old"]) for name in ("first", "second")}
    both = {"experiment": [*ids.values()], "workspace": workspace_id, "list": "q=st&after=x"}

    def post(reader, path, **fields):
        answer = reader.post(f"/experiments/{path}", {**both, **fields})
        assert answer.status_code == 303, answer.text
        return dict(parse_qsl(urlsplit(answer.headers["location"]).query))

    assert (
        post(viewer, "star", experiment=ids["first"]).items() >= {"q": "st", "after": "x"}.items()
    )
    assert (shown(viewer, "show=starred"), shown(editor, "show=starred")) == (["first"], [])
    post(viewer, "star", unstar=ids["first"], experiment=())
    assert shown(viewer, "show=starred") == []

    post(editor, "tag", tags="New, OLD ", act="add")
    assert shown(editor, "tag=new") == shown(editor, "tag=old") == ["second", "first"]
    post(editor, "tag", tags="old", act="remove")
    assert shown(editor, "tag=old") == []
    assert editor.post("/experiments/tag", {**both, "tags": ""}).status_code == 422

    assert 'name="name" value="first"' in editor.get(f"/?workspace={workspace_id}&edit={ids['first']}").text  # fmt: skip
    assert 'name="name" value' not in viewer.get(f"/?workspace={workspace_id}&edit={ids['first']}").text  # fmt: skip
    post(editor, "edit", experiment=ids["first"], name=HOSTILE, tags="a, b")
    refused = editor.post("/experiments/edit", {**both, "experiment": ids["first"], "name": "x" * 10_001, "list": f"workspace={workspace_id}"})  # fmt: skip
    assert refused.status_code == 422
    assert "x" * 10_001 in refused.text
    assert shown(editor, "tag=b") == [str(escape(HOSTILE))]

    assert post(editor, "archive")["done"] == "archived"
    assert (shown(editor), len(shown(viewer, "show=archived"))) == ([], 2)
    post(editor, "archive", act="restore", experiment=ids["second"])
    assert shown(viewer) == ["second"]
    about = editor.get(f"/experiment/{ids['first']}/about").text
    assert ">Archived</span>" in about


def test_searches_are_saved_for_their_person(editor, viewer, workspace_id):
    def save(name, **more):
        fields = {"workspace": workspace_id, "list": "q=a+b&after=x&show=starred", "name": name}
        return editor.post("/experiments/searches", {**fields, **more})

    address = f"/?workspace={workspace_id}"
    for number in range(SAVED_SEARCHES_ITEMS_MAX - 1):
        assert save(f"n{number}").status_code == 303
    assert save(HOSTILE).status_code == 303
    assert save("n0").status_code == 303
    for name in ("one more", "", "x" * 61):
        answer = save(name, list=f"workspace={workspace_id}&q=a")
        assert answer.status_code in {409, 422}
    page = editor.get(address).text
    assert f"<bdi>{escape(HOSTILE)}</bdi>" in page
    assert f'href="/?workspace={workspace_id}&amp;q=a+b&amp;show=starred"' in page
    assert "Saved searches" not in viewer.get(address).text
    save(HOSTILE, act="delete")
    assert str(escape(HOSTILE)) not in editor.get(address).text


def test_name_leads_to_its_experiment(api, editor, stranger, workspace_id):
    ids = {name: api.new_experiment(name=name) for name in ("net", "Net 2", "other")}

    def go(typed):
        answer = editor.get(f"/experiments/go?workspace={workspace_id}&q={quote(typed)}")
        return answer.headers["location"]

    assert go("NET") == f"/experiment/{ids['net']}/about"
    assert go("oth") == f"/experiment/{ids['other']}/about"
    for several in ("ne", "", "nothing"):
        assert go(several).startswith(f"/?workspace={workspace_id}")
    assert stranger.get(f"/experiments/go?workspace={workspace_id}&q=net").status_code == 404


def test_form_replaces_nothing_that_others_changed_meanwhile(api, editor, experiment):
    address = f"/experiment/{experiment}/edit"
    state = re.search(r'name="state" value="(\w+)"', editor.get(address).text)[1]
    by_job = {"properties": {"added": "by a job"}, "notes": "by a job"}
    api.request("PATCH", f"/experiments/{experiment}", json=by_job).raise_for_status()

    mine = {"name": "mine", "notes": "mine", "visibility": "private"}
    refused = editor.post(address, {**mine, "state": state})
    assert (refused.status_code, "since you opened the form" in refused.text) == (409, True)
    assert ">\nmine</textarea>" in refused.text
    stored = api.request("GET", f"/experiments/{experiment}").json()
    assert (stored["notes"], stored["properties"]) == ("by a job", {"added": "by a job"})

    state = re.search(r'name="state" value="(\w+)"', refused.text)[1]
    assert editor.post(address, {**mine, "state": state}).status_code == 303
    assert api.request("GET", f"/experiments/{experiment}").json()["notes"] == "mine"


def test_search_engines_may_list_only_what_is_published(api, editor, workspace_id):
    experiment = api.new_experiment(name="a public result")
    api.write(experiment, segment(stream("train"), 0, 9, scalars("loss", range(9))))
    place = f"/experiment/{experiment}"

    def change(**fields):
        return api.request("PATCH", f"/experiments/{experiment}", json=fields)

    def told():
        """Return what each page tells robots, by header and by tag."""
        pages = [api.client.get(f"{place}{path}", headers=HTML) for path in ("/about", "/")]
        assert api.client.get(f"{place}/downloads").headers["x-robots-tag"] == "noindex"
        return [(page.headers["x-robots-tag"], "noindex" in page.text) for page in pages]

    assert change(published=True).status_code == 409
    assert change(visibility="link").json()["published"] is False
    assert told() == [("noindex", True), ("noindex", False)]

    form = {"name": "a public result", "visibility": "link", "published": "1"}
    assert editor.post(f"{place}/edit", form).status_code == 303
    assert told() == [("all", False), ("all", False)]
    assert (
        f'rel="canonical" href="http://testserver{place}/about"'
        in editor.get(f"{place}/about").text
    )
    assert "search engines may list it" in editor.get(f"{place}/links").text
    assert re.search('name="published"[^>]* checked', editor.get(f"{place}/edit").text)
    (record, *_) = api.request("GET", f"/workspaces/{workspace_id}/audit").json()["records"]
    assert (record["act"], record["details"]["published"]) == ("experiment.share", True)

    assert change(visibility="private").json()["published"] is False
    change(visibility="link")
    assert told() == [("noindex", True), ("noindex", False)]


def test_token_of_the_experiment_is_made_listed_and_revoked(client, editor, experiment):
    place = f"/experiment/{experiment}"
    fields = {"label": "cluster job", "scope": "append", "expires_days": "7"}
    made = editor.post(f"{place}/token/new", fields).text
    secret = re.search(r'value="(tbh_\w+)"', made)[1]
    page = editor.get(f"{place}/access").text
    assert "cluster job" in page
    assert secret not in page
    bearer = {"Authorization": f"Bearer {secret}"}
    streams = f"/api/v1/experiments/{experiment}/streams"
    assert client.get(streams, headers=bearer).status_code == 200

    token_id = re.search(r'name="token_id" value="(\w+)"', page)[1]
    answer = editor.post(f"{place}/token/revoke", {"token_id": token_id})
    assert answer.headers["location"] == f"{place}/access?done=token-revoked"
    assert client.get(streams, headers=bearer).status_code == 401
    for scopes in ([], ["admin"], ["everything"]):
        assert editor.post(f"{place}/token/new", {**fields, "scope": scopes}).status_code == 422


def charts(page):
    """Return the image and the caption of each chart in the list, from the top."""
    return re.findall(r'(<svg class="spark".*?</svg>).*?<span[^>]* title="([^"]*)"', page.text)


def test_chart_is_the_same_however_data_arrive(api, editor, workspace_id):
    files = [
        segment(
            stream(run),
            0,
            9,
            *(scalars(tag, range(9), start_time + np.arange(9)) for tag in tags),
            start_time=start_time,
        )
        for run, start_time, tags in (
            ("b", 30.0, ("accuracy", "train/loss")),
            ("c", 10.0, ("accuracy", "train/loss")),
            ("a", 20.0, ("train/loss", "accuracy")),
            ("system/0123abcd", 40.0, ("system/cpu", "loss of packets")),
        )
    ]
    for order in (files, files[::-1]):
        experiment = api.new_experiment()
        for file in order:
            api.write(experiment, file)
    shown = charts(editor.get(f"/?workspace={workspace_id}"))
    assert shown[0] == shown[1]
    assert shown[0][1] == "train/loss of run b"
    assert "train/loss of run b and 2 more: last value 38" in shown[0][0]


def test_chart_is_a_curve_before_a_single_point(api, editor, workspace_id):
    experiment = api.new_experiment()
    final = scalars("hparam/loss", [1])
    api.write(experiment, segment(stream(), 0, 9, final, scalars("train/loss", range(9))))
    api.write(experiment, segment(stream("b"), 0, 9, final))
    again = stream(file_name="events.out.tfevents.2")  # supersedes the final metric
    api.write(experiment, segment(again, 0, 9, final, start_time=1.0))
    ((_, name),) = charts(editor.get(f"/?workspace={workspace_id}"))
    assert name == "train/loss of run train"
    cards = editor.get(f"/experiment/{experiment}/about").text
    assert cards.index("train/loss") < cards.index("hparam/loss")


def test_chart_is_of_a_tag_that_the_experiment_has(api, editor, workspace_id):
    for tags in (("accuracy", "loss"), ("accuracy",), ("new",), ()):
        experiment = api.new_experiment()
        if tags:
            api.write(experiment, segment(stream(), 0, 9, *(scalars(tag, [1]) for tag in tags)))
    address = f"/?workspace={workspace_id}"
    names = [name for _, name in charts(editor.get(address))]
    assert names == [f"{tag} of run train" for tag in ("new", "accuracy", "loss")]
    names = [name for _, name in charts(editor.get(f"{address}&chart=accuracy"))]
    assert names == ["accuracy of run train"] * 2
