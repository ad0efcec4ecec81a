"""The pages of earlier attempts: what stock TensorBoard reads there, the bar, addresses, access."""

from __future__ import annotations

import json

import pytest

from support.batches import images, scalars, segment, stream, texts
from support.event_files import PNG
from support.share_links import make_link

ADDRESSES = (
    *("", "data/environment", "data/runs", "data/plugins_listing", "data/plugin/scalars/tags"),
    *("data/plugin/scalars/scalars?run=train&tag=loss", "chart_worker.js"),
    *("data/plugin/text/text?run=train&tag=note", "download/scalars.csv"),
    "experiment/defaultExperimentId/data/plugin/scalars/scalars?run=train&tag=loss",
)


def write_attempts(api, experiment, run="train"):
    """Three attempts of a run: from step 0, again from 5, and again from 7."""
    for number, first in enumerate((0, 5, 7), 1):
        steps, start = range(first, 10), 1000.0 * number
        times = [start + 1 + step for step in steps]
        sent = segment(
            stream(run, f"events.{number}"),
            0,
            9,
            scalars("loss", steps, [float(number)] * len(steps), times),
            texts("note", steps, [f"attempt {number}".encode()] * len(steps), times),
            images("photo", [9], [[b"1", b"1", PNG + bytes([number])]], [start + 10]),
            start_time=start,
        )
        api.write(experiment, sent)


@pytest.fixture
def api(shared_api):
    return shared_api


@pytest.fixture(scope="module")
def restarted(shared_api):
    """An experiment that no test of this module changes."""
    return new_restarted(shared_api)


def new_restarted(api):
    """The id of an experiment with a run that was restarted twice, and one that was not."""
    experiment = api.new_experiment(name="runs <b>", visibility="link")
    write_attempts(api, experiment)
    api.write(experiment, segment(stream("other"), 0, 9, scalars("loss", range(3), [9.0] * 3)))
    return experiment


def values(client, address, run="train", path="data/plugin/scalars/scalars"):
    """Return the scalars that the stock page is sent."""
    points = client.get(f"{address}{path}", params={"run": run, "tag": "loss"}).json()
    return [value for _, _, value in points]


OLD, MIDDLE, NEW = [1.0] * 10, [1.0] * 5 + [2.0] * 5, [1.0] * 5 + [2.0] * 2 + [3.0] * 3


def test_stock_page_shows_state_of_attempt(client, restarted):
    base = f"/experiment/{restarted}/"
    for address, shown in (
        (base, NEW),
        (f"{base}attempt/1/", OLD),
        (f"{base}attempt/2/", MIDDLE),
        (f"{base}attempt/3/", NEW),
    ):
        assert values(client, address) == shown
        path = "experiment/defaultExperimentId/data/plugin/scalars/scalars"
        assert values(client, address, path=path) == shown
        assert values(client, address, run="other") == [9.0] * 3
        requests = [
            {"plugin": "scalars", "tag": "loss"},
            {"plugin": "images", "tag": "photo", "run": "train", "sample": 0},
        ]
        series, pictures = client.post(
            f"{address}data/plugin/timeseries/timeSeries", data={"requests": json.dumps(requests)}
        ).json()
        read = [point["value"] for point in series["runToSeries"]["train"]]
        assert read == shown
        (picture,) = pictures["runToSeries"]["train"]
        key = picture["imageId"]
        blob = client.get(f"{address}data/plugin/timeseries/imageData", params={"imageId": key})
        assert blob.content == PNG + bytes([int(shown[-1])])
        note = client.get(f"{address}data/plugin/text/text", params={"run": "train", "tag": "note"})
        assert f"attempt {int(shown[-1])}" in note.json()[-1]["text"]
        table = client.get(f"{address}download/scalars.csv").text
        assert [float(row.split(",")[4]) for row in table.splitlines()[1:11]] == shown


def test_work_of_handler_processes_reads_attempt(client, restarted):
    base = f"/experiment/{restarted}/"
    for address, shown in ((base, "attempt 3"), (f"{base}attempt/1/", "attempt 1")):
        note = client.get(
            f"{address}data/plugin/text/text",
            params={"run": "train", "tag": "note", "markdown": "true"},
        )
        assert note.status_code == 200
        assert shown in note.json()[-1]["text"]
        (photo,) = client.get(
            f"{address}data/plugin/images/images",
            params={"run": "train", "tag": "photo", "sample": "0"},
        ).json()
        picture = client.get(f"{address}data/plugin/images/individualImage?{photo['query']}")
        assert picture.content == PNG + bytes([int(shown[-1])])
        csv = client.get(
            f"{address}data/plugin/scalars/scalars",
            params={"run": "train", "tag": "loss", "format": "csv"},
        )
        assert float(csv.text.splitlines()[-1].split(",")[2]) == float(shown[-1])


