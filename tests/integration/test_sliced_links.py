"""Links to a slice: every route that reads is asked, by the link and by the owner, and no
answer may contain anything of the runs and tags outside of the slice.

Hidden data are marked: see `support.read_routes`.
"""

from __future__ import annotations

import base64
import io
import re

import pyarrow.parquet
import pytest
from sqlalchemy import exc, text

from support.batches import ApiClient
from support.read_routes import NUMBERS, RUN, SHOWN, TAG, api_reads, fill, page_reads, series, write
from support.share_links import make_link
from tbservice.auth import grants

SLICES = {
    "runs": {"runs": "shown.*"},
    "tags": {"tags": r"(shown|_hparams_).*|__run_graph__"},
    "both": {"runs": "shown/[a-z]", "tags": "shown/.*"},
    "none": {"runs": "nothing"},
}
HIDDEN = {"runs": (RUN,), "tags": (TAG,), "both": (RUN, TAG)}


def search(marks, content):
    """Return the first of the marks in what was answered: plain, or in base64 at any offset."""
    for mark in marks:
        encoded = [base64.b64encode(b" " * n + mark.encode()) for n in range(3)]
        encoded = [each[4 * (n > 0) : -4] for n, each in enumerate(encoded)]
        number = str(NUMBERS[mark])[:7].encode()  # digests and times have no such number
        for needle in (mark.encode(), number, *encoded):
            if needle in content:
                return needle
    return None


@pytest.fixture
def api(client, shared_api):  # noqa: ARG001 - without the cookies of the test before
    """The owner of the experiment that is read by the links of all tests."""
    return shared_api


def new_experiment(api):
    experiment = api.new_experiment(name="an experiment")
    fill(api, experiment)
    return experiment


@pytest.fixture(scope="module")
def experiment(shared_api):
    return new_experiment(shared_api)


def text_of(answer):
    """Return what an answer says as plain bytes, with its headers except the request's id."""
    content = answer.content
    if content.startswith(b"PAR1"):
        content = str(pyarrow.parquet.read_table(io.BytesIO(content)).to_pydict()).encode()
    elif "arrow" in answer.headers.get("content-type", ""):
        content += str(pyarrow.ipc.open_stream(content).read_all().to_pydict()).encode()
    headers = [item for item in answer.headers.items() if item[0] != "x-request-id"]
    return content + str(headers).encode()


def owner_of(api):
    return api.headers["Authorization"].removeprefix("Bearer ")


def ask(client, token, method, path, options):
    headers = {"Authorization": f"Bearer {token}"} | options.get("headers", {})
    return client.request(method, path, **{**options, "headers": headers})


def reads(experiment, run, tag):
    yield from api_reads(experiment, run, tag)
    yield from page_reads(experiment, run, tag, compared=False)


@pytest.mark.parametrize("name", HIDDEN)
def test_no_route_tells_link_of_hidden(client, api, experiment, name):
    link = make_link(api, experiment, **SLICES[name])
    asked = list(api_reads(experiment, "shown/a", "shown/loss"))
    asked += list(page_reads(experiment, "shown/a", "shown/loss")) if name == "both" else []
    for method, path, options in asked:
        answer = ask(client, link["token"], method, path, options)
        assert answer.status_code in {200, 400, 404, 422}, (path, options, answer.text)
        assert not search(HIDDEN[name], text_of(answer)), (path, options, answer.text)


def test_owner_is_told_what_walk_of_links_looks_for(client, api, experiment):
    """So the walk above would find a leak, whichever the slice."""
    asked = api_reads(experiment, "shown/a", "shown/loss")
    answers = [text_of(ask(client, owner_of(api), *each)) for each in asked]
    for mark in (RUN, TAG):
        assert sum(search([mark], each) is not None for each in answers) > 25


@pytest.mark.parametrize(("run", "tag"), [(f"{RUN}/b", "shown/cat"), ("shown/a", f"{TAG}/loss")])
def test_hidden_names_look_like_names_of_nothing(client, api, experiment, run, tag):
    """Asked for by name, a hidden run or tag is answered as one that does not exist."""
    token = make_link(api, experiment, **SLICES["both"])["token"]
    absent_names = [name.replace("SECRET", "NOWHER") for name in (run, tag)]
    for (method, path, options), (_, _, other) in zip(
        reads(experiment, run, tag), reads(experiment, *absent_names), strict=True
    ):
        if options == other:  # it names neither: see the walk above
            continue
        hidden = ask(client, token, method, path, options)
        absent = ask(client, token, method, path, other)
        assert hidden.status_code == absent.status_code, (path, options)
        assert not search(
            (RUN, TAG), text_of(hidden).replace(run.encode(), b"").replace(tag.encode(), b"")
        )
        if "/new" not in path:  # whose cursor has a digest of the selection
            told = text_of(hidden).replace(b"SECRET", b"NOWHER")
            assert told == text_of(absent), (path, options)


def test_slice_tells_what_it_shows(client, api, experiment):
    shown = ApiClient(client, make_link(api, experiment, **SLICES["both"])["token"])
    assert [run["run"] for run in shown.get(experiment, "runs")["runs"]] == ["shown/a"]
    for kind, tag in (("scalars", "loss"), ("tensors", "note"), ("blob_sequences", "cat")):
        listed = shown.get(experiment, kind)
        assert list(listed) == ["shown/a"]
        assert f"shown/{tag}" in listed["shown/a"]
        data = shown.get(experiment, f"{kind}/data", sampling="all")
        own = api.get(experiment, f"{kind}/data", sampling="all")
        assert data["shown/a"][f"shown/{tag}"] == own["shown/a"][f"shown/{tag}"]


