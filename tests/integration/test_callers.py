"""Whose share of a worker a request uses: `admission/callers.py` on a real database."""

from __future__ import annotations

import asyncio

import pytest

from support.people import cookie_of, new_person, sign_in
from tbservice.admission.callers import CallerLookup
from tbservice.auth import secrets
from tbservice.auth.secrets import SecretKind

ADDRESS = "address 192.0.2.1"


@pytest.fixture
def identify(client, database):
    """The caller of a GET of an experiment, with a token, a cookie, or none."""
    lookup = CallerLookup(database)

    def identify(experiment, token=None, cookie=None):
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        headers += [(b"cookie", cookie_of(cookie)["Cookie"].encode())] if cookie else []
        path = f"/api/v1/experiments/{experiment}/scalars/data"
        scope = {"type": "http", "path": path, "query_string": b"", "headers": headers}
        scope["app"] = client.app
        return asyncio.run(lookup.identify({**scope, "client": ("192.0.2.1", 1)}))

    return identify


def test_caller_with_token_is_its_workspace(api, owner_token, identify):
    experiment = api.new_experiment(visibility="link")
    caller = identify(experiment, owner_token)
    assert not caller.is_anonymous
    assert not caller.is_reader
    assert caller.line == caller.client == caller.key


def test_caller_by_link_is_reader_of_its_workspace(api, owner_token, identify):
    experiment = api.new_experiment(visibility="link")
    for _ in range(2):  # looked up, then cached
        caller = identify(experiment)
        assert caller.key == identify(experiment, owner_token).key
        assert caller.is_reader
        assert not caller.is_anonymous
        assert (caller.line, caller.client) == (experiment, ADDRESS)


def test_caller_of_private_experiment_is_address(api, identify):
    experiment = api.new_experiment()
    for name in (experiment, "A" * 22, "no id", f"{experiment},{experiment}"):
        caller = identify(name)
        assert caller.is_anonymous
        assert (caller.key, caller.line, caller.client) == (ADDRESS, name, ADDRESS)


def test_caller_with_unknown_token_is_address(api, identify):
    experiment = api.new_experiment(visibility="link")
    assert identify(experiment, secrets.generate_token()).key == ADDRESS
    assert identify(experiment, "malformed").is_reader


def test_caller_with_browser_session_is_its_person(api, owner_token, database, identify):
    experiment = api.new_experiment(visibility="link")
    person = new_person(database)
    cookie = sign_in(database, person)
    for _ in range(2):  # looked up, then cached
        caller = identify(experiment, cookie=cookie)
        assert caller.key == caller.line == caller.client == f"person {person.user_id}"
        assert not caller.is_anonymous
        assert not caller.is_reader
    assert identify(experiment, owner_token, cookie).key.startswith("workspace ")
    unknown = secrets.generate_secret(SecretKind.SESSION)
    assert identify(experiment, cookie=unknown).is_reader
