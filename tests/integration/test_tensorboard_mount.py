"""The stock TensorBoard page over real data: who may open it, what it shows, and what it refuses."""

from __future__ import annotations

import json
import logging
import re
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import text
from tensorboard.auth import AuthContext
from tensorboard.context import RequestContext
from tensorboard.data.provider import RunTagFilter
from tensorboard.errors import PermissionDeniedError

from support.batches import ApiClient, images, metadata, scalars, segment, stream, texts
from support.event_files import PNG
from tbservice.auth import grants
from tbservice.errors import NotFound
from tbservice.reading.source import ExperimentReader
from tbservice.tensorboard.plugins.regular_expressions import CUSTOM_SCALARS_TAGS_ITEMS_MAX
from tbservice.tensorboard.provider import READER_KEY, ReaderAuth, StoreProvider
from tbwire import wire_pb2

# Every kind of address below /experiment/<id>/: the page, native and stock data, blobs, the front
# end's files.
ADDRESSES = (
    ("GET", ""),
    ("GET", "data/environment"),
    ("GET", "data/runs"),
    ("GET", "experiment/defaultExperimentId/data/runs"),
    ("GET", "data/plugins_listing"),
    ("GET", "data/plugin/timeseries/tags"),
    ("POST", "experiment/defaultExperimentId/data/plugin/timeseries/timeSeries"),
    ("GET", "data/plugin/scalars/scalars?run=train&tag=loss"),
    ("GET", "data/plugin/text/text?run=train&tag=note&markdown=true"),
    ("POST", "data/plugin/hparams/experiment"),
    ("GET", "data/plugin/projector/runs"),
    ("GET", "data/plugin/projector/projector_binary.html"),
    ("GET", "data/blob/{blob}"),
    ("GET", "data/plugin/images/individualImage?blob_key={blob}&ts=1"),
    ("GET", "data/plugin/audio/individualAudio?blob_key={blob}&content_type=audio/wav&ts=1"),
    ("GET", "data/plugin/timeseries/imageData?imageId={blob}"),
    ("GET", "chart_worker.js"),
    ("GET", "download/scalars.csv"),
    ("GET", "download/tensors.parquet"),
    ("GET", "no/such/file.js"),
)


@pytest.fixture
def experiment(api):
    return new_experiment(api, name="Réseau <b>1</b>")


def new_experiment(api, **fields):
    """An experiment with a scalar, a text and an image series, of one run."""
    experiment = api.new_experiment(**fields)
    media = [
        texts("note", [0, 1], [b"**one**", b"<script>two</script>"]),
        images("photo", [0], [[b"1", b"1", PNG]]),
    ]
    api.write(
        experiment,
        segment(stream(), 0, 100, scalars("loss", [0, 1, 2], [0.5, np.nan, 2.0]), *media),
    )
    return experiment


def blob_key(api, experiment):
    answer = api.get(
        experiment, "blob_sequences/data", run="train", tag="photo", plugin="images", downsample=10
    )
    return answer["train"]["photo"]["values"][0][2]["key"]


def request_context(client, api, experiment):
    """Return what a stock handler passes to the data provider in a request of the owner."""
    with client.app.state.database.transaction() as db:
        grant = grants.grant_read(db, experiment, api.headers["Authorization"].split()[1])
    environ = {
        READER_KEY: ExperimentReader(grant, client.app.state.database, client.app.state.objects)
    }
    return RequestContext(auth=AuthContext({READER_KEY: ReaderAuth()}, environ))


def bearer(token):
    return {"Authorization": f"Bearer {token}"} if token else {}


def cookie(token):
    return {"Cookie": f"tbhub_read={token}"}


FEW = ADDRESSES[0], ADDRESSES[4], ADDRESSES[7]
"""A form, a native and a stock route, as which all others ask for the right to read."""


def statuses(client, api, experiment, headers, addresses=FEW):
    """Return the status of a request to each address."""
    blob = blob_key(api, experiment)
    forms = {"data": {"requests": json.dumps([{"plugin": "scalars", "tag": "loss"}])}}
    answers = {}
    for method, path in addresses:
        body = ({"content": "{}"} if "hparams" in path else forms) if method == "POST" else {}
        url = f"/experiment/{experiment}/{path.format(blob=blob)}"
        answer = client.request(method, url, headers=headers, follow_redirects=False, **body)
        answers[method, path] = answer.status_code
    return answers


