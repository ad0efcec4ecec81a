"""Experiments that expire: deleted by themselves, restorable, and never while they are in use."""

from __future__ import annotations

import contextvars
import threading
from contextlib import closing
from datetime import UTC, datetime, time, timedelta

import pytest
from sqlalchemy import text

from support.batches import ApiClient, scalars, segment, stream
from support.page_forms import new_reader
from support.people import new_member
from support.servers import make_workspace
from support.share_links import make_link, reader_of, revoke, target_of
from tbservice.audit.acts import Act
from tbservice.audit.tables import audit_records
from tbservice.auth import workspaces
from tbservice.db.database import Database
from tbservice.errors import Conflict
from tbservice.experiments.eraser import erase_due
from tbservice.types.audit import AuditFilter
from tbservice.types.grants import OwnerGrant
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.people import Role

SOON = datetime.now(UTC) + timedelta(days=30)


@pytest.fixture
def expiring(api):
    """The id of an experiment with a point, which expires in 30 days."""
    return api.new_experiment(scalars("loss", [0]), expires_at=SOON.isoformat())


@pytest.fixture
def let_pass(database, workspace_id):
    """A function that makes an experiment older by so many days, and does what is due then."""

    def let_pass(experiment, days):
        with database.transaction(workspace_id) as db:
            read = "SELECT erase_at, data_at FROM experiments WHERE experiment_id = :id"
            times = db.execute(text(read), {"id": experiment}).one()
            erase_at, data_at = (each - timedelta(days=days) for each in times)
            db.execute(
                text(
                    "UPDATE experiments SET erase_at = :erase, data_at = :data WHERE experiment_id = :id"
                ),
                {"id": experiment, "erase": erase_at, "data": data_at},
            )
        # Without the person of an earlier request, as in the thread of the service.
        return contextvars.Context().run(erase_due, database, threading.Event())

    return let_pass


def expiry_of(api, experiment):
    answer = api.request("GET", f"/experiments/{experiment}").json()["expires_at"]
    return None if answer is None else datetime.fromisoformat(answer)


def test_expiry_is_set_changed_and_removed(api, expiring):
    path = f"/experiments/{expiring}"
    assert expiry_of(api, expiring) == SOON
    assert api.experiments()[0]["expires_at"] is not None
    later = SOON + timedelta(days=1)
    changed = api.request("PATCH", path, json={"expires_at": later.isoformat()})
    assert datetime.fromisoformat(changed.json()["expires_at"]) == later
    api.request("PATCH", path, json={"name": "x"}).raise_for_status()
    assert expiry_of(api, expiring) == later
    api.request("PATCH", path, json={"expires_at": "never"}).raise_for_status()
    assert expiry_of(api, expiring) is None


@pytest.mark.parametrize(
    "wrong",
    [
        datetime.now(UTC) - timedelta(seconds=1),
        datetime.now(UTC) + timedelta(days=36_501),
        datetime.now(),  # noqa: DTZ005 - without a zone
        "soon",
    ],
    ids=["past", "far", "without zone", "no time"],
)
def test_expiry_in_past_or_far_away_is_refused(api, expiring, wrong):
    sent = wrong if isinstance(wrong, str) else wrong.isoformat()
    refused = api.request("PATCH", f"/experiments/{expiring}", json={"expires_at": sent})
    assert refused.status_code == 422
    assert "expires_at" in refused.json()["detail"]
    assert expiry_of(api, expiring) == SOON


def test_expired_experiment_can_be_restored(api, expiring, let_pass, database, workspace_id):
    assert let_pass(expiring, 29) == 0
    assert expiry_of(api, expiring) is not None
    let_pass(expiring, 2)
    assert api.request("GET", f"/experiments/{expiring}").status_code == 404
    (deleted,) = api.request("GET", "/experiments/deleted").json()["experiments"]
    week = datetime.fromisoformat(deleted["erase_at"]) - datetime.now(UTC)
    assert timedelta(days=6, hours=23) < week <= timedelta(days=7)
    with database.snapshot(workspace_id) as db:
        deleted = AuditFilter(Act.EXPERIMENT_EXPIRE)
        (record,) = audit_records.list_page(db, workspace_id, deleted, None, 9)
    assert (record.object_id, record.user_id) == (expiring, "")

    api.request("POST", f"/experiments/{expiring}/restore").raise_for_status()
    assert expiry_of(api, expiring) is None
    assert api.get(expiring, "scalars/data")["train"]["loss"]["steps"] == [0]


