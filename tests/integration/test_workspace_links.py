"""The share links of a workspace: who made them, and that owners find those of people who left."""

from __future__ import annotations

import re

import pytest

from support.batches import ApiClient, scalars
from support.people import new_member, new_personal_token
from support.servers import new_workspace
from support.share_links import list_links, make_link, reader_of, revoke, target_of
from tbservice.types.grants import Scope
from tbservice.types.people import Role


@pytest.fixture
def experiment(api):
    return api.new_experiment(scalars("loss", [1]), name="<i>model</i>")


@pytest.fixture
def leaver(database, workspace_id):
    return new_member(database, workspace_id, Role.EDITOR)


@pytest.fixture
def links(client, database, workspace_id, experiment, leaver):
    """Two links of the leaver, one of them frozen."""
    made_by = ApiClient(
        client, new_personal_token(database, workspace_id, leaver, Scope.READ, Scope.ADMIN)
    )
    return [
        make_link(made_by, experiment, label="mine"),
        make_link(made_by, experiment, label="frozen mine", frozen=True),
    ]


def listed(api, workspace_id, **query):
    answer = api.request("GET", f"/workspaces/{workspace_id}/links", params=query)
    answer.raise_for_status()
    return answer.json()


def test_link_tells_who_made_it(api, experiment, leaver, links):
    by_machine = make_link(api, experiment)
    creators = {link["id"]: link["created_by"] for link in list_links(api, experiment)}
    assert {creators[link["id"]]["user_id"] for link in links} == {leaver.user_id}
    assert creators[by_machine["id"]] is None
    renamed = api.request(
        "PATCH", f"/experiments/{experiment}/links/{links[0]['id']}", json={"label": "new"}
    )
    assert renamed.json()["created_by"] == links[0]["created_by"]


def test_workspace_lists_valid_links_by_creator(api, workspace_id, experiment, leaver, links):
    by_machine, revoked = (make_link(api, experiment) for _ in range(2))
    revoke(api, experiment, revoked)
    every = listed(api, workspace_id)["links"]
    assert [link["id"] for link in every] == [by_machine["id"], links[1]["id"], links[0]["id"]]
    assert {link["experiment_id"] for link in every} == {experiment}
    of_leaver = listed(api, workspace_id, created_by=leaver.user_id)["links"]
    assert [(link["id"], link["frozen"]) for link in of_leaver] == [
        (links[1]["id"], True),
        (links[0]["id"], False),
    ]
    assert of_leaver[0]["experiment_name"] == "<i>model</i>"
    assert listed(api, workspace_id, created_by="nobody")["links"] == []


def test_workspace_links_come_in_pages(api, workspace_id, links):
    first = listed(api, workspace_id, limit=1)
    rest = listed(api, workspace_id, limit=1, after=first["next"])
    assert [page["links"][0]["id"] for page in (first, rest)] == [links[1]["id"], links[0]["id"]]
    assert rest["next"] is None


@pytest.mark.usefixtures("links")
def test_workspace_lists_no_links_of_another(client, database_url, leaver):
    other = new_workspace(database_url)
    api = ApiClient(client, other.owner_token)
    answer = listed(api, other.workspace_id, created_by=leaver.user_id)
    assert answer == {"links": [], "next": None}


@pytest.mark.parametrize(
    ("path", "fields"), [("remove", {}), ("role", {"role": "viewer"})], ids=["removed", "viewer"]
)
def test_owner_is_shown_links_that_outlast_member(
    client, api, workspace_id, leaver, links, browser, path, fields
):
    address = f"/workspace/{workspace_id}"
    members = browser.get(address).text
    assert "The 2 share links that they made will still open" in members
    changed = browser.post(f"{address}/member/{path}", {"user_id": leaver.user_id, **fields})
    assert changed.headers["location"].startswith(f"{address}/links?created_by={leaver.user_id}&")
    page = browser.get(changed.headers["location"]).text
    assert "The links below, which they made, still open." in page
    assert ("Not a member" in page, '<span class="badge">Viewer' in page) == (
        path == "remove",
        path == "role",
    )
    assert "<i>model" not in page
    assert reader_of(client, links[0]).get(target_of(links[0]), "runs")["runs"]

    shown = re.findall(r'name="experiment_id" value="(\w+)".+?name="link_id" value="(\w+)"', page)
    assert {link_id for _, link_id in shown} == {link["id"] for link in links}
    for experiment_id, link_id in shown:
        form = {"experiment_id": experiment_id, "link_id": link_id, "created_by": leaver.user_id}
        answer = browser.post(f"{address}/link/revoke", form)
        assert answer.headers["location"].endswith("&done=link-revoked")
    assert "no links that still open" in browser.get(answer.headers["location"]).text
    assert listed(api, workspace_id)["links"] == []


def test_member_without_links_leaves_no_list(workspace_id, leaver, browser):
    address = f"/workspace/{workspace_id}"
    assert "will still open" not in browser.get(address).text
    removed = browser.post(f"{address}/member/remove", {"user_id": leaver.user_id})
    assert removed.headers["location"] == f"{address}?done=removed"
