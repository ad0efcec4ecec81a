"""Authors and counts of experiments, in their list and of one: who learns what, and the bound."""

from __future__ import annotations

import pytest

from support.batches import ApiClient, scalars, segment, stream
from support.people import new_member, new_person, new_personal_token
from support.share_links import make_link
from tbservice.auth.tables import members
from tbservice.types.grants import Scope
from tbservice.types.people import Role


@pytest.fixture
def person(client, database, workspace_id):
    """The API as a member called Ann, who made the experiment `theirs`."""
    member = new_member(database, workspace_id, Role.OWNER)
    return ApiClient(client, new_personal_token(database, workspace_id, member, Scope.ADMIN))


@pytest.fixture
def theirs(person):
    """An experiment with two runs and three series."""
    experiment = person.new_experiment(name="theirs")
    person.write(
        experiment,
        segment(stream("a"), 0, 10, scalars("loss", [1]), scalars("lr", [1])),
        segment(stream("b"), 0, 10, scalars("loss", [1])),
    )
    return experiment


def details_of(api, experiment):
    return api.request("GET", f"/experiments/{experiment}?details=true").json()["details"]


def listed_by(api, **parameters):
    page = api.request("GET", "/experiments", params=parameters).json()
    return {each["experiment_id"]: each["details"] for each in page["experiments"]}


def test_details_have_author_and_counts(api, person, theirs):
    empty = api.new_experiment(name="a machine's")
    expected = {"author": "Ann", "runs": 2, "series": 3, "is_exact": True}
    nothing = {"author": None, "runs": 0, "series": 0, "is_exact": True}
    assert listed_by(person, details="true") == {theirs: expected, empty: nothing}
    assert listed_by(api, details="true")[theirs] == expected
    assert details_of(person, theirs) == expected


def test_details_are_null_unless_asked_for(person, theirs):
    assert listed_by(person) == {theirs: None}
    assert person.request("GET", f"/experiments/{theirs}").json()["details"] is None


def test_details_of_link_have_no_author_and_nothing_hidden(client, person, theirs):
    link = ApiClient(client, make_link(person, theirs, runs="a", tags="l.*s")["token"])
    assert details_of(link, theirs) == {"author": None, "runs": 1, "series": 1, "is_exact": True}


def test_details_of_experiment_visible_by_link_have_no_author(client, person):
    experiment = person.new_experiment(visibility="link")
    assert details_of(ApiClient(client, None), experiment)["author"] is None
    assert listed_by(person, details="true")[experiment]["author"] == "Ann"


def test_address_of_nameless_author_is_for_people_only(client, api, database, workspace_id):
    nameless = new_person(database, "no-name@example.org", name="")
    with database.transaction(workspace_id) as db:
        members.put(db, workspace_id, nameless.user_id, Role.EDITOR)
    secret = new_personal_token(database, workspace_id, nameless, Scope.ADMIN)
    person = ApiClient(client, secret)
    experiment = person.new_experiment()
    assert listed_by(person, details="true")[experiment]["author"] == "no-name@example.org"
    assert listed_by(api, details="true")[experiment]["author"] is None


def test_counting_is_bounded(person, theirs, monkeypatch):
    monkeypatch.setattr("tbservice.experiments.details.COUNTED_ROWS_MAX", 4)
    assert details_of(person, theirs) == {
        "author": "Ann",
        "runs": 2,
        "series": 2,
        "is_exact": False,
    }
