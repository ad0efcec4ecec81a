"""Rows of tokens: listed in pages, browser sessions apart, and deleted some time after they ended."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text

from tbservice import limits

SESSIONS = 15


def open_page(client, experiment, token):
    """Open the experiment's page in a new browser with this token."""
    client.cookies.clear()
    answer = client.get(f"/experiment/{experiment}/?token={token}", follow_redirects=False)
    assert answer.status_code == 303
    return answer


def count_tokens(database, workspace_id, condition="true"):
    with database.transaction(workspace_id) as db:
        where = f"experiment_id IS NOT NULL AND {condition}"
        return db.execute(text(f"SELECT count(*) FROM tokens WHERE {where}")).scalar()  # noqa: S608 - a test's own


def age(database, workspace_id, condition, interval):
    """Move the end of some tokens into the past."""
    with database.transaction(workspace_id) as db:
        aged = f"SELECT token_id, expires_at - :by, revoked_at - :by FROM tokens WHERE {condition}"  # noqa: S608 - a test's own
        for token_id, expires_at, revoked_at in db.execute(text(aged), {"by": interval}).all():
            db.execute(  # a cluster does not compute times in an UPDATE
                text(
                    "UPDATE tokens SET expires_at = :end, revoked_at = :revoked WHERE token_id = :id"
                ),
                {"id": token_id, "end": expires_at, "revoked": revoked_at},
            )


def test_session_tokens_are_deleted_after_they_expired(
    client, api, experiment, database, workspace_id, owner_token
):
    for _ in range(SESSIONS):
        open_page(client, experiment, owner_token)
    age(database, workspace_id, "is_session", timedelta(days=1))
    assert count_tokens(database, workspace_id) == SESSIONS
    open_page(client, experiment, owner_token)
    assert count_tokens(database, workspace_id) == SESSIONS - limits.TOKEN_SWEEP_ITEMS_MAX + 1
    open_page(client, api.new_experiment(), owner_token)
    assert count_tokens(database, workspace_id, "expires_at < now()") == 0
    assert count_tokens(database, workspace_id) == 2


def test_session_tokens_are_listed_apart_and_can_be_revoked(client, api, experiment, owner_token):
    api.new_token(experiment, "read", label="made by a person")
    open_page(client, experiment, owner_token)
    assert [token["label"] for token in api.get(experiment, "tokens")["tokens"]] == [
        "made by a person"
    ]
    (session,) = api.get(experiment, "tokens", sessions=True)["tokens"]
    assert (session["label"], session["scopes"]) == ("browser session", ["read"])
    page = f"/experiment/{experiment}/"
    assert client.get(page).status_code == 200
    assert (
        api.request("DELETE", f"/experiments/{experiment}/tokens/{session['id']}").status_code
        == 204
    )
    assert client.get(page).status_code == 401
    assert api.get(experiment, "tokens", sessions=True)["tokens"] == []


def test_token_listing_has_pages_of_all_tokens(api, experiment):
    labels = [f"number {number}" for number in range(7)]
    for label in labels:
        api.new_token(experiment, "read", label=label)
    listed, after, pages = [], None, 0
    while pages == 0 or after:
        page = api.get(experiment, "tokens", limit=3, **({"after": after} if after else {}))
        listed += [token["label"] for token in page["tokens"]]
        after, pages = page["next"], pages + 1
    assert (listed, pages) == (labels[::-1], 3)
    whole = api.get(experiment, "tokens")
    assert [token["label"] for token in whole["tokens"]] == labels[::-1]
    assert whole["next"] is None


@pytest.mark.parametrize(("interval", "kept"), [(timedelta(days=89), 2), (timedelta(days=91), 0)])
def test_ended_tokens_are_kept_for_90_days(api, experiment, database, workspace_id, interval, kept):
    for label in ("revoked", "expired"):
        api.new_token(
            experiment,
            "read",
            label=label,
            expires_at="2100-01-01T00:00:00Z" if label == "expired" else None,
        )
    api.new_token(experiment, "read", label="counts")
    with database.transaction(workspace_id) as db:
        db.execute(text("UPDATE tokens SET revoked_at = now() WHERE label = 'revoked'"))
        db.execute(text("UPDATE tokens SET expires_at = now() WHERE label = 'expired'"))
    age(database, workspace_id, "true", interval)
    api.new_token(experiment, "read", label="another")
    assert count_tokens(database, workspace_id, "label IN ('revoked', 'expired')") == kept
    assert count_tokens(database, workspace_id, "label IN ('counts', 'another')") == 2