def test_blob_keys_of_hidden_points_open_nothing(client, api, experiment):
    token = make_link(api, experiment, **SLICES["both"])["token"]
    data = api.get(experiment, "blob_sequences/data")
    opened = 0
    for run, tags in data.items():
        for tag, sample in tags.items():
            key = sample["values"][0][0]["key"]
            is_shown = (run, tag[:5]) == ("shown/a", "shown")
            for path in (
                f"/api/v1/blobs/{key}",
                f"/experiment/{experiment}/data/blob/{key}",
                f"/experiment/{experiment}/data/plugin/images/individualImage?blob_key={key}",
            ):
                status = ask(client, token, "GET", path, {}).status_code
                assert status == (200 if is_shown else 404), (path, run, tag)
                opened += status == 200
    assert opened


def test_new_runs_that_match_appear(client, api):
    experiment = new_experiment(api)
    link = make_link(api, experiment, **SLICES["both"])
    shown = ApiClient(client, link["token"])
    cursor = shown.get(experiment, "scalars/new")["cursor"]
    write(api, experiment, "shown/b", *series(SHOWN, "shown"))
    write(api, experiment, "shown/long", *series(RUN, "shown"))
    write(api, experiment, f"{RUN}/c", *series(RUN, "shown"))
    assert [run["run"] for run in shown.get(experiment, "runs")["runs"]] == ["shown/a", "shown/b"]
    changed = shown.get(experiment, "scalars/new", since=cursor)
    assert {run: list(tags) for run, tags in changed["points"].items()} == {
        "shown/b": ["shown/loss"]
    }


def test_cursor_of_owner_tells_link_nothing_hidden(client, api, experiment):
    cursor = api.get(experiment, "scalars/new")["cursor"]
    shown = ApiClient(client, make_link(api, experiment, **SLICES["both"])["token"])
    answer = shown.request("GET", f"/experiments/{experiment}/scalars/new?since={cursor}")
    assert answer.status_code in {200, 422}
    assert not search((RUN, TAG), answer.content)


def test_pattern_matches_complete_names_only(client, api, experiment):
    for pattern, count in (("shown", 0), ("shown/a", 1), (".*a", 1), ("", 0), ("^shown/.$", 1)):
        shown = ApiClient(client, make_link(api, experiment, runs=pattern)["token"])
        assert len(shown.get(experiment, "runs")["runs"]) == count, pattern


def test_etag_of_one_link_is_none_of_another(client, api, experiment):
    tokens = [make_link(api, experiment, **fields)["token"] for fields in SLICES.values()]
    tokens += [
        make_link(api, experiment)["token"],
        make_link(api, experiment, anonymous=True)["token"],
    ]
    path = f"/api/v1/experiments/{experiment}/scalars"
    etags = [ask(client, token, "GET", path, {}).headers["ETag"] for token in tokens]
    assert len(set(etags)) == len(etags)
    for token, etag in zip(tokens, etags, strict=True):
        for other in tokens:
            headers = {"headers": {"If-None-Match": etag}}
            status = ask(client, other, "GET", path, headers).status_code
            assert status == (304 if other is token else 200)


def test_hparams_cache_is_not_shared_between_slices(client, api, experiment):
    path = f"/api/v1/experiments/{experiment}/hparams/experiment"
    tokens = [make_link(api, experiment, **SLICES[name])["token"] for name in ("runs", "both")]
    owner = owner_of(api)
    body = {"experimentName": experiment}
    first = [ask(client, token, "POST", path, {"json": body}).json() for token in (owner, *tokens)]
    assert first[0] != first[1] != first[2] != first[0]
    for _ in range(2):
        for token, answer in zip((owner, *tokens), first, strict=True):
            assert ask(client, token, "POST", path, {"json": body}).json() == answer


def test_walk_has_every_route_that_reads(client, experiment):
    """A new route that reads must be walked, or it could tell what is hidden."""
    walked = [path for _, path, _ in reads(experiment, "shown/a", "shown/loss")]
    paths = client.get("/api/v1/openapi.json").json()["paths"]
    for path, methods in paths.items():
        pattern = re.sub(r"\{\w+\}", "[^/]+", path)
        if not any(re.fullmatch(pattern, each) for each in walked):
            assert is_for_others(path, methods), path


OTHERS = ("tail", "tokens", "links", "batches", "streams", "blobs", "hparams", "series", "restore")
"""Ends of paths that need more than to read, or that other tests walk: tails and blobs."""


def is_for_others(path, methods):
    return (
        "{experiment_id}" not in path
        or any(f"/{part}" in path for part in OTHERS)
        or not {"get", "post"} & set(methods)
    )


def test_table_without_view_does_not_exist_for_slice(api, experiment, database):
    link = make_link(api, experiment, **SLICES["both"])
    with database.without_transaction() as db:
        grant = grants.grant_read(db, experiment, link["token"])
    for table in ("tokens", "katib_trials", "experiment_blobs", "users"):
        with pytest.raises(exc.ProgrammingError), database.snapshot(grant) as db:
            db.execute(text(f"SELECT count(*) FROM {table}"))  # noqa: S608 - a constant
    with database.snapshot(grant) as db:
        for table in (
            *("runs", "tags", "time_series", "scalar_tail", "tensor_points", "blob_points"),
            *("superseded_blocks", "superseded_tensors", "superseded_blobs", "upload_streams"),
        ):
            seen = str(db.execute(text(f"SELECT * FROM {table}")).all())  # noqa: S608 - a constant
            assert "SECRET" not in seen
