"""Cards: a chart as SVG by URL, for those who may see it, with hostile names and odd values."""

from __future__ import annotations

import io
import json
import math
import re
import xml.etree.ElementTree as ET
from html import unescape
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

from support.batches import scalars, segment, stream
from support.hparams import HparamsClient, start
from support.servers import new_workspace
from support.share_links import list_links, make_link, revoke, target_of
from tbservice.pages.base.markdown import render_markdown
from tbservice.pages.experiments.chart_cards import CARD_CURVES_ITEMS_MAX

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '"><script>alert(1)</script>&\u202e'


@pytest.fixture
def experiment(api):
    experiment = api.new_experiment()
    values = np.array([1.0, 0.5, math.nan, 0.25, math.inf, 0.125, 0.1, -1.0])
    for run in ("a", "b", HOSTILE):
        sent = [scalars(tag, np.arange(8), values) for tag in ("loss", HOSTILE)]
        api.write(experiment, segment(stream(run), 0, 9, *sent))
    return experiment


@pytest.fixture
def card(client, experiment):
    """Asks for a card of the experiment."""

    def ask(headers=None, experiment=experiment, **query):
        return client.get(f"/experiment/{experiment}/card.svg", params=query, headers=headers or {})

    return ask


def parse(answer):
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")
    return ET.fromstring(answer.text)  # noqa: S314 - our own


def lines(svg):
    """Return the points of each line, and the number of dots."""
    places = [
        [tuple(map(float, place.split(","))) for place in line.get("points").split()]
        for line in svg.iter(f"{SVG}polyline")
    ]
    return places, len(list(svg.iter(f"{SVG}circle")))


def test_card_without_tag_draws_what_page_shows_first(api, card, experiment):
    answer = card(api.headers)
    assert parse(answer).find(f"{SVG}title").text == "loss"
    assert answer.headers["content-location"] == "card.svg?tag=loss"
    api.write(experiment, segment(stream("c"), 0, 9, scalars("<é &", [1, 2], [1.0, 2.0])))
    answer = card(api.headers, run="c")
    assert parse(answer).find(f"{SVG}title").text == "<é &"
    assert answer.headers["content-location"] == "card.svg?tag=%3C%C3%A9+%26"
    empty = api.new_experiment()
    assert card(api.headers, empty).status_code == 404


def test_card_names_parameter_that_it_does_not_know(api, card):
    answer = card(api.headers, widht=400)
    detail = "unknown query parameter 'widht': did you mean 'width'?"
    assert (answer.status_code, answer.json()["detail"]) == (422, detail)


def test_card_draws_runs_with_gaps_and_names_as_text(api, card):
    svg = parse(card(api.headers, tag=HOSTILE))
    places, dots = lines(svg)
    assert [len(line) for line in places] == [2, 3] * 3
    assert dots == 3
    assert svg.find(f"{SVG}title").text == HOSTILE
    assert [text.text for text in svg.iter(f"{SVG}text")][-3:] == [
        f"{run}  -1" for run in (HOSTILE, "a", "b")
    ]
    assert list(svg.iter(f"{SVG}script")) == []


def test_card_places_values_on_its_axes(api, card):
    (falling, _), _ = lines(parse(card(api.headers, tag="loss", run="a", width=400, height=200)))
    (logarithmic, _), _ = lines(parse(card(api.headers, tag="loss", run="a", y="log")))
    assert falling[0] == (62.0, 34.0)  # the first step, and the greatest value
    assert falling[1][0] == pytest.approx(62 + (400 - 62 - 14) / 7, abs=0.1)
    bottom = 200 - 26 - 18
    assert falling[1][1] == pytest.approx(34 + (bottom - 34) / 4, abs=0.1)  # of 1 to -1
    bottom = 320 - 26 - 18
    assert logarithmic[1][1] == pytest.approx(34 + (bottom - 34) * math.log10(2), abs=0.1)