def all_of(status, **others):
    return {address: others.get(address[1].split("/", 1)[0], status) for address in ADDRESSES}


EVERYTHING = all_of(200, no=404, **{"chart_worker.js": 308})  # to the copy for all experiments
OPEN, CLOSED = dict.fromkeys(FEW, 200), dict.fromkeys(FEW, 401)
FORMS = dict.fromkeys(
    [("GET", ""), ("GET", "download/scalars.csv"), ("GET", "download/tensors.parquet")], 401
)


def test_every_address_opens_only_for_who_may_read(client, api, experiment, database, workspace_id):
    other = ApiClient(client, api.headers["Authorization"].split()[1]).new_experiment()
    soon = datetime.now(UTC) + timedelta(hours=1)
    expired = api.new_token(experiment, "read", expires_at=soon.isoformat())
    assert statuses(client, api, experiment, cookie(expired)) == OPEN
    with database.transaction(workspace_id) as db:
        db.execute(text("UPDATE tokens SET expires_at = now() WHERE expires_at IS NOT NULL"))
    for headers, expected in (
        ({}, all_of(401)),
        (bearer(api.new_token(other, "read")), all_of(404) | FORMS),
        (bearer(api.new_token(experiment, "append")), all_of(403) | FORMS),
        (cookie(api.new_token(experiment, "read")), EVERYTHING),
    ):
        assert statuses(client, api, experiment, headers, ADDRESSES) == expected
    table = {
        "nonsense": (bearer("tbh_nonsense"), CLOSED),
        "another scheme": ({"Authorization": "Basic dGJoOng="}, CLOSED),
        "read": (bearer(api.new_token(experiment, "read")), OPEN),
        "owner": (api.headers, OPEN),
        "another experiment's cookie": (cookie(api.new_token(other, "read")), CLOSED),
        "an append cookie": (cookie(api.new_token(experiment, "append")), CLOSED),
        "expired": (bearer(expired), CLOSED),
        "an expired cookie": (cookie(expired), CLOSED),
        "a good cookie, a bad header": (
            cookie(api.new_token(experiment, "read")) | bearer("tbh_no"),
            CLOSED,
        ),
    }
    for who, (headers, expected) in table.items():
        assert statuses(client, api, experiment, headers) == expected, who


def test_page_with_link_visibility_opens_for_anyone(client, api):
    experiment = new_experiment(api, visibility="link")
    assert statuses(client, api, experiment, {}) == OPEN
    assert statuses(client, api, experiment, cookie("tbh_stale")) == OPEN
    api.request("PATCH", f"/experiments/{experiment}", json={"visibility": "private"})
    assert statuses(client, api, experiment, {}) == CLOSED


def test_experiment_that_does_not_exist_looks_like_private_one(client, api, experiment):
    missing = experiment[::-1]
    for path in ("", "data/runs", "download/scalars.csv", "?token=tbh_wrong"):
        for headers in ({}, bearer(api.new_token(api.new_experiment(), "read"))):
            there = client.get(f"/experiment/{experiment}/{path}", headers=headers)
            gone = client.get(f"/experiment/{missing}/{path}", headers=headers)
            assert there.headers.pop("x-request-id") != gone.headers.pop("x-request-id")
            assert (there.status_code, there.text, there.headers) == (
                gone.status_code,
                gone.text.replace(missing, experiment),
                gone.headers,
            )
            assert there.status_code in {401, 404}


