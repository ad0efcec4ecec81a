"""ETags: a client that has the current answer gets a 304, and only with a grant."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pytest

from support.batches import ApiClient, scalars, segment, stream
from support.servers import new_owner

PATHS = (
    "/api/v1/experiments/{id}/runs",
    "/api/v1/experiments/{id}/names",
    "/api/v1/experiments/{id}/plugins",
    "/api/v1/experiments/{id}/scalars",
    "/api/v1/experiments/{id}/scalars/data?run=train",
    "/api/v1/experiments/{id}/tensors/data",
    "/api/v1/experiments/{id}/blob_sequences/data",
    "/api/v1/experiments/{id}/scalars/data?sampling=all&format=csv",
    "/api/v1/experiments/{id}/scalars/new",
    "/api/v1/experiments/{id}/digests",
    "/api/v1/experiments/{id}/digests/records?run=train&tag=loss",
    "/api/v0/experiments/{id}/data/runs",
    "/api/v0/experiments/{id}/data/scalars",
    "/api/v0/experiments/{id}/data/scalars?run=train&tag=loss&format=csv",
)


@pytest.fixture
def experiment(api):
    return api.new_experiment(scalars("loss", [0, 1]))


def ask(api, experiment, path, **headers):
    return api.client.get(path.format(id=experiment), headers=api.headers | headers)


def test_etag_spares_answer_until_data_changes(api, experiment):
    tags = {}
    for path in PATHS:
        answer = ask(api, experiment, path)
        tags[path] = answer.headers["ETag"]
        assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "private, no-cache")
        again = ask(api, experiment, path, **{"If-None-Match": f'"other", W/{tags[path]}'})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tags[path])
    api.write(experiment, segment(stream(), 9, 19, scalars("loss", [2])))
    for path, tag in tags.items():
        answer = ask(api, experiment, path, **{"If-None-Match": tag})
        assert answer.status_code == 200
        assert answer.headers["ETag"] != tag


def test_etag_differs_by_response_format(api, experiment):
    path = "/api/v1/experiments/{id}/scalars/data"
    tag = ask(api, experiment, path, Accept="application/json").headers["ETag"]
    assert (
        ask(api, experiment, path, Accept="text/csv", **{"If-None-Match": tag}).status_code == 200
    )


def test_etag_grants_no_access(api, client, settings, experiment):
    path = "/api/v1/experiments/{id}/scalars"
    tag = ask(api, experiment, path).headers["ETag"]
    stranger = ApiClient(client, new_owner(settings.database_url.get_secret_value()))
    for other, status in ((stranger, 404), (ApiClient(client, None), 401)):
        for known in (tag, "*"):
            answer = ask(other, experiment, path, **{"If-None-Match": known})
            assert (answer.status_code, "ETag" in answer.headers) == (status, False)


def test_error_response_has_no_etag(api, experiment):
    answer = ask(api, experiment, "/api/v1/experiments/{id}/scalars/data?downsample=-1")
    assert (answer.status_code, "ETag" in answer.headers) == (422, False)
    posted = api.request("POST", f"/experiments/{experiment}/scalars/data", json={})
    assert (posted.status_code, "ETag" in posted.headers) == (200, False)


def decode(answer):
    """Return a response's content without its coding, which the client may not know."""
    decoders = {
        "zstd": lambda packed: pa.input_stream(pa.py_buffer(packed), compression="zstd").read(),
        "gzip": gzip.decompress,
        None: bytes,
    }
    return decoders[answer.headers.get("Content-Encoding")](b"".join(answer.iter_raw()))


def test_json_is_compressed_in_coding_that_client_prefers(api):
    experiment = api.new_experiment(scalars("loss", range(1_000)))
    path = f"/api/v1/experiments/{experiment}/scalars/data"
    plain = ask(api, experiment, path, **{"Accept-Encoding": "identity"})
    for accepted, coding in (
        ("br;q=1.0, gzip;q=0.8", "gzip"),
        ("gzip, deflate, br, ZSTD", "zstd"),
        ("zstd;q=0.5, gzip", "gzip"),
        ("zstd; q=0.001,gzip;q=0", "zstd"),
        ("gzip;q=0, identity", None),
        ("gzipped, x-zstd, zstd;q=2", None),
    ):
        headers = {**api.headers, "Accept-Encoding": accepted}
        with api.client.stream("GET", path, headers=headers) as answer:
            assert decode(answer) == plain.content
        assert answer.headers.get("Content-Encoding") == coding, accepted
        assert "Accept-Encoding" in answer.headers["Vary"]
        assert (answer.headers["ETag"] == plain.headers["ETag"]) == (coding is None)
        if coding is not None:
            assert int(answer.headers["Content-Length"]) < len(plain.content) / 2
        again = {**headers, "If-None-Match": answer.headers["ETag"]}
        assert api.client.get(path, headers=again).status_code == 304


@pytest.mark.parametrize("path", ["/api/v1/openapi.json", "/api/v1/docs"])
def test_openapi_document_and_its_page_are_compressed(api, path):
    plain = ask(api, None, path, **{"Accept-Encoding": "identity"})
    headers = {"Accept-Encoding": "zstd"}
    with api.client.stream("GET", path, headers=headers) as answer:
        assert decode(answer) == plain.content
    assert int(answer.headers["Content-Length"]) < len(plain.content) / 4
    assert answer.headers["Vary"] == "Accept-Encoding"


@pytest.mark.parametrize("coding", ["zstd", "gzip", "identity"])
def test_short_json_and_secrets_are_not_compressed(api, experiment, coding):
    for path in ("/api/v1/experiments/{id}/scalars", "/api/v1/me", "/api/v1/experiments"):
        answer = ask(api, experiment, path, **{"Accept-Encoding": coding})
        assert answer.status_code == 200
        assert "Content-Encoding" not in answer.headers