def test_experiment_that_still_gets_data_does_not_expire(api, expiring, let_pass):
    let_pass(expiring, 29.5)
    api.write(expiring, segment(stream(), 9, 18, scalars("loss", [1])))
    let_pass(expiring, 0.6)
    assert expiry_of(api, expiring) > datetime.now(UTC)


def test_experiment_with_frozen_link_does_not_expire(api, expiring, let_pass):
    link = make_link(api, expiring, frozen=True)
    let_pass(expiring, 31)
    postponed = expiry_of(api, expiring) - datetime.now(UTC)
    assert timedelta(hours=23) < postponed <= timedelta(days=1)
    revoke(api, expiring, link)
    let_pass(expiring, 2)
    assert api.request("GET", f"/experiments/{expiring}").status_code == 404


def test_reader_by_link_does_not_learn_of_expiry(client, api, expiring):
    for link in (
        make_link(api, expiring),
        make_link(api, expiring, frozen=True, expires_at=SOON.isoformat()),
    ):
        assert expiry_of(reader_of(client, link), target_of(link)) is None
    api.request("PATCH", f"/experiments/{expiring}", json={"visibility": "link"})
    assert expiry_of(ApiClient(client, None), expiring) is None


def test_form_sets_last_day_of_experiment(client, database, workspace_id, api, expiring):
    editor = new_reader(client, database, new_member(database, workspace_id, Role.EDITOR))
    address = f"/experiment/{expiring}/edit"
    assert f'type="date" value="{SOON.date()}"' in editor.get(address).text
    fields = {"name": "x", "description": "", "notes": "", "tags": "", "properties": ""}
    fields |= {"visibility": "private", "state": ""}
    editor.post(address, fields | {"expires": str(SOON.date())})
    assert expiry_of(api, expiring) == SOON  # as it was, to the second

    day = SOON.date() + timedelta(days=1)
    editor.post(address, fields | {"expires": str(day)})
    midnight = datetime.combine(day + timedelta(days=1), time(), UTC)
    assert expiry_of(api, expiring) == midnight
    assert f'type="date" value="{day}"' in editor.get(address).text
    assert "Will be deleted" in editor.get(f"/experiment/{expiring}/about").text

    assert (
        "Write the day of expiry as 2030-12-31"
        in editor.post(address, fields | {"expires": "soon"}).text
    )
    assert "2020-01-31 is over" in editor.post(address, fields | {"expires": "2020-01-31"}).text
    assert expiry_of(api, expiring) == midnight
    editor.post(address, fields | {"expires": ""})
    assert expiry_of(api, expiring) is None


def test_policy_of_workspace_is_default_of_new_experiments(
    client, database, workspace_id, api, expiring
):
    owner = new_reader(client, database, new_member(database, workspace_id, Role.OWNER))
    address, home = f"/workspace/{workspace_id}", f"/workspaces/{workspace_id}"
    assert api.request("GET", home).json()["expires_days"] is None
    assert owner.post(f"{address}/expiry", {"days": "90"}).status_code == 303
    shown = owner.get(f"{address}/settings").text
    assert 'value="90"' in shown
    assert "are deleted 90 days after they were created" in shown
    assert api.request("GET", home).json()["expires_days"] == 90

    day = expiry_of(api, api.new_experiment()) - datetime.now(UTC)
    assert timedelta(days=89, hours=23) < day <= timedelta(days=90, minutes=1)
    assert expiry_of(api, api.new_experiment(expires_at=SOON.isoformat())) == SOON
    assert expiry_of(api, api.new_experiment(expires_at="never")) is None
    assert expiry_of(api, expiring) == SOON  # it was there before

    for wrong in ("0", "36501", "-1", "soon", "9" * 30):
        refused = owner.post(f"{address}/expiry", {"days": wrong})
        assert (refused.status_code, "36,500 days" in refused.text) == (422, True)
        assert f'value="{wrong}"' in refused.text
    for wrong in (0, 36_501, "soon", 1.5, True):
        assert api.request("PATCH", home, json={"expires_days": wrong}).status_code == 422
    changed = api.request("PATCH", home, json={"expires_days": "never"})
    assert changed.json()["expires_days"] is None
    assert expiry_of(api, api.new_experiment()) is None


def test_policy_waits_for_its_migration(servers):
    with (
        servers.database_before("0030") as url,
        closing(Database(url, 1)) as database,
    ):
        workspace_id = make_workspace(database).workspace_id
        grant = OwnerGrant(WorkspaceId(workspace_id))
        with database.transaction(grant) as db:
            assert workspaces.find_expiry_days(db, workspace_id) is None
            with pytest.raises(Conflict, match="tbservice migrate"):
                workspaces.set_expiry_days(db, grant, 9)