def test_share_link_keeps_token_in_cookie_of_experiment(client, api, experiment):
    token = api.new_token(experiment, "read")
    link = f"/experiment/{experiment}?tagFilter=a%20b&token={token}&darkMode=true"
    slash = client.get(link, follow_redirects=False)
    assert slash.headers["location"] == link.replace("?", "/?")
    answer = client.get(slash.headers["location"], follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (
        303,
        "./?tagFilter=a+b&darkMode=true",
    )
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"
    expected = f"tbhub_read={token}; HttpOnly; Path=/experiment/{experiment}/; SameSite=lax"
    assert answer.headers["set-cookie"] == expected
    assert client.get(f"/experiment/{experiment}/").status_code == 200


def test_cookie_is_for_https_alone_where_service_is(client, api, experiment):
    token = api.new_token(experiment, "read")
    answer = client.get(
        f"https://testserver/experiment/{experiment}/?token={token}", follow_redirects=False
    )
    assert "; Secure" in answer.headers["set-cookie"]


def kept_token(answer):
    return answer.headers["set-cookie"].split(";")[0].removeprefix("tbhub_read=")


@pytest.mark.parametrize("scopes", [None, ("append", "read")])
def test_token_that_can_do_more_than_read_is_not_kept_in_browser(
    client, api, owner_token, experiment, scopes
):
    token = api.new_token(experiment, *scopes) if scopes else owner_token
    answer = client.get(f"/experiment/{experiment}/?token={token}", follow_redirects=False)
    kept = kept_token(answer)
    assert kept != token
    assert statuses(client, api, experiment, cookie(kept)) == OPEN
    assert ApiClient(client, kept).send(experiment, segment(stream(), 100, 200)).status_code == 403
    assert ApiClient(client, kept).request("POST", "/experiments", json={}).status_code == 403
    (session,) = api.get(experiment, "tokens", sessions=True)["tokens"]
    assert (session["label"], session["scopes"]) == ("browser session", ["read"])
    life = datetime.fromisoformat(session["expires_at"]) - datetime.fromisoformat(
        session["created_at"]
    )
    assert timedelta(hours=11) < life < timedelta(hours=13)


def test_page_cookie_is_not_set_for_useless_token(client, api):
    experiment = new_experiment(api, visibility="link")
    elsewhere = api.new_token(api.new_experiment(), "read")
    for token in ("", "nonsense", elsewhere, api.new_token(experiment, "append")):
        answer = client.get(f"/experiment/{experiment}/?token={token}", follow_redirects=False)
        assert (answer.status_code, answer.headers.get("set-cookie")) == (303, None)


def test_form_takes_pasted_token_and_says_when_it_is_wrong(client, api, experiment):
    address = f"/experiment/{experiment}/?darkMode=true&token=tbh_old%22%3E"
    form = client.get(address)
    assert form.status_code == 401
    assert 'action="./?darkMode=true"' in form.text
    assert "tbh_old" not in form.text
    assert "<script" not in form.text
    assert "script-src" not in form.headers["content-security-policy"]
    wrong = client.post(address, data={"token": "tbh_wrong"})
    assert wrong.status_code == 401
    assert "This token does not open this experiment." in wrong.text
    token = api.new_token(experiment, "read")
    for pasted in (f" {token}\n", f"https://host/experiment/x/?token={token}&a=b"):
        right = client.post(address, data={"token": pasted}, follow_redirects=False)
        assert (right.status_code, right.headers["location"]) == (303, "./?darkMode=true")
        assert kept_token(right) == token
    other_site = client.post(
        address, data={"token": token}, headers={"Sec-Fetch-Site": "cross-site"}
    )
    assert other_site.status_code == 403
    assert client.post(address, content=b"token=" + b"x" * 100_000).status_code == 413


def test_provider_reads_no_experiment_but_grants(client, api, experiment):
    other = new_experiment(api)
    ctx, provider = request_context(client, api, experiment), StoreProvider()
    whose = {"experiment_id": experiment, "plugin_name": "scalars"}
    assert list(provider.list_scalars(ctx, **whose)["train"]) == ["loss"]
    assert provider.list_scalars(ctx, **whose, run_tag_filter=RunTagFilter(runs=[])) == {}
    assert (
        provider.list_scalars(ctx, **whose, run_tag_filter=RunTagFilter(runs=["train"], tags=[]))
        == {}
    )
    assert (
        provider.read_scalars(
            ctx, **whose, downsample=9, run_tag_filter=RunTagFilter(tags=["other"])
        )
        == {}
    )
    assert provider.read_last_scalars(ctx, **whose)["train"]["loss"].value == 2.0
    assert provider.read_blob(ctx, blob_key=blob_key(api, experiment)) == PNG
    with pytest.raises(PermissionDeniedError):
        provider.list_runs(ctx, experiment_id=other)
    with pytest.raises(NotFound):
        provider.read_blob(ctx, blob_key=blob_key(api, other))


def test_request_that_reaches_provider_without_grant_fails(experiment):
    ctx = RequestContext(auth=AuthContext({READER_KEY: ReaderAuth()}, {}))
    with pytest.raises(KeyError):
        StoreProvider().list_runs(ctx, experiment_id=experiment)


def tensor_series(tag, plugin, dtype, shape, data):
    points = wire_pb2.TensorPoints(
        steps=np.array([3], "<i8").tobytes(),
        wall_times=np.array([5.0], "<f8").tobytes(),
        tensors=[wire_pb2.Tensor(dtype=dtype, shape=shape, data=data)],
    )
    return wire_pb2.Series(tag=tag, summary_metadata=metadata(plugin, 2), tensors=points)


def test_tensors_reach_stock_handlers_as_arrays_of_their_type(client, api, experiment):
    bfloat16 = np.array([1.5, -2.0], "<f4").view("<u4") >> 16
    sent = [
        tensor_series("a", "mine", 1, [1, 2], np.array([1, 2], "<f4").tobytes()),
        tensor_series("b", "mine", 14, [2], bfloat16.astype("<u2").tobytes()),
        tensor_series("c", "mine", 7, [], b"\x02\0\0\0\xffx"),
    ]
    api.write(experiment, segment(stream("other"), 0, 9, *sent))
    read = StoreProvider().read_tensors(
        request_context(client, api, experiment),
        experiment_id=experiment,
        plugin_name="mine",
        downsample=10,
    )
    points = {tag: series[0] for tag, series in read["other"].items()}
    assert (points["a"].step, points["a"].wall_time, points["a"].numpy.tolist()) == (
        3,
        5.0,
        [[1.0, 2.0]],
    )
    assert points["b"].numpy.tolist() == [1.5, -2.0]
    assert points["c"].numpy.item() == b"\xffx"


class Page:
    """An experiment's addresses as the stock page requests them, with the owner's token."""

    def __init__(self, client, api, experiment):
        self._client, self._headers, self._base = client, api.headers, f"/experiment/{experiment}/"

    def get(self, path, method="GET", **options):
        headers = self._headers | options.pop("headers", {})
        return self._client.request(method, self._base + path, headers=headers, **options)


@pytest.fixture
def page(client, api, experiment):
    return Page(client, api, experiment)


def test_page_escapes_experiment_name_and_links_nowhere(page):
    answer = page.get("")
    assert "<title>Réseau &lt;b&gt;1&lt;/b&gt; · TensorBoard</title>" in answer.text
    assert "url(/font-roboto" not in answer.text
    policy = answer.headers["content-security-policy"]
    assert "http" not in policy
    assert "unsafe-eval" not in policy
    own = "testserver/experiment/"
    assert re.search(rf"connect-src {own}\w{{22}}/; ", policy)
    assert "script-src testserver/static/tensorboard/ 'sha256-" in policy
    assert "'self'" not in policy
    assert "form-action 'none'" in policy
    assert "frame-ancestors 'none'" in policy


def test_environment_tells_of_experiment_and_nothing_of_server(page):
    environment = page.get("data/environment").json()
    created = environment.pop("creation_time")
    assert abs(created - time.time()) < 100
    assert environment.pop("version").startswith("2.21.")
    assert environment == {
        "data_location": "Réseau <b>1</b>",
        "window_title": "Réseau <b>1</b> · TensorBoard",
        "experiment_name": "Réseau <b>1</b>",
        "experiment_description": "",
    }


def test_stock_handlers_answer_with_uploaded_data(page):
    tags = page.get("data/plugin/timeseries/tags").json()
    assert tags["scalars"]["runTagInfo"] == {"train": ["loss"]}
    assert tags["images"]["tagRunSampledInfo"] == {"photo": {"train": {"maxSamplesPerStep": 1}}}
    series = page.get(
        "data/plugin/scalars/scalars_multirun", "POST", data={"tag": "loss", "runs": ["train"]}
    ).json()
    assert series == {"train": [[1.7e9, 0, 0.5], [1.7e9 + 1, 1, "NaN"], [1.7e9 + 2, 2, 2.0]]}
    notes = page.get("data/plugin/text/text?run=train&tag=note&markdown=true").json()
    assert "<strong>one</strong>" in notes[0]["text"]
    assert "<script" not in notes[1]["text"]
    (image,) = page.get("data/plugin/images/images?run=train&tag=photo&sample=0").json()
    answer = page.get(f"data/plugin/images/individualImage?{image['query']}")
    assert (answer.content, answer.headers["content-type"]) == (PNG, "image/png")
    part = page.get(
        f"data/plugin/images/individualImage?{image['query']}", headers={"Range": "bytes=0-3"}
    )
    assert (part.status_code, part.content) == (206, PNG[:4])


def test_only_plugins_that_are_safe_between_tenants_are_there(page):
    listing = page.get("data/plugins_listing").json()
    assert [name for name, plugin in listing.items() if plugin["enabled"]] == [
        "timeseries",
        "scalars",
        "images",
        "text",
    ]
    assert listing.keys().isdisjoint(
        {"debugger-v2", "profile", "profile_redirect", "whatif", "wit_redirect"}
    )
    for path in ("projector/index.js", "debugger-v2/runs", "profile/tools"):
        assert page.get(f"data/plugin/{path}").status_code == 404


def test_page_handler_failure_is_client_error_without_query(page, caplog):
    broken = (
        ("GET", "data/plugin/images/images?run=train&tag=photo&sample=abc&token=tbh_secret", {}),
        ("GET", "data/plugin/images/images?sample=0", {}),
        ("GET", "data/plugin/audio/individualAudio", {}),
        ("GET", "data/plugin/pr_curves/pr_curves", {}),
        ("POST", "data/plugin/timeseries/timeSeries", {"data": {"requests": "7"}}),
        ("POST", "data/plugin/hparams/session_groups", {"content": "{"}),
        ("GET", "data/runs/../environment?x", {"headers": {"X-TensorBoard-Feature-Flags": "{"}}),
        (
            "GET",
            "data/plugin/scalars/tags",
            {"headers": {"X-TensorBoard-Feature-Flags": "[" * 50_000}},
        ),
    )
    with caplog.at_level(logging.WARNING):
        for method, path, options in broken:
            assert page.get(path, method, **options).status_code in {200, 400, 404}, path
    assert page.get(broken[0][1]).json()["code"] == "malformed"
    assert "data/plugin/images/images" in caplog.text
    assert "tbh_secret" not in caplog.text


def test_value_that_plugin_does_not_expect_is_no_failure(client, api, experiment, page):
    number, infinite = np.array([1.5], "<f4").tobytes(), np.full((6, 1), np.inf, "<f4").tobytes()
    odd = [
        tensor_series("note", "text", 1, [1], number),
        tensor_series("curve", "pr_curves", 1, [6, 1], infinite),
        tensor_series("__run_graph__", "graphs", 1, [1], number),
    ]
    api.write(experiment, segment(stream("odd"), 0, 9, *odd))
    (note,) = page.get("data/plugin/text/text?run=odd&tag=note&markdown=true").json()
    assert "1.5" in note["text"]
    assert page.get("data/plugin/pr_curves/pr_curves?run=odd&tag=curve").status_code == 400
    graph = f"/api/v0/experiments/{experiment}/data/graph?run=odd"
    assert client.get(graph, headers=api.headers).status_code == 404


def test_body_over_limit_is_refused(page):
    answer = page.get("data/plugin/timeseries/timeSeries", "POST", content=b"x" * 1_048_577)
    assert answer.status_code == 413


def test_slow_regular_expression_over_long_tags_is_refused(api, experiment, page):
    tags = [f"{number:03d}" + "a" * 9_997 for number in range(200)]
    api.write(
        experiment, segment(stream("long"), 0, 9, *(scalars(tag, [0], [7.0]) for tag in tags))
    )
    path = "data/plugin/custom_scalars/scalars"
    slow = page.get(path, params={"run": "long", "tag": r"\d+(?:a?){900}b"})
    assert (slow.status_code, "pattern_steps_max" in slow.text) == (413, True)
    first = page.get(path, params={"run": "long", "tag": "00[01]a+$"}).json()
    assert list(first["tag_to_events"]) == tags[:2]


def test_custom_scalars_chart_of_too_many_tags_is_refused(api, experiment, page):
    tags = [f"t{number}" for number in range(CUSTOM_SCALARS_TAGS_ITEMS_MAX + 1)]
    series = (scalars(tag, [0], [7.0]) for tag in tags)
    api.write(experiment, segment(stream("wide"), 0, 9, *series))
    path = "data/plugin/custom_scalars/scalars"
    refused = page.get(path, params={"run": "wide", "tag": ".*"})
    assert refused.status_code == 413
    assert f"matches {len(tags)} tags of this run" in refused.text
    assert "custom_scalars_tags_items_max" in refused.text
    rest = page.get(path, params={"run": "wide", "tag": "t[1-9]"}).json()["tag_to_events"]
    assert len(rest) == CUSTOM_SCALARS_TAGS_ITEMS_MAX


def test_no_regular_expression_keeps_server_busy(api, experiment, page):
    tag = "a" * 40 + "!"
    api.write(experiment, segment(stream("session"), 0, 9, scalars(tag, [0], [7.0])))
    # Backtracking would take 2**40 steps for this pattern, more than any time limit.
    answer = page.get(
        "data/plugin/custom_scalars/scalars", params={"run": "session", "tag": "(a+)+$"}
    ).json()
    assert answer == {"regex_valid": True, "tag_to_events": {}}
    matching = page.get(
        "data/plugin/custom_scalars/scalars", params={"run": "session", "tag": "a+"}
    ).json()
    assert matching["tag_to_events"] == {tag: [[1.7e9, 0, 7.0]]}
    for pattern in ("", "(", "(?=a)", "x" * 10_001):
        answer = page.get(
            "data/plugin/custom_scalars/scalars", params={"run": "session", "tag": pattern}
        )
        assert answer.json() == {"regex_valid": False, "tag_to_events": {}}


def test_front_ends_files_are_everybodys_and_kept_for_ever(client, page):
    script = re.search(r'src="\.\./\.\.(/static/tensorboard/\w+/index\.js)\?', page.get("").text)[1]
    plain, unpacked, packed = (
        client.get(script, headers={"Accept-Encoding": kinds})
        for kinds in ("identity", "gzip", "gzip, br, zstd")
    )
    assert plain.content == unpacked.content  # by the client, which knows no zstd
    assert plain.content == pa.Codec("zstd").decompress(
        packed.content, len(plain.content), asbytes=True
    )
    codings = [each.headers.get("content-encoding") for each in (plain, unpacked, packed)]
    assert codings == [None, "gzip", "zstd"]
    assert "immutable" in plain.headers["cache-control"]
    folder = script.removesuffix("index.js")
    assert (
        client.get(
            f"{folder}font-roboto/oMMgfZMQthOryQo9n22dcuvvDin1pK8aKteLpeZ5c0A.woff2"
        ).status_code
        == 200
    )
    for path in (
        "index.html",
        "../version.py",
        "%2e%2e/version.py",
        "tf-imports/vs/python/python.js",
        "",
    ):
        assert client.get(folder + path).status_code == 404
    assert client.get("/static/tensorboard/0000/index.js").status_code == 404
    worker = page.get("chart_worker.js", follow_redirects=False)
    assert worker.headers["location"] == f"{folder}chart_worker.js"
    assert "immutable" in page.get("chart_worker.js").headers["cache-control"]


def test_every_answer_says_who_may_keep_frame_and_guess_at_it(page):
    for path in (
        "",
        "data/runs",
        "data/plugin/scalars/tags",
        "data/nothing",
        "chart_worker.js",
        "download/scalars.csv",
    ):
        for headers in ({}, {"Authorization": "Bearer no"}):
            answer = page.get(path, headers=headers, follow_redirects=False)
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert re.match("private|no-store", answer.headers["cache-control"])
            assert "frame-ancestors" in answer.headers["content-security-policy"]
