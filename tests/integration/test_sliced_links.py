"""What a link to a slice shows: every route that reads is asked, by the link and by the owner, and no
answer may contain anything of the runs and tags outside of the slice.

Everything of a hidden run (names, metadata, texts, blobs) has the word RUNSECRET or a number with
66613 in it, everything of a hidden tag TAGSECRET or 77713.
"""

from __future__ import annotations

import base64
import io
import json
import re

import pyarrow.parquet
import pytest
from sqlalchemy import exc, text

from support.batches import ApiClient, images, metadata, scalars, segment, stream, texts
from support.hparams import end, metric, start, summary
from support.share_links import make_link
from tbservice.auth import grants
from tbservice.pages.download import FILES

SHOWN, RUN, TAG = "shown", "RUNSECRET", "TAGSECRET"
NUMBERS = {SHOWN: 1.5, RUN: 66613.5, TAG: 77713.5, RUN + TAG: 6661377713.5}
KINDS = ("scalars", "tensors", "blob_sequences")
SUPERSEDED, NEWEST = 1.6e9, 1.7e9
"""Wall times of what an earlier attempt of each run logged, and of what is shown."""

SLICES = {
    "runs": {"runs": "shown.*"},
    "tags": {"tags": r"(shown|_hparams_).*|__run_graph__"},
    "both": {"runs": "shown/[a-z]", "tags": "shown/.*"},
    "none": {"runs": "nothing"},
}
HIDDEN = {"runs": (RUN,), "tags": (TAG,), "both": (RUN, TAG), "none": (RUN, TAG)}


def search(marks, content):
    """Return the first of the marks in what was answered: plain, or in base64 at any offset."""
    for mark in marks:
        encoded = [base64.b64encode(b" " * n + mark.encode()) for n in range(3)]
        encoded = [each[4 * (n > 0) : -4] for n, each in enumerate(encoded)]
        number = str(NUMBERS[mark])[:5].encode()
        for needle in (mark.encode(), number, *encoded):
            if needle in content:
                return needle
    return None


def series(mark, tag, time=NEWEST):
    """One series of each kind, of which nothing but the kind is known without the mark."""
    number = NUMBERS[mark]
    loss = scalars(f"{tag}/loss", range(20), [number] * 20, [time] * 20)
    loss.summary_metadata = metadata(description=f"the loss of {mark}")
    two = [time, time]
    note = texts(f"{tag}/note", [0, 1], [f"{mark} text".encode(), mark.encode()], two)
    cat = images(f"{tag}/cat", [0, 1], [[f"{mark} png {tag}".encode()], [mark.encode()]], two)
    sound = images(f"{tag}/sound", [0], [[f"{mark} wav {tag}".encode()]], [time])
    sound.summary_metadata = metadata("audio", 3, content=b"\x10\x0b")
    unknown = images(f"{tag}/other", [0], [[f"{mark} other".encode()]], [time])
    unknown.summary_metadata = metadata(f"{mark}_plugin", 3)
    return [loss, note, cat, sound, unknown]


def graph(mark):
    """A graph with one node."""
    node = b"\x0a" + bytes([len(mark)]) + mark.encode()
    content = images("__run_graph__", [0], [[b"\x0a" + bytes([len(node)]) + node]])
    content.summary_metadata = metadata("graphs", 3)
    return content


def session(mark):
    """A session with a hyperparameter and a summary."""
    return [
        start({f"{mark}_rate": f"{mark} value"}, group_name=mark),
        end(),
        summary(metrics=[metric(f"{mark}/loss", display_name=mark)], user=mark),
    ]


def write(api, experiment, run, *content, time=NEWEST):
    """Write an event file of a run, whose name says how long it was before."""
    write.files += 1
    of = stream(run, f"events.out.tfevents.{write.files}")
    api.write(experiment, segment(of, 0, 9, *content, start_time=time - 1000))


write.files = 0