def test_card_smooths_as_tensorboard(api, card):
    weight, last, expected = 0.6, 0.0, []
    for count, value in enumerate([1.0, 0.5, 0.25, 0.125, 0.1, -1.0], 1):
        last = last * weight + (1 - weight) * value
        expected.append(last / (1 - weight**count))
    places, _ = lines(parse(card(api.headers, tag="loss", run="a", smoothing=weight)))
    low, high, bottom = min(expected), max(expected), 320 - 26 - 18
    ys = [bottom + (34 - bottom) * (value - low) / (high - low) for value in expected]
    assert [y for line in places for _, y in line] == pytest.approx(ys[:2] + ys[3:], abs=0.06)


def test_card_draws_first_runs_of_many(api, card):
    many = api.new_experiment()
    for number in range(CARD_CURVES_ITEMS_MAX + 3):
        api.write(many, segment(stream(f"run {number:02d}"), 0, 9, scalars("loss", range(9))))
    svg = parse(card(api.headers, many, tag="loss"))
    places, _ = lines(svg)
    assert len(places) == CARD_CURVES_ITEMS_MAX
    assert [text.text for text in svg.iter(f"{SVG}text")][-1] == "and 15 more, 3 not drawn"


def test_card_is_for_those_who_may_see_it(api, card, experiment, database_url):
    stranger = {"Authorization": f"Bearer {new_workspace(database_url).owner_token}"}
    frozen = make_link(api, experiment, frozen=True, runs="a")
    sliced = make_link(api, experiment, runs="b")
    assert card(tag="loss").status_code == 401
    assert card(stranger, tag="loss").status_code == 404
    assert card(tag="loss", token="tbh_nothing").status_code == 401
    own = api.headers["Authorization"].split()[1]
    assert card(tag="loss", token=own).status_code == 403  # it can do more than to read this
    assert "share link" in card(tag="loss", token=own).text

    shown = card(tag="loss", token=sliced["token"])
    assert [text.text for text in parse(shown).iter(f"{SVG}text")][-1] == "b  -1"
    assert card(tag="loss", run="a", token=sliced["token"]).status_code == 404
    copy = frozen["url"].split("/experiment/")[1].split("/")[0]
    before = card(tag="loss", token=frozen["token"], experiment=copy)
    api.write(experiment, segment(stream("a"), 9, 19, scalars("loss", [99], [7.0])))
    assert card(tag="loss", token=frozen["token"], experiment=copy).content == before.content
    for answer in (shown, before):
        assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
        assert "sandbox" in answer.headers["content-security-policy"]

    for link in (frozen, sliced):
        api.request("DELETE", f"/experiments/{experiment}/links/{link['id']}").raise_for_status()
    assert card(tag="loss", token=sliced["token"]).status_code == 401
    api.request("PATCH", f"/experiments/{experiment}", json={"visibility": "link"})
    assert card(tag="loss").status_code == 200


@pytest.mark.parametrize(
    "query",
    [{"width": 9}, {"tag": "loss", "smoothing": 1}, {"tag": "loss", "tg": "x"}],
)
def test_card_of_wrong_query_is_refused(api, card, query):
    assert card(api.headers, **query).status_code == 422


def test_card_of_unknown_tag_or_run_is_none(api, card):
    for query in ({"tag": "nothing"}, {"tag": "loss", "run": "nothing"}):
        assert card(api.headers, **query).status_code == 404


@pytest.fixture
def seeds(api):
    """Two experiments: each two seeds of two optimizers; the second is worse by 1."""
    ids = []
    for worse in (0, 1):
        of = HparamsClient(api, api.new_experiment(name=f"try {worse}"))
        for optimizer, low in (("adam", 1), ("<sgd>", 3)):
            for seed in (0, 1):
                values = [low + worse + seed * 0.5, low + worse + seed * 0.5 - 0.25]
                hparams = start({"optimizer": optimizer, "seed": seed})
                of.write(f"{optimizer} {seed}", hparams, scalars("loss", [0, 1], values))
        ids.append(of.experiment_id)
    return ids


