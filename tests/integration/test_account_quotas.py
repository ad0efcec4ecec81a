"""Quotas of accounts: the workspaces of one person have room together, frozen copies included."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from support.batches import ApiClient, images, scalars, segment, stream
from support.people import new_person
from support.quotas import (
    admit_member,
    assert_counted,
    set_quota,
    stored_usage,
    upload_until_refused,
)
from support.share_links import make_link
from tbservice.auth import workspaces
from tbservice.auth.tokens import create_owner_token
from tbservice.errors import QuotaExceeded
from tbservice.experiments import quota_changes
from tbservice.server import quota_administration

POINTS = 100


class Account:
    """A person with two workspaces of their own, and the API of each."""

    def __init__(self, client, database):
        self.database = database
        self.person = new_person(database)
        self.user_id = self.person.user_id
        self.places = [self._new_workspace() for _ in range(2)]
        self.apis = [ApiClient(client, self._new_token(place)) for place in self.places]
        self.experiments = [api.new_experiment() for api in self.apis]

    def _new_workspace(self):
        with self.database.transaction() as db:
            made = workspaces.create_for_person(db, self.user_id, "own", is_permitted=True)
        return made.workspace_id

    def _new_token(self, place):
        with self.database.transaction(place) as db:
            return create_owner_token(db, place, "a test")[1]

    def limit(self, **limits):
        set_quota(self.database, self.user_id, **limits)

    def write(self, index, number, points=POINTS):
        """Write points to the experiment of one of the workspaces; return the response."""
        steps = range(number * POINTS, number * POINTS + points)
        content = segment(stream(), number, number + 1, scalars("loss", steps))
        return self.apis[index].send(self.experiments[index], content)

    def points(self):
        return sum(stored_usage(self.database, place).points for place in self.places)

    def usage(self, index):
        return self.apis[index].request("GET", f"/workspaces/{self.places[index]}/usage").json()


@pytest.fixture
def account(client, database):
    return Account(client, database)


def test_workspaces_of_an_account_have_room_together(account, database):
    account.limit(points=250)
    assert [account.write(index, 0).status_code for index in (0, 1)] == [200, 200]
    refused = account.write(1, 1)
    assert (refused.status_code, refused.json()["holder"]) == (507, "account")
    assert refused.json()["detail"].startswith("the account that the workspace belongs to may")
    said = {name: refused.json()[name] for name in ("used", "limit", "remaining", "needed")}
    assert said == {"used": 200, "limit": 250, "remaining": 50, "needed": 100}
    assert account.usage(0)["account"]["points"] == {"used": 200, "limit": 250, "remaining": 50}
    assert account.write(1, 1, 50).status_code == 200
    for place in account.places:
        assert_counted(database, place)
    # What one workspace gives back, the other gets.
    path = f"/experiments/{account.experiments[0]}"
    account.apis[0].request("DELETE", path, params={"final": True}).raise_for_status()
    assert account.write(1, 2).status_code == 200
    assert account.points() == 250


def test_frozen_copies_of_an_account_count(account):
    account.write(0, 0)
    account.limit(points=3 * POINTS + 50)
    make_link(account.apis[0], account.experiments[0], frozen=True)
    assert account.write(1, 0).status_code == 200
    path = f"/experiments/{account.experiments[0]}/links"
    answer = account.apis[0].request("POST", path, json={"frozen": True})
    assert (answer.status_code, answer.json()["holder"]) == (507, "account")
    assert account.points() == 3 * POINTS


def test_blobs_of_an_account_are_refused_before_they_are_stored(account):
    account.limit(blob_bytes=10)
    answers = [
        account.apis[index].send(
            account.experiments[index], segment(stream(), 0, 1, images("cat", [1], [[b"12345678"]]))
        )
        for index in (0, 1)
    ]
    assert [answer.status_code for answer in answers] == [200, 507]
    objects = account.apis[1].client.app.state.objects
    assert list(objects.list_objects(f"{account.places[1]}/")) == []


def test_uploads_to_two_workspaces_stay_within_the_account(account, client, database):
    account.limit(points=40 * POINTS + 50)
    uploads = [(index, account.apis[index].new_experiment()) for index in (0, 1) for _ in range(4)]
    ingest = client.app.state.ingest

    def upload(place):
        index, experiment = place
        return upload_until_refused(ingest, account.places[index], experiment, POINTS)

    with ThreadPoolExecutor(len(uploads)) as pool:
        stored = sum(pool.map(upload, uploads)) * POINTS
    assert account.points() == stored <= 40 * POINTS
    upload((0, account.apis[0].new_experiment()))  # gets what others have not used
    assert account.points() == 40 * POINTS
    for place in account.places:
        assert_counted(database, place)


def test_account_has_room_for_experiments_and_members(account, database):
    account.limit(experiments=3, members=3)
    account.apis[0].new_experiment()
    refused = account.apis[1].request("POST", "/experiments", json={})
    assert (refused.json()["quota"], refused.json()["holder"]) == ("experiments", "account")
    admit_member(database, account.places[0])
    with pytest.raises(QuotaExceeded, match="account"):
        admit_member(database, account.places[0])


def test_moved_workspace_counts_at_its_new_account(account, api, experiment, database):
    other = new_person(database)
    api.write(experiment, segment(stream(), 0, 1, scalars("loss", range(POINTS))))
    account.write(0, 0)
    set_quota(database, other.user_id, points=POINTS)
    quota_changes.move_workspace(database, account.places[0], other.user_id)
    refused = account.write(0, 1)
    assert (refused.status_code, refused.json()["used"]) == (507, POINTS)
    # The owner has not changed, nor has what the former account stores.
    assert account.write(1, 0).status_code == 200
    quota = quota_changes.read_account_quota(database, account.user_id)
    assert quota.totals.used("points") == POINTS
    quota_changes.move_workspace(database, account.places[0], None)
    assert account.write(0, 1).status_code == 200


def test_account_quota_below_use_lets_read_and_delete(account):
    account.write(0, 0)
    account.write(1, 0)
    account.limit(points=1, experiments=0, members=0)
    read = account.apis[0].get(account.experiments[0], "scalars/data")
    assert read["train"]["loss"]["total"] == POINTS
    assert account.write(0, 1).status_code == 507
    path = f"/experiments/{account.experiments[0]}"
    deleted = account.apis[0].request("DELETE", path, params={"final": True})
    assert deleted.status_code == 204
    assert account.usage(1)["account"]["points"]["remaining"] == 0


@pytest.mark.own_database
def test_plan_account_holds_for_accounts_without_another(account, tmp_path, database):
    path = tmp_path / "plans.toml"
    path.write_text("[default]\npoints = 900\n[account]\npoints = 250\n[large]\npoints = 350\n")
    quota_administration.apply_plans(database, path)
    answers = [account.write(index, number).status_code for number in (0, 1) for index in (0, 1)]
    assert answers == [200, 200, 507, 507]
    quota_changes.change_account_quota(database, account.user_id, "large", {})
    assert account.write(0, 1).status_code == 200
    quota_changes.change_account_quota(database, account.user_id, None, {}, clears=True)
    assert account.write(0, 2).json()["limit"] == 250


@pytest.mark.own_database
def test_account_has_no_quota_before_the_migration(
    rename_table, settings, run_application, database, run_tbservice
):
    rename_table("account_quotas", "account_quotas_of_later")
    with run_application(settings) as client:
        account = Account(client, database)
        assert account.write(0, 0).status_code == 200
        assert account.usage(0)["account"] is None
        make_link(account.apis[0], account.experiments[0], frozen=True)
    code, _, said = run_tbservice("user", "quota", account.user_id)
    assert (code, "run 'tbservice migrate'" in said) == (1, True)


def test_commands_print_and_set_quotas_of_accounts(account, run_tbservice, workspace_id):
    account.write(0, 0)
    code, lines, _ = run_tbservice("user", "quota", account.user_id, "--points", 900)
    assert (code, lines[:2]) == (0, ["plan\taccount", f"points\t{POINTS}\t900"])
    assert run_tbservice("user", "quota", account.user_id, "--points", "many")[0] != 0
    assert run_tbservice("user", "quota", "nobody@example.org")[0] != 0
    moved = run_tbservice("workspace", "account", workspace_id, account.user_id)
    assert moved[:2] == (0, [f"workspace {workspace_id} belongs to {account.user_id}"])
    assert account.usage(0)["account"]["members"]["used"] == 2
