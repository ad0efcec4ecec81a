"""The comparison page: who may open it, which addresses are valid, and what each route reads."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

import numpy as np
import pytest

from support.batches import ApiClient, images, scalars, segment, stream, texts
from support.event_files import PNG
from support.servers import new_owner
from tbservice import limits
from tbservice.pages.stock_page.message_pages import STATE_HEADER

# Every kind of address below /compare/<spec>/: the page, native and stock data, blobs, the front
# end's files.
ADDRESSES = (
    ("GET", ""),
    ("GET", "data/environment"),
    ("GET", "data/runs"),
    ("GET", "experiment/defaultExperimentId/data/runs"),
    ("GET", "data/plugins_listing"),
    ("GET", "data/plugin/timeseries/tags"),
    ("POST", "experiment/defaultExperimentId/data/plugin/timeseries/timeSeries"),
    ("GET", "data/plugin/scalars/scalars?run=a/train&tag=loss"),
    ("GET", "data/plugin/text/text?run=b/train&tag=note&markdown=true"),
    ("GET", "data/plugin/hparams/session_groups?request={{}}"),
    ("GET", "data/plugin/projector/runs"),
    ("GET", "data/plugin/projector/projector_binary.html"),
    ("GET", "data/blob/{blob}"),
    ("GET", "data/plugin/timeseries/imageData?imageId={blob}"),
    ("GET", "chart_worker.js"),
)
EVERYTHING = {
    **dict.fromkeys(ADDRESSES, 200),
    ("GET", "chart_worker.js"): 308,
}  # to the copy that serves all pages


@pytest.fixture
def api(shared_api):
    return shared_api


@pytest.fixture(scope="module")
def stranger(shared_application, shared_settings):
    return ApiClient(shared_application, new_owner(shared_settings.database_url.get_secret_value()))


def new_experiment(api, value, **fields):
    """An experiment with a scalar, a text and an image series, of one run."""
    experiment = api.new_experiment(**fields)
    media = [
        texts("note", [0], [b"**%d**" % value]),
        images("photo", [0], [[b"1", b"1", PNG + b"%d" % value]]),
    ]
    api.write(
        experiment, segment(stream(), 0, 100, scalars("loss", [0, 1], [value, np.nan]), *media)
    )
    return experiment


@pytest.fixture
def pair(api):
    return new_experiment(api, 1, name="First <b>"), new_experiment(api, 2)


def compared(first, second):
    return f"/compare/a:{first},b:{second}/"


def blob_key(api, experiment):
    shown = api.get(experiment, "blob_sequences/data", run="train", tag="photo", downsample=1)
    return shown["train"]["photo"]["values"][0][2]["key"]


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def cookie(*tokens):
    return {"Cookie": f"tbhub_read={'.'.join(tokens)}"}


FEW = ADDRESSES[0], ADDRESSES[2], ADDRESSES[7]
"""The form, a native and a stock route, as which all others ask for the right to read."""

OPEN = dict.fromkeys(FEW, 200)


def statuses(client, address, blob, headers, addresses=FEW):
    """Return the status of a request to each address."""
    card = {"data": {"requests": json.dumps([{"plugin": "scalars", "tag": "loss"}])}}
    return {
        (method, path): client.request(
            method,
            address + path.format(blob=blob),
            headers=headers,
            follow_redirects=False,
            **(card if method == "POST" else {}),
        ).status_code
        for method, path in addresses
    }


def closed(status, addresses=FEW):
    return {**dict.fromkeys(addresses, status), ADDRESSES[0]: 401}


def test_comparison_opens_only_with_right_to_every_part(client, api, stranger, pair):
    address, blob = compared(*pair), blob_key(api, pair[1])
    owner, other = (each.headers["Authorization"].split()[1] for each in (api, stranger))
    of_a, of_b = (api.new_token(experiment, "read") for experiment in pair)
    for headers, expected in (
        ({}, closed(401, ADDRESSES)),
        (bearer(of_a), closed(404, ADDRESSES)),
        (cookie(of_a, of_b), EVERYTHING),
    ):
        assert statuses(client, address, blob, headers, ADDRESSES) == expected
    table = {
        "another tenant's owner": (bearer(other), closed(404)),
        "the owner": (bearer(owner), OPEN),
        "a cookie of one": (cookie(of_a, ""), closed(401)),
        "a cookie of both, the other way round": (cookie(of_b, of_a), closed(401)),
        "a cookie of one and another tenant's": (cookie(of_a, other), closed(401)),
        "a cookie of too many": (cookie(of_a, of_b, of_b), closed(401)),
        "a good cookie, a bad header": (cookie(of_a, of_b) | bearer("tbh_no"), closed(401)),
    }
    for who, (headers, expected) in table.items():
        assert statuses(client, address, blob, headers) == expected, who
    token_id = api.get(pair[1], "tokens")["tokens"][0]["id"]
    assert api.request("DELETE", f"/experiments/{pair[1]}/tokens/{token_id}").status_code == 204
    assert statuses(client, address, blob, cookie(of_a, of_b)) == closed(401)
    api.request("PATCH", f"/experiments/{pair[1]}", json={"visibility": "link"})
    assert statuses(client, address, blob, cookie(of_a, of_b)) == OPEN
    assert statuses(client, address, blob, cookie(of_a, "")) == OPEN


def test_comparison_hides_experiments_that_may_not_be_read(client, api, stranger, pair):
    theirs = new_experiment(stranger, 3)
    spoof = {"Tensorboard-Experiment-Id": theirs, "Tensorboard_Experiment_Id": theirs}
    for path in (
        "",
        "data/runs",
        "data/plugin/scalars/tags",
        f"data/blob/{blob_key(stranger, theirs)}",
        "?token=no",
    ):
        for headers in ({}, api.headers, cookie(api.headers["Authorization"].split()[1], "")):
            there, gone = (
                client.get(compared(pair[0], second) + path, headers=headers | spoof)
                for second in (theirs, theirs[::-1])
            )
            # They name the page, to come back to it after a sign-in, and differ in nothing else.
            told = gone.text.replace(theirs[::-1], theirs)
            assert there.headers.pop("x-request-id") != gone.headers.pop("x-request-id")
            assert (there.status_code, there.text, there.headers) == (
                gone.status_code,
                told,
                gone.headers,
            )
            assert there.status_code in {401, 404}
    mine = compared(*pair)
    assert (
        client.get(f"{mine}data/blob/{blob_key(stranger, theirs)}", headers=api.headers).status_code
        == 404
    )
    assert client.get(
        f"{mine}data/plugin/scalars/tags", headers=api.headers | spoof
    ).json().keys() == {
        "a/train",
        "b/train",
    }


def test_comparison_cookie_holds_read_only_tokens(client, api, pair):
    owner_token = api.headers["Authorization"].split()[1]
    address, blob = compared(*pair), blob_key(api, pair[0])
    of_a, of_b = (api.new_token(experiment, "read") for experiment in pair)
    link = f"{address}?token={of_b}&darkMode=true&token={of_a}"
    answer = client.get(link, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "./?darkMode=true")
    expected = f"tbhub_read={of_a}.{of_b}; HttpOnly; Path={address}; SameSite=lax"
    assert answer.headers["set-cookie"] == expected
    client.cookies.clear()
    assert (
        "; Secure"
        in client.get(f"https://testserver{link}", follow_redirects=False).headers["set-cookie"]
    )
    client.cookies.clear()
    wide = client.get(f"{address}?token={owner_token}", follow_redirects=False)
    kept = wide.headers["set-cookie"].split(";")[0].removeprefix("tbhub_read=").split(".")
    assert owner_token not in kept
    client.cookies.clear()
    assert statuses(client, address, blob, cookie(*kept)) == OPEN
    for token, experiment, other in zip(kept, pair, pair[::-1], strict=True):
        assert (
            ApiClient(client, token).request("GET", f"/experiments/{experiment}").status_code == 200
        )
        assert ApiClient(client, token).request("GET", f"/experiments/{other}").status_code == 404
        assert ApiClient(client, token).send(experiment).status_code == 403


def test_comparison_form_takes_several_tokens_or_none(client, api, stranger, pair):
    address = compared(*pair)
    of_a, of_b = (api.new_token(experiment, "read") for experiment in pair)
    form = client.get(address)
    assert (form.status_code, "This comparison needs a token" in form.text) == (401, True)
    for pasted in ("nonsense", of_a, f"{of_a} {stranger.headers['Authorization'].split()[1]}"):
        refused = client.post(address, data={"token": pasted})
        assert (refused.status_code, refused.headers.get("set-cookie")) == (401, None)
        assert "do not open every experiment" in refused.text
    made = len(api.get(pair[0], "tokens", sessions=True)["tokens"])
    client.post(address, data={"token": api.headers["Authorization"] + of_b[:9]})
    assert len(api.get(pair[0], "tokens", sessions=True)["tokens"]) == made + 1
    client.cookies.clear()
    for pasted in (f"https://host/experiment/x/?token={of_b}\n{of_a}", of_a + of_b):
        answer = client.post(address, data={"token": pasted}, follow_redirects=False)
        assert answer.status_code == 303
        assert answer.headers["set-cookie"].startswith(f"tbhub_read={of_a}.{of_b};")
        client.cookies.clear()
    other_site = client.post(
        address, data={"token": of_a}, headers={"Sec-Fetch-Site": "cross-site"}
    )
    assert other_site.status_code == 403


def test_address_that_names_no_comparison_says_why(client, api, pair):
    a, b = pair
    many = ",".join(f"n{number}:{a}" for number in range(limits.COMPARISON_ITEMS_MAX + 1))
    wrong = {
        f"a:{a}": "names 1 experiment; a comparison has 2 to 10",
        many: "names 11 experiments",
        f"a:{a},a:{b}": "two experiments are named",
        f"a:{a},{b}": "has no colon",
        f"a:{a},:{b}": "has no name",
        f"a:{a},b:{b}x": "is not an experiment id",
        f"a:{a},b:c:{b}": "is not an experiment id",
        f"a:{a},": "has no colon",
        f"a:{a},{'x' * 101}:{b}": "at most 100 characters",
        f"a:{a},%00:{b}": "is not allowed as a name",
        f"a:{a},..:{b}": "is not allowed as a name",
        f"a:{a},<script>": "&lt;script&gt;",
    }
    for spec, reason in wrong.items():
        answer = client.get(f"/compare/{spec}/", headers=api.headers)
        assert (answer.status_code, reason in answer.text) == (400, True), spec
        assert "<script" not in answer.text
        data = client.get(f"/compare/{spec}/data/runs", headers=api.headers)
        assert (data.status_code, data.json()["code"]) == (400, "malformed")


def test_address_has_slash_at_its_end_and_one_way_of_writing(client, api, pair):
    a, b = pair
    plain = f"/compare/a:{a},b:{b}"
    assert client.get(f"{plain}?x=1", follow_redirects=False).headers["location"] == f"{plain}/?x=1"
    encoded = client.get(f"/compare/a%3A{a}%2Cb:{b}/?token=t", follow_redirects=False)
    assert encoded.headers["location"] == f"{plain}/?token=t"
    named = f"/compare/{quote('é; x%')}:{a},b:{b}/"
    token = api.headers["Authorization"].split()[1]
    answer = client.get(f"{named}?token={token}", follow_redirects=False)
    assert f"; Path={named};" in answer.headers["set-cookie"]
    assert client.get(f"{named}data/runs").json() == ["é; x%/train", "b/train"]


def test_comparison_prefixes_runs_with_experiment_names(client, api, pair):
    late = segment(stream("a"), 0, 9, scalars("loss", [5], [9.0]))
    root = segment(stream(".", "root"), 0, 9, scalars("loss", [0], [3.0]))
    api.write(pair[0], late, root)

    def ask(path, method="GET", **options):
        answer = client.request(method, compared(*pair) + path, headers=api.headers, **options)
        assert answer.status_code == 200, answer.text
        return answer

    page = ask("").text
    assert "<title>a: First &lt;b&gt;, b · TensorBoard</title>" in page
    bar = page.partition('<header id="tbhub-bar">')[2].partition("</header>")[0]
    assert re.findall('href="(.*?)"', bar) == [
        "./",
        *(f"../../experiment/{experiment}/" for experiment in pair),
    ]
    assert "First &lt;b&gt;" in bar
    assert (
        client.get(compared(*pair) + "download/scalars.csv", headers=api.headers).status_code == 404
    )
    environment = ask("data/environment").json()
    assert environment["data_location"] == "a: First <b>, b"
    runs = ["a/train", "a/a", "a", "b/train"]
    assert ask("experiment/defaultExperimentId/data/runs").json() == runs
    tags = ask("data/plugin/timeseries/tags").json()
    assert tags["scalars"]["runTagInfo"] == {run: ["loss"] for run in runs}
    assert tags["images"]["tagRunSampledInfo"]["photo"].keys() == {"a/train", "b/train"}
    assert list(ask("data/plugin/scalars/tags").json()) == runs
    first, second = (
        [[1.7e9, 0, 1.0], [1.7e9 + 1, 1, "NaN"]],
        [[1.7e9, 0, 2.0], [1.7e9 + 1, 1, "NaN"]],
    )
    assert ask("data/plugin/scalars/scalars?run=b/train&tag=loss").json() == second
    wanted = {"tag": "loss", "runs": ["b/train", "a", "train", "b", "a/.", "ab/train"]}
    assert ask("data/plugin/scalars/scalars_multirun", "POST", data=wanted).json() == {
        "a": [[1.7e9, 0, 3.0]],
        "b/train": second,
    }
    no_run = {"tag": "loss", "runs": ["a/."]}
    assert ask("data/plugin/scalars/scalars_multirun", "POST", data=no_run).json() == {}
    cards = json.dumps(
        [
            {"plugin": "scalars", "tag": "loss"},
            {"plugin": "images", "tag": "photo", "run": "b/train", "sample": 0},
        ]
    )
    for answer in (
        ask("data/plugin/timeseries/timeSeries", "POST", data={"requests": cards}).json(),
        ask("data/plugin/timeseries/timeSeries", params={"requests": cards}).json(),
    ):
        series = answer[0]["runToSeries"]
        assert list(series) == runs
        assert [point["value"] for point in series["a/train"]] == [row[2] for row in first]
        (image,) = answer[1]["runToSeries"]["b/train"]
        assert (
            ask(f"data/plugin/timeseries/imageData?imageId={image['imageId']}").content
            == PNG + b"2"
        )
    (photo,) = ask("data/plugin/images/images?run=a/train&tag=photo&sample=0").json()
    assert ask(f"data/plugin/images/individualImage?{photo['query']}").content == PNG + b"1"
    assert (
        "<strong>2</strong>"
        in ask("data/plugin/text/text?run=b/train&tag=note&markdown=true").json()[0]["text"]
    )
    listing = ask("data/plugins_listing").json()
    assert [name for name, plugin in listing.items() if plugin["enabled"]] == [
        "timeseries",
        "scalars",
        "images",
        "text",
    ]
    module = listing["projector"]["loading_mechanism"]["module_path"]
    assert module == f"{compared(*pair)}data/plugin/projector/index.js"


def test_what_is_too_much_together_is_refused(client, api, pair, monkeypatch):
    monkeypatch.setattr(limits, "READ_POINTS_MAX", 3)
    card = {"requests": json.dumps([{"plugin": "scalars", "tag": "loss"}])}
    path = "data/plugin/timeseries/timeSeries"
    assert (
        client.post(f"/experiment/{pair[0]}/{path}", data=card, headers=api.headers).status_code
        == 200
    )
    answer = client.post(compared(*pair) + path, data=card, headers=api.headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_while_nothing_is_uploaded_to_any_of_them_page_says_so(client, api):
    empty = api.new_experiment(name="Begun"), api.new_experiment()
    answer = client.get(compared(*empty), headers=api.headers)
    assert (answer.status_code, answer.headers[STATE_HEADER]) == (200, "data")
    new = new_experiment(api, 1)
    assert "<tb-webapp>" in client.get(compared(empty[0], new), headers=api.headers).text