def legend(svg):
    """Return the texts after the axes, without those of ticks."""
    return [text.text for text in svg.iter(f"{SVG}text") if text.get("class") is None][1:]


def test_card_of_groups_has_line_and_band_of_each(api, card, seeds):
    svg = parse(card(api.headers, seeds[0], tag="loss", group="optimizer", where="loss > 0"))
    places, _ = lines(svg)
    assert [len(line) for line in places] == [2, 2]
    assert [len(area.get("points").split()) for area in svg.iter(f"{SVG}polygon")] == [4, 4]
    assert legend(svg) == ['"<sgd>"  3.0 ± 0.4 (2)', "adam  1.0 ± 0.4 (2)"]
    notes = [text.text for text in svg.iter(f"{SVG}text") if text.get("text-anchor") == "end"]
    assert notes[0] == "Mean ± standard deviation by optimizer"
    quartiles = card(api.headers, seeds[0], tag="loss", group="-seed", band="quartiles", y="log")
    assert legend(parse(quartiles)) == [
        '"<sgd>"  3, 2.875 to 3.125 (2)',
        "adam  1, 0.875 to 1.125 (2)",
    ]
    by_name = card(api.headers, seeds[0], tag="loss", pattern="^<?(.)", band="range")
    assert legend(parse(by_name)) == ["a  1, 0.75 to 1.25 (2)", "s  3, 2.75 to 3.25 (2)"]
    together = card(api.headers, seeds[0], tag="loss", band="range")
    assert legend(parse(together)) == ["all runs  2, 0.75 to 3.25 (4)"]
    some = card(api.headers, seeds[0], tag="loss", where='optimizer = "adam" and seed = 1')
    assert legend(parse(some)) == ["adam 1  1.25"]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"group": "optimiser"}, "did you mean optimizer?"),
        ({"where": "lr <"}, "character 5: expected a number"),
        ({"group": "seed", "run": "adam 1"}, "write where=FILTER"),
        ({"group": "seed", "tag": "los"}, "did you mean loss?"),
        ({"pattern": "("}, "run_pattern"),
    ],
)
def test_card_of_groups_says_what_is_wrong(api, card, seeds, query, problem):
    answer = card(api.headers, seeds[0], **{"tag": "loss", **query})
    assert answer.status_code == 422
    assert problem in answer.json()["detail"]


def test_card_of_comparison_shows_what_each_link_shows(api, client, seeds):
    first, second = (make_link(api, each, tags="loss|_hparams_/.*") for each in seeds)
    narrow = make_link(api, seeds[1], runs="adam 1")
    path = f"/compare/a:{seeds[0]},b:{seeds[1]}/card.svg"

    def ask(**query):
        return client.get(path, params={"tag": "loss", **query})

    tokens = [second["token"], first["token"]]  # in any order
    both = parse(ask(token=tokens, where='optimizer = "adam"'))
    assert legend(both) == ["a/adam 0  0.75", "a/adam 1  1.25", "b/adam 0  1.75", "b/adam 1  2.25"]
    grouped = parse(ask(token=tokens, group="experiment_name,optimizer"))
    assert legend(grouped)[3] == '"try 1", adam  2.0 ± 0.4 (2)'
    named = parse(ask(token=tokens, run=["b/adam 0", "a/adam 0"]))
    assert legend(named) == ["a/adam 0  0.75", "b/adam 0  1.75"]
    hidden = parse(
        ask(token=[first["token"], narrow["token"]], group="experiment_name", band="range")
    )
    assert legend(hidden) == [
        '"try 0"  2, 0.75 to 3.25 (4)',
        '"try 1"  2.25, 2.25 to 2.25 (1)',
    ]
    assert ask(token=[first["token"]]).status_code == 401  # the second is not shown
    own = api.headers["Authorization"].split()[1]
    assert ask(token=[first["token"], own]).status_code == 403
    assert client.get("/compare/a:x/card.svg").status_code == 400