def fill(api, experiment):
    """Write runs and tags inside and outside of the slices, in all combinations."""
    for run, mark in (("shown/a", SHOWN), (f"{RUN}/b", RUN)):
        earlier = series(mark, "shown", SUPERSEDED)
        earlier += series(TAG if mark == SHOWN else RUN + TAG, TAG, SUPERSEDED)
        write(api, experiment, run, *earlier, time=SUPERSEDED)
    write(api, experiment, "shown/a", *series(SHOWN, "shown"), graph(SHOWN), *session(SHOWN))
    write(api, experiment, "shown/a", *series(TAG, TAG))
    write(api, experiment, f"{RUN}/b", *series(RUN, "shown"), graph(RUN), *session(RUN))
    write(api, experiment, f"{RUN}/b", *series(RUN + TAG, TAG))


@pytest.fixture
def experiment(api):
    experiment = api.new_experiment(name="an experiment")
    fill(api, experiment)
    return experiment


def api_reads(experiment, run, tag):
    """Yield (method, path, options) of the reading routes of the API, asked for a run and a tag."""
    base = f"/api/v1/experiments/{experiment}"
    lists = ("", "/runs", "/runs/deleted", "/names", "/plugins", "/uploads", "/attempts")
    yield from (("GET", f"{base}{path}", {}) for path in lists)
    selected = {"run": [run], "tag": [tag]}
    for kind in KINDS:
        for fields in ({}, selected):
            yield "POST", f"{base}/{kind}", {"json": fields}
            yield "POST", f"{base}/{kind}", {"json": {**fields, "limit": 1}}
            for sampling in ("uniform", "linear", "bernoulli", "all"):
                form = "parquet" if sampling == "all" else "json"
                sampled = {**fields, "sampling": sampling, "downsample": 50, "format": form}
                yield "POST", f"{base}/{kind}/data", {"json": sampled}
            for form in ("csv", "ndjson", "arrow", "points"):
                yield "POST", f"{base}/{kind}/data", {"json": {**fields, "format": form}}
            yield "POST", f"{base}/{kind}/new", {"json": fields}
        yield "GET", f"{base}/{kind}", {}
        yield "GET", f"{base}/{kind}/data", {"params": {"run": run}}
        for sampling in ("uniform", "all"):
            earlier = {"attempt": 1, "sampling": sampling}
            yield "POST", f"{base}/{kind}/data", {"json": earlier}
            yield "POST", f"{base}/{kind}/data", {"json": {**selected, **earlier}}
        yield "GET", f"{base}/{kind}/new", {"params": {"start": "now"}}
    yield "POST", f"{base}/scalars/data", {"json": {"sampling": "extremes", "downsample": 50}}
    for fields in ({}, {"run": [run]}):
        yield "POST", f"{base}/digests", {"json": fields}
        yield "POST", f"{base}/digests/objects", {"json": {**fields, "deep": True}}
    yield "GET", f"{base}/digests", {}
    yield "POST", f"{base}/digests/records", {"json": {"run": run, "tag": tag}}
    yield "GET", f"{base}/digests/records", {"params": {"run": run, "tag": tag}}
    yield "POST", f"{base}/hparams/experiment", {"json": {"experimentName": experiment}}
    statuses = [f"STATUS_{status}" for status in ("UNKNOWN", "SUCCESS", "FAILURE", "RUNNING")]
    columns = [{"metric": {"tag": f"{mark}/loss"}} for mark in (SHOWN, RUN, TAG)]
    groups = {"allowedStatuses": statuses, "colParams": columns, "startIndex": 0, "sliceSize": 9}
    yield "POST", f"{base}/hparams/session_groups", {"json": groups}
    evals = {"sessionName": run, "metricName": {"tag": tag, "group": ""}}
    yield "POST", f"{base}/hparams/metric_evals", {"json": evals}
    yield from table_reads(base, run)
    classic = f"/api/v0/experiments/{experiment}"
    series = {"run": run, "tag": tag}
    for path in ("data/runs", "data/scalars", "data/images", "data/histograms", "data/graph"):
        yield "GET", f"{classic}/{path}", {}
        yield "GET", f"{classic}/{path}", {"params": series}
    for path in ("data/compressedHistograms", "individualImage", "audio", "individualAudio"):
        yield "GET", f"{classic}/{path}", {"params": {**series, "index": 0, "sample": 0}}
    yield "GET", f"{classic}/data/run_metadata", {"params": series}


