"""Share links: what is listed of them, when they end, what they may not do, and what anonymous ones
hide.
"""

from __future__ import annotations

import csv
import json
import logging

import pytest
from sqlalchemy import text

from support.batches import images, scalars, segment, stream
from support.people import new_member
from support.share_links import list_links, make_link, reader_of, revoke, target_of
from tbservice import limits
from tbservice.auth import grants, tokens
from tbservice.errors import Forbidden, Unauthenticated
from tbservice.experiments import share_links
from tbservice.experiments.lifecycle import update_experiment
from tbservice.experiments.metadata import Metadata
from tbservice.ingest.door import PointWriter
from tbservice.reading import full_scan
from tbservice.types.experiments import Visibility
from tbservice.types.sampling import Selection
from tbwire.points import DataClass

MARK = "ANN-AND-HER-HOST"


@pytest.fixture
def experiment(api):
    experiment = api.new_experiment(name="an experiment")
    sent = segment(stream(), 0, 9, scalars("loss", range(9)), images("cat", [0], [[b"png"]]))
    api.write(experiment, sent)
    return experiment


def test_links_are_listed_newest_first_in_pages(api, experiment):
    made = [make_link(api, experiment, label=str(number)) for number in range(5)]
    assert [link["label"] for link in list_links(api, experiment)] == ["4", "3", "2", "1", "0"]
    listed = list_links(api, experiment)[0]
    assert "token" not in listed
    assert "url" not in listed
    assert made[-1]["token"].startswith(listed["prefix"])
    first = api.get(experiment, "links", limit=3)
    rest = api.get(experiment, "links", limit=3, after=first["next"])
    assert [link["label"] for link in first["links"] + rest["links"]] == ["4", "3", "2", "1", "0"]
    assert rest["next"] is None
    assert api.get(experiment, "tokens")["tokens"] == []


def test_link_is_renamed(api, experiment):
    link = make_link(api, experiment, label="old", runs="train", anonymous=True)
    path = f"/experiments/{experiment}/links/{link['id']}"
    renamed = api.request("PATCH", path, json={"label": "new"}).json()
    assert renamed == {**list_links(api, experiment)[0], "label": "new"}
    assert (renamed["runs"], renamed["tags"], renamed["anonymous"]) == ("train", None, True)
    for label in ("x" * 201, "a\0b"):
        assert api.request("PATCH", path, json={"label": label}).status_code == 422


def test_links_of_other_experiments_are_none(api, experiment):
    link = make_link(api, experiment)
    other = f"/experiments/{api.new_experiment()}/links/{link['id']}"
    assert api.request("PATCH", other, json={"label": "x"}).status_code == 404
    assert api.request("DELETE", other).status_code == 404
    as_token = f"/experiments/{experiment}/tokens"
    plain = api.request("POST", as_token, json={"scopes": ["read"]}).json()
    link_path = f"/experiments/{experiment}/links/{plain['id']}"
    assert api.request("DELETE", link_path).status_code == 404


@pytest.mark.parametrize("fields", [{"anonymous": True}, {"runs": "train"}, {"frozen": True}, {}])
def test_link_that_hides_something_tells_no_counts(client, api, experiment, fields):
    link = make_link(api, experiment, **fields)
    reader, target = reader_of(client, link), target_of(link)
    answer = reader.request("GET", f"/experiments/{target}").json()
    path = f"/experiments/{target}/tables/experiment?format=csv"
    (row,) = csv.DictReader(reader.request("GET", path).text.splitlines())
    is_told = not {"anonymous", "runs"} & fields.keys()
    assert (answer["points"], row["points"]) == ((10, "10") if is_told else (None, ""))
    assert (answer["bytes"], row["bytes"] == "") == (
        (answer["bytes"], False) if is_told else (None, True)
    )


def test_links_that_make_no_sense_are_refused(api, experiment):
    for fields in (
        {"runs": "("},
        {"tags": "(?=x)"},
        {"runs": "x" * 10_001},
        {"runs": "a\0"},
        {"label": "x" * 201},
        {"expires_at": "2020-01-01T00:00:00Z"},
        {"expires_at": "3926-01-01T00:00:00Z"},
        {"expires_at": 5},
        {"scopes": ["append"]},
        {"frozen": "perhaps"},
    ):
        answer = api.request("POST", f"/experiments/{experiment}/links", json=fields)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), fields
        assert list_links(api, experiment) == [], fields


def test_slice_of_what_everybody_may_read_is_refused(client, api, experiment):
    sliced = make_link(api, experiment, runs="none")
    path = f"/experiments/{experiment}"
    refused = api.request("PATCH", path, json={"visibility": "link"})
    assert (refused.status_code, "revoke them first" in refused.text) == (409, True)
    revoke(api, experiment, sliced)
    api.request("PATCH", path, json={"visibility": "link"}).raise_for_status()
    for fields in ({"runs": "train"}, {"anonymous": True}):
        answer = api.request("POST", f"{path}/links", json=fields)
        assert (answer.status_code, "private" in answer.text) == (422, True)
    frozen = make_link(api, experiment, runs="none", frozen=True)
    assert reader_of(client, frozen).get(target_of(frozen), "runs")["runs"] == []