def test_card_of_groups_with_frozen_link_stays(api, card, seeds):
    link = make_link(api, seeds[0], frozen=True)
    query = {"tag": "loss", "group": "optimizer", "token": link["token"]}
    before = card(experiment=target_of(link), **query)
    HparamsClient(api, seeds[0]).write("adam 0", scalars("loss", [9], [9.0]))
    after = card(experiment=target_of(link), **query)
    assert (after.status_code, after.content) == (200, before.content)
    assert b"adam  1.0" in after.content


def test_frame_of_groups_follows_by_its_links(api, client, seeds):
    links = [make_link(api, each, tags="loss|_hparams_/.*") for each in seeds]
    path = f"/compare/a:{seeds[0]},b:{seeds[1]}/embed"
    query = {"tag": "loss", "group": "optimizer", "token": [each["token"] for each in links]}
    page = client.get(path, params=query)
    config = json.loads(unescape(re.search(r'data-charts="([^"]*)"', page.text)[1]))
    assert [each["token"] for each in config["sources"]] == query["token"]
    groups = client.get(f"{path}/groups", params={**query, "metric": "loss", "step_min": "1"})
    assert groups.status_code == 200
    assert groups.json()["names"] == [each["run"] for each in config["runs"]]
    [[sgd, adam]] = groups.json()["cards"]
    assert (sgd["steps"], adam["center"], adam["counts"]) == ([1], [1.5], [4])
    runs = client.get(path, params={**query, "group": "", "where": "seed = 1"})
    config = json.loads(unescape(re.search(r'data-charts="([^"]*)"', runs.text)[1]))
    assert sorted(each["label"] for each in config["runs"]) == [
        "a/<sgd> 1",
        "a/adam 1",
        "b/<sgd> 1",
        "b/adam 1",
    ]
    assert (
        client.get(f"{path}/groups", params={"group": "seed", "metric": "loss"}).status_code == 401
    )


def test_preview_of_comparison_and_of_groups_has_its_card(api, client, seeds):
    links = [make_link(api, each, tags="loss|_hparams_/.*") for each in seeds]
    robot = {"User-Agent": "Slackbot-LinkExpanding 1.0"}
    for below in ("", "groups/group=optimizer&where=seed+~3C+9/"):
        address = f"/compare/a:{seeds[0]},b:{seeds[1]}/{below}"
        tokens = {"token": [each["token"] for each in links]}
        page = client.get(address, params=tokens, headers=robot)
        assert '<meta property="og:title" content="try 0, try 1">' in page.text
        picture = urlsplit(unescape(re.search(r'og:image" content="([^"]+)"', page.text)[1]))
        answer = client.get(f"{picture.path}?{picture.query}", headers=robot)
        assert answer.headers["content-type"] == "image/png"
        used = [list_links(api, each)[0]["last_used_at"] for each in seeds]
        assert all(used) == bool(below)  # a picture of groups is a use


def test_notes_show_cards_and_no_other_picture():
    compared = render_markdown("![two](/compare/a:x,b:y/card.svg?tag=loss&group=lr)")
    assert '<img src="/compare/a:x,b:y/card.svg?tag=loss&amp;group=lr"' in compared
    address = "/experiment/abc/card.svg?tag=loss&run=a"
    shown = render_markdown(f"![a loss]({address})")
    assert '<img src="/experiment/abc/card.svg?tag=loss&amp;run=a" alt="a loss"' in shown
    for other in ("https://other.example/experiment/abc/card.svg?tag=x", "/me", "//x/card.svg?a"):
        assert "<img" not in render_markdown(f"![a]({other})")


