"""Pages in frames of other pages: none, or TensorBoard's pages alone, where the operator allows."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from support.batches import scalars
from tbservice.server.app import create_app
from tbservice.settings import Settings

NOTEBOOKS = ("https://jupyter.example.org", "http://localhost:*")
ALLOWED = f"frame-ancestors {' '.join(NOTEBOOKS)}"
NONE = "frame-ancestors 'none'"


@pytest.fixture(scope="module")
def framed(shared_settings):
    """A client of an application that allows frames."""
    settings = shared_settings.model_copy(update={"frame_ancestors": NOTEBOOKS})
    with TestClient(create_app(settings)) as client:
        yield client


@pytest.fixture
def experiment(api):
    return api.new_experiment(scalars("loss", range(3)), name="Shown")


def ancestors(client, path, token=None):
    """Return the directive of a page, the last one of its policy."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = client.get(path, headers=headers, follow_redirects=False)
    return answer.headers["content-security-policy"].rpartition("; ")[2]


def test_page_is_in_no_frame_by_default(client, experiment, owner_token):
    assert ancestors(client, f"/experiment/{experiment}/", owner_token) == NONE


def test_page_is_in_frames_that_operator_allows(framed, experiment, api, owner_token):
    assert ancestors(framed, f"/experiment/{experiment}/", owner_token) == ALLOWED
    empty = api.new_experiment()
    assert ancestors(framed, f"/experiment/{empty}/", owner_token) == ALLOWED


def test_projector_is_in_frame_of_page_in_frame(framed, experiment, owner_token):
    path = f"/experiment/{experiment}/data/plugin/projector/projector_binary.html"
    assert ancestors(framed, path, owner_token) == ALLOWED.replace(" ", " 'self' ", 1)


def test_forms_and_other_pages_are_in_no_frame(framed, experiment):
    for path in (
        "/sign-in",
        "/api/v1/docs",
        "/experiment/{experiment}/",
    ):
        assert ancestors(framed, path.format(experiment=experiment)) == NONE, path


def test_redirect_to_content_origin_names_frames(shared_settings):
    changes = {"frame_ancestors": NOTEBOOKS, "content_url": "http://localhost:6071"}
    with TestClient(create_app(shared_settings.model_copy(update=changes))) as client:
        assert ancestors(client, f"/experiment/{'a' * 22}/") == ALLOWED


@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "'self'",
        "https:",
        "https://*",
        "https://a.example.org/path",
        "https://a.example.org; script-src *",
        "https://a.example.org https://b.example.org",
        "http://jupyter.example.org",
        "http://*.localhost",
        "https://a.*.example.org",
        "https://[::1]",
        "data:",
        "https://a.example.org\n",
    ],
)
def test_frame_ancestors_that_are_no_origins_are_refused(origin):
    with pytest.raises(ValidationError, match="frame_ancestors"):
        Settings(database_url="x", frame_ancestors=(origin,))


def test_frame_ancestors_may_have_ports_and_subdomains():
    origins = ("https://*.example.org:8443", "http://127.0.0.1:*", *NOTEBOOKS)
    assert Settings(database_url="x", frame_ancestors=origins).frame_ancestors == origins