def table_reads(base, run):
    """The same of the routes of tables, and of points with metadata."""
    for form in ("csv", "parquet", "arrow"):
        for table in ("experiment", "properties", "uploads", "runs", "series", "sessions"):
            yield "GET", f"{base}/tables/{table}", {"params": {"format": form}}
        for table in ("hparams", "blobs"):
            yield "GET", f"{base}/tables/{table}", {"params": {"format": form}}
        for kind in KINDS:
            yield "GET", f"{base}/{kind}/data", {"params": {"format": form, "metadata": "true"}}
    for table in ("runs", "series", "blobs"):
        yield "POST", f"{base}/tables/{table}", {"json": {"run": [run], "format": "csv"}}


def page_reads(experiment, run, tag, *, compared=True):
    """The same of the page's routes, and of a comparison's."""
    series = {"run": run, "tag": tag}
    page = f"/experiment/{experiment}"
    bases = [page, f"/compare/a:{experiment},b:{experiment}", f"{page}/attempt/1"]
    for base in bases if compared else bases[:1]:
        inside = f"a/{run}" if "compare" in base else run
        yield "GET", f"{base}/", {}
        for path in ("environment", "runs", "plugins_listing", "experiments"):
            yield "GET", f"{base}/data/{path}", {}
        for plugin in ("scalars", "timeseries", "text", "images", "audio", "histograms"):
            yield "GET", f"{base}/data/plugin/{plugin}/tags", {}
        for plugin in ("distributions", "pr_curves", "mesh", "custom_scalars"):
            yield "GET", f"{base}/data/plugin/{plugin}/tags", {}
        series = {"run": inside, "tag": tag, "sample": 0}
        for path in ("scalars/scalars", "text/text", "images/images", "audio/audio"):
            yield "GET", f"{base}/data/plugin/{path}", {"params": series}
        for path in ("histograms/histograms", "distributions/distributions"):
            yield "GET", f"{base}/data/plugin/{path}", {"params": series}
        form = {"tag": tag, "runs": [inside]}
        yield "POST", f"{base}/data/plugin/scalars/scalars_multirun", {"data": form}
        cards = [
            {"plugin": "scalars", "tag": tag},
            {"plugin": "images", "tag": tag, "run": inside, "sample": 0},
            {"plugin": "histograms", "tag": tag, "run": inside},
        ]
        requests = {"data": {"requests": json.dumps(cards)}}
        yield "POST", f"{base}/data/plugin/timeseries/timeSeries", requests
        for path in ("info", "run_tags"):
            yield "GET", f"{base}/data/plugin/graphs/{path}", {}
        yield "GET", f"{base}/data/plugin/graphs/graph", {"params": {"run": inside}}
        named = {"json": {"experimentName": base.split("/")[2]}}
        yield "POST", f"{base}/data/plugin/hparams/experiment", named
        groups = {"allowedStatuses": ["STATUS_SUCCESS"], "startIndex": 0, "sliceSize": 9}
        yield "POST", f"{base}/data/plugin/hparams/session_groups", {"json": groups}
        evals = {"sessionName": inside, "metricName": {"tag": tag, "group": ""}}
        yield "POST", f"{base}/data/plugin/hparams/metric_evals", {"json": evals}
        for form in ("csv", "json", "latex"):
            yield (
                "GET",
                f"{base}/data/plugin/hparams/download_data",
                {
                    "params": {
                        "format": form,
                        "request": json.dumps(groups),
                        "columnsVisibility": "[]",
                    }
                },
            )
        yield "GET", f"{base}/data/plugin/projector/runs", {}
        for path in ("info", "tensor", "metadata", "bookmarks", "sprite_image"):
            named = {"params": {"run": inside, "name": tag}}
            yield "GET", f"{base}/data/plugin/projector/{path}", named
    yield from (("GET", f"/experiment/{experiment}/download/{name}", {}) for name in FILES)


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


@pytest.mark.parametrize("name", SLICES)
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


def test_new_runs_that_match_appear(client, api, experiment):
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