@pytest.mark.parametrize(
    "change",
    [
        lambda db, grant: share_links.create_link(PointWriter(db), grant, run_pattern="train"),
        lambda db, grant: update_experiment(db, grant, Metadata(visibility=Visibility.LINK)),
    ],
    ids=["link", "visibility"],
)
def test_link_and_visibility_lock_the_experiment(database, experiment, owner_token, change):
    with database.transaction() as db:
        grant = grants.grant_admin(db, experiment, owner_token)
    # The lock that an update takes: the link's foreign key alone would hold only one that permits it.
    free = text("SELECT 1 FROM experiments WHERE experiment_id = :id FOR NO KEY UPDATE SKIP LOCKED")
    with database.transaction(grant) as db, database.transaction(grant) as other:
        change(db, grant)
        assert other.execute(free, {"id": experiment}).all() == []


def test_link_makes_no_session_of_more_rights(database, api, experiment):
    """The token of a browser session would show what the link hides."""
    link = make_link(api, experiment, runs="none")
    with database.transaction() as db:
        grant, can_only_read = grants.grant_read_by_token(db, experiment, link["token"])
        assert can_only_read
        with pytest.raises(Forbidden):
            tokens.create_session_token(db, grant)


def test_stream_ends_when_its_link_is_revoked(database, api, experiment, monkeypatch):
    monkeypatch.setattr(limits, "SCAN_CHUNK_POINTS", 4)
    link = make_link(api, experiment)
    with database.transaction() as db:
        grant = grants.grant_read(db, experiment, link["token"])
    chunks = full_scan.stream_all(database, grant, Selection(), DataClass.SCALAR)
    next(chunks)
    revoke(api, experiment, link)
    with pytest.raises(Unauthenticated):
        list(chunks)


def test_links_outlive_the_member_who_made_them(client, api, experiment, database, workspace_id):
    person = new_member(database, workspace_id)
    link = make_link(api, experiment)
    with database.transaction(workspace_id) as db:
        made_by = "SELECT user_id FROM tokens WHERE token_id = :id"
        assert db.execute(text(made_by), {"id": link["id"]}).scalar() is None
    assert person.user_id
    assert reader_of(client, link).get(experiment, "runs")["runs"]


def name_origin(database, workspace_id):
    """Fill in where an experiment came from, and who made it."""
    person = new_member(database, workspace_id)
    with database.transaction(workspace_id) as db:
        db.execute(
            text("UPDATE users SET name = :mark WHERE user_id = :id"),
            {"mark": MARK, "id": person.user_id},
        )
        db.execute(
            text("UPDATE workspaces SET name = :mark WHERE workspace_id = :id"),
            {"mark": MARK, "id": workspace_id},
        )
        db.execute(
            text("UPDATE experiments SET origin = :origin, created_by = :id"),
            {"origin": json.dumps({"host": MARK}), "id": person.user_id},
        )
    return person


def record_upload(api, experiment):
    """Record an upload of which everything is marked."""
    path = f"/experiments/{experiment}/uploads/{'0' * 16}"
    fields = {"origin": {"host": MARK}, "packages": [MARK], "started_at": "2026-01-31T12:00:00Z"}
    api.request("PUT", path, json=fields).raise_for_status()
    ended = {"status": "failed", "detail": MARK, "console": MARK, "git_diff": MARK}
    api.request("PATCH", path, json=ended).raise_for_status()


@pytest.mark.parametrize("is_frozen", [False, True])
def test_anonymous_link_tells_no_origin(client, api, experiment, database, workspace_id, is_frozen):
    person = name_origin(database, workspace_id)
    record_upload(api, experiment)
    link = make_link(api, experiment, anonymous=True, frozen=is_frozen, label=MARK)
    make_link(api, experiment, label=MARK)
    reader, target = reader_of(client, link), target_of(link)
    paths = [
        f"/api/v1/experiments/{target}{path}"
        for path in ("", "/uploads", "/runs", "/scalars", "/scalars/data", "/digests")
    ]
    paths += ["/api/v1/me", f"/experiment/{target}/about", f"/experiment/{target}/"]
    paths += [
        f"/experiment/{target}/data/environment",
        f"/experiment/{target}/download/scalars.csv",
    ]
    for path in paths:
        answer = client.get(path, headers=reader.headers, follow_redirects=False)
        told = answer.text + str(answer.headers)
        assert MARK not in told, path
        assert person.user_id not in told, path
        if is_frozen:
            assert experiment not in told, path

    with database.without_transaction() as db:
        grant = grants.grant_read(db, target, link["token"])
    with database.snapshot(grant) as db:
        row = db.execute(text("SELECT origin, created_by FROM experiments")).all()
    assert set(map(str, row)) == {"({}, None)"}


def test_link_that_hides_nothing_tells_origin(api, experiment, database, workspace_id):
    name_origin(database, workspace_id)
    link = make_link(api, experiment, runs=".*")
    with database.without_transaction() as db:
        grant = grants.grant_read(db, experiment, link["token"])
    with database.snapshot(grant) as db:
        query = "SELECT origin FROM experiments WHERE experiment_id = :id"
        assert db.execute(text(query), {"id": experiment}).scalar() == {"host": MARK}


def test_secret_of_link_is_never_logged(client, api, experiment, caplog):
    caplog.set_level(logging.DEBUG)
    link = make_link(api, experiment, frozen=True)
    client.get(link["url"][link["url"].index("/experiment/") :])
    reader_of(client, link).get(target_of(link), "runs")
    revoke(api, experiment, link)
    messages = [record.getMessage() for record in caplog.records if record.name != "httpx2"]
    assert not [message for message in messages if link["token"] in message]