def test_bar_offers_attempts_with_links_between_them(client, restarted):
    base = f"/experiment/{restarted}/"
    newest = client.get(base).text
    assert "<summary>Attempt 3 of 3</summary>" in newest
    for link in ('href="./" aria-current="page">Attempt 3', 'href="./attempt/2/">Attempt 2'):
        assert link in newest
    assert "train as it was before it restarted at 1970-01-01 00:33:20 UTC" in newest
    earlier = client.get(f"{base}attempt/1/").text
    assert 'class="attempts earlier"><summary>Attempt 1 of 3</summary>' in earlier
    for link in (
        'href="../../">Attempt 3',
        'href="../../attempt/2/">Attempt 2',
        'href="../../attempt/1/" aria-current="page">Attempt 1',
    ):
        assert link in earlier
    script = earlier.split('fetchpriority="high" src="')[1].partition('"')[0]
    assert client.get(f"{base}attempt/1/{script}").status_code == 200
    environment = client.get(f"{base}attempt/1/data/environment").json()
    assert environment["window_title"] == "runs <b> (attempt 1) · TensorBoard"


def test_bar_counts_runs_and_is_silent_about_single_attempts(client, api):
    restarted = new_restarted(api)
    write_attempts(api, restarted, "second")
    assert (
        "2 runs as they were before they restarted" in client.get(f"/experiment/{restarted}/").text
    )
    plain = api.new_experiment(scalars("loss", range(3)), visibility="link")
    assert "Attempt" not in client.get(f"/experiment/{plain}/").text
    assert client.get(f"/experiment/{plain}/attempt/1/").status_code == 200
    missing = client.get(f"/experiment/{plain}/attempt/2/")
    assert (missing.status_code, "at most 1 attempt" in missing.text) == (404, True)


def test_addresses_of_attempts(client, restarted):
    base = f"/experiment/{restarted}"
    for address, target in (
        (f"{base}/?attempt=2", "attempt/2/"),
        (f"{base}/attempt/2", f"{base}/attempt/2/"),
        (f"{base}/attempt/2?x=1", f"{base}/attempt/2/?x=1"),
    ):
        answer = client.get(address, follow_redirects=False)
        assert answer.is_redirect
        assert answer.headers["location"] == target
    for number in ("0", "01", "x", "-1", "9" * 12):
        assert client.get(f"{base}/attempt/{number}/").status_code == 404
        assert client.get(f"{base}/?attempt={number}", follow_redirects=False).status_code == 200
    missing = client.get(f"{base}/attempt/4/")
    assert (missing.status_code, "at most 3 attempts" in missing.text) == (404, True)
    data = client.get(f"{base}/attempt/4/data/plugin/scalars/scalars?run=train&tag=loss")
    assert (data.status_code, data.json()["code"]) == (404, "attempt_not_found")


def test_policy_of_attempt_is_for_its_own_address(client, restarted, settings):
    host = settings.public_url.removeprefix("http://")
    answer = client.get(f"/experiment/{restarted}/attempt/1/", headers={"Host": host})
    policy = answer.headers["content-security-policy"]
    assert f"connect-src {host}/experiment/{restarted}/attempt/1/;" in policy


def test_attempt_needs_access_as_its_experiment_does(client, api):
    restarted = new_restarted(api)
    api.request("PATCH", f"/experiments/{restarted}", json={"visibility": "private"})
    for address in ADDRESSES:
        path = f"/experiment/{restarted}/attempt/1/{address}"
        assert client.get(path).status_code == 401, address
        assert client.get(path, headers=api.headers).status_code == 200, address


def test_share_link_opens_attempts_and_shows_its_runs_only(client, api):
    restarted = new_restarted(api)
    write_attempts(api, restarted, "secret-run")
    api.request("PATCH", f"/experiments/{restarted}", json={"visibility": "private"})
    base = f"/experiment/{restarted}/"
    link = make_link(api, restarted, runs="other|train")
    opened = client.get(f"{base}attempt/1/?token={link['token']}", follow_redirects=False)
    assert (opened.status_code, opened.headers["location"]) == (303, "./")
    assert f"Path={base};" in opened.headers["set-cookie"]
    for address, shown in ((base, NEW), (f"{base}attempt/1/", OLD)):
        page = client.get(address).text
        assert "secret-run" not in page
        assert "train as it was" in page
        assert values(client, address) == shown
        assert client.get(f"{address}data/runs").json() == ["train", "other"]
    single = make_link(api, restarted, runs="other")
    client.cookies.clear()
    headers = {"Authorization": f"Bearer {single['token']}"}
    assert "Attempt" not in client.get(base, headers=headers).text
    assert client.get(f"{base}attempt/2/", headers=headers).status_code == 404
    client.cookies.clear()
