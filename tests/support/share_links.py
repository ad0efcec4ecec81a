"""Share links for tests: made by the API, with the token that reads what they show."""

from __future__ import annotations

from support.batches import ApiClient


def make_link(api, experiment, **fields):
    """Create a link; return its JSON."""
    answer = api.request("POST", f"/experiments/{experiment}/links", json=fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


def target_of(link):
    """Return the experiment that a link opens: for a frozen one, the copy."""
    return link["url"].split("/experiment/")[1].split("/")[0]


def reader_of(client, link):
    """Return the API for who has the link."""
    return ApiClient(client, link["token"])


def list_links(api, experiment):
    """Return the links of an experiment, newest first."""
    return api.get(experiment, "links")["links"]


def revoke(api, experiment, link):
    """Revoke a link."""
    api.request("DELETE", f"/experiments/{experiment}/links/{link['id']}").raise_for_status()
