"""What the service adds to TensorBoard's page, and the pages it shows in its place, before the web app loads."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest
from psycopg import sql

from support.batches import Api, scalars, segment, stream
from tbservice.tensorboard.notices import STATE_HEADER

HOSTILE = "</header></h1><script>alert(1)</script><img src=x onerror=alert(1)>\"'$name"


@pytest.fixture
def api(client, owner_token):
    return Api(client, owner_token)


def new_experiment(api, **fields):
    experiment = api.new_experiment(**fields)
    api.write(experiment, segment(stream(), 0, 100, scalars("loss", [0])))
    return experiment


def is_allowed(answer, element):
    """Whether the answer's policy allows the content of its inline elements of that name."""
    policy = answer.headers["content-security-policy"]
    contents = re.findall(f"<{element}>(.*?)</{element}>", answer.text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() for content in contents]
    return bool(contents) and all(f"'sha256-{digest}'" in policy for digest in digests)


def test_the_bar_is_inert_whatever_the_owner_wrote(client, api):
    experiment = new_experiment(api, name=HOSTILE, description=HOSTILE)
    answer = client.get(f"/experiment/{experiment}/", headers=api.headers)
    bar = answer.text.partition('<header id="tbhub-bar">')[2].partition("</header>")[0]
    assert bar.count("$name") == 2
    assert not re.search("<(script|img|h1)", bar)
    assert "Private" in bar
    assert is_allowed(answer, "script")
    assert answer.text.index("</header>") < answer.text.index("<tb-webapp>")


def test_the_bar_says_what_has_no_name_and_who_may_read(client, api):
    experiment = new_experiment(api, visibility="link")
    answer = client.get(f"/experiment/{experiment}/")
    assert ">Unnamed experiment<" in answer.text
    assert ">Anyone with the address<" in answer.text
    assert "<details>" not in answer.text


def test_an_empty_experiment_says_how_to_upload_until_there_is_data(client, api):
    experiment = api.new_experiment(name=HOSTILE, description=HOSTILE)
    address = f"/experiment/{experiment}/"
    for answer in (client.get(address, headers=api.headers), client.head(address, headers=api.headers)):
        assert (answer.status_code, answer.headers[STATE_HEADER]) == (200, "data")
    empty = client.get(address, headers=api.headers)
    assert f"tbupload --logdir runs/ --experiment {experiment} --server http://testserver" in empty.text
    assert "<script>alert" not in empty.text
    assert is_allowed(empty, "script")
    assert is_allowed(empty, "style")
    api.write(experiment, segment(stream(), 0, 100, scalars("loss", [0])))
    assert STATE_HEADER not in client.head(address, headers=api.headers).headers


def test_a_link_that_has_ended_is_told_from_none_but_not_from_one_of_an_experiment_that_is_gone(client, api):
    experiment = new_experiment(api)
    stale = {"Cookie": "tbhub_read=tbh_stale"}
    ended, gone = (client.get(f"/experiment/{id_}/", headers=stale) for id_ in (experiment, experiment[::-1]))
    assert "has expired or was revoked" in ended.text
    assert (ended.status_code, ended.text) == (gone.status_code, gone.text)
    assert "has expired or was revoked" not in client.get(f"/experiment/{experiment}/").text


def test_while_the_database_is_away_the_page_says_so_and_asks_again(client, api, servers, database_url):
    experiment = new_experiment(api, visibility="link")
    name = database_url.rpartition("/")[2].partition("?")[0]
    with servers.instance.postgres.connect_as_superuser("postgres") as db:
        db.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(name)))
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
    for query in ("", "?token=tbh_any"):
        answer = client.get(f"/experiment/{experiment}/{query}")
        assert (answer.status_code, answer.headers[STATE_HEADER]) == (503, "server")
        assert "Nothing was lost" in answer.text
        assert answer.headers["retry-after"]