def test_png_card_is_picture_of_its_size(client, api, experiment):
    path = f"/experiment/{experiment}/card.png"
    answer = client.get(path, params={"tag": HOSTILE, "width": 500}, headers=api.headers)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    with Image.open(io.BytesIO(answer.content)) as image:
        assert image.size == (500, 320)
        assert image.getpixel((0, 0))[:3] == (255, 255, 255)
        assert len(image.convert("RGB").getcolors(1_000_000)) > 50  # curves and text
    again = client.get(path, params={"tag": HOSTILE, "width": 500}, headers=api.headers)
    assert again.content == answer.content
    huge = client.get(path, params={"width": 2000, "height": 2000}, headers=api.headers)
    assert huge.status_code == 422


def test_names_with_controls_are_drawn(client, api):
    experiment = api.new_experiment()
    api.write(experiment, segment(stream("a\x01\n"), 0, 9, scalars("l\x1bss", [1, 2])))
    for kind in ("svg", "png"):
        path = f"/experiment/{experiment}/card.{kind}"
        answer = client.get(path, params={"tag": "l\x1bss"}, headers=api.headers)
        assert answer.status_code == 200
        if kind == "svg":
            assert parse(answer).find(f"{SVG}title").text == "l\ufffdss"


def test_preview_shows_title_and_picture_and_is_no_use(client, api, experiment):
    api.request("PATCH", f"/experiments/{experiment}", json={"name": '"Ann>'})
    link = make_link(api, experiment, tags="loss")
    robot = {"User-Agent": "Slackbot-LinkExpanding 1.0"}
    for path in ("", "about"):
        address = f"/experiment/{experiment}/{path}"
        page = client.get(address, params={"token": link["token"]}, headers=robot)
        assert page.status_code == 200
        assert '<meta property="og:title" content="&#34;Ann&gt;">' in page.text
        picture = re.search(r'og:image" content="([^"]+)"', page.text)[1]
        assert client.get(address, headers=robot, follow_redirects=False).status_code != 200
    query = urlsplit(unescape(picture)).query
    picture = client.get(f"/experiment/{experiment}/card.png?{query}", headers=robot)
    assert picture.headers["content-type"] == "image/png"
    (listed,) = list_links(api, experiment)
    assert listed["last_used_at"] is None
    other = f"/experiment/{experiment}/card.png?{query}&tag=loss"
    assert client.get(other, headers=robot).status_code == 200
    (listed,) = list_links(api, experiment)
    assert listed["last_used_at"] is not None
    own = api.headers["Authorization"].split()[1]
    address = f"/experiment/{experiment}/?token={own}"
    assert client.get(address, headers=robot, follow_redirects=False).status_code == 303
    client.cookies.clear()
    revoke(api, experiment, link)
    ended = client.get(f"/experiment/{experiment}/?{query}", headers=robot)
    assert "Ann" not in ended.text


def test_embedded_chart_shows_what_its_link_shows(client, api, experiment):
    link = make_link(api, experiment, runs="a|b")
    path = f"/experiment/{experiment}/embed"
    page = client.get(path, params={"tag": "loss", "token": link["token"]})
    assert page.status_code == 200
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    config = json.loads(unescape(re.search(r'data-charts="([^"]*)"', page.text)[1]))
    assert {each["run"] for each in config["runs"]} == {"a", "b"}
    assert config["sources"][0]["token"] == link["token"]
    own = api.headers["Authorization"].split()[1]
    assert client.get(path, params={"tag": "loss", "token": own}).status_code == 403
    misspelt = client.get(path, params={"tga": "loss", "token": link["token"]})
    assert "did you mean 'tag'?" in misspelt.text
    nothing = client.get(path, params={"tag": "none", "token": link["token"]})
    assert nothing.status_code == 404


def test_values_of_the_greatest_range_are_drawn(api, card):
    experiment = api.new_experiment()
    values = np.array([1.7e308, -1.7e308])
    api.write(experiment, segment(stream("a"), 0, 9, scalars("loss", np.arange(2), values)))
    drawn = card(api.headers, experiment, tag="loss")
    assert lines(parse(drawn)) == ([[(62.0, 34.0), (626.0, 276.0)]], 0)
