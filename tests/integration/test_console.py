"""The end of a console over HTTP and on the page: its lines, their steps, and a search."""

from __future__ import annotations

import re

import pytest

from support.batches import scalars, segment, stream
from support.page_forms import new_reader
from support.people import new_member
from support.share_links import make_link, reader_of, target_of

ID = "0123456789abcdef"
BEGAN = 1_700_000_000.0
LINES = ["loading", "step 0", "Step 2,500 <b>", "the end"]
TIMES = [BEGAN - 60, BEGAN + 0.2, BEGAN + 2_499.9, BEGAN + 9_000]


def record(api, experiment, **fields):
    body = {"origin": {"host": "gpu7"}, "started_at": "2026-01-31T12:00:00Z"}
    path = f"/experiments/{experiment}/uploads/{ID}"
    api.request("PUT", path, json=body).raise_for_status()
    return api.request("PATCH", path, json=fields)


def read(api, experiment, **parameters):
    path = f"/experiments/{experiment}/uploads/{ID}/console"
    return api.request("GET", path, params=parameters)


@pytest.fixture
def trained(api, experiment):
    """An experiment with 5,000 points, one each second, and a console."""
    steps = range(5_000)
    logged = scalars("loss", steps, wall_times=[BEGAN + step for step in steps])
    api.write(experiment, segment(stream(), 0, 9, logged))
    record(api, experiment, console="\n".join(LINES), console_times=TIMES).raise_for_status()
    return experiment


def test_line_has_the_step_that_was_logged_nearest_to_it(api, trained):
    answer = read(api, trained).json()
    assert answer["total"] == 4
    assert [(line["number"], line["text"], line["step"]) for line in answer["lines"]] == [
        (1, "loading", None),
        (2, "step 0", 0),
        (3, "Step 2,500 <b>", 2_500),
        (4, "the end", 4_999),
    ]
    assert {line["run"] for line in answer["lines"][1:]} == {"train"}
    (upload,) = api.request("GET", f"/experiments/{trained}/uploads").json()["uploads"]
    assert upload["origin"] == {"host": "gpu7", "console": "\n".join(LINES)}


def test_console_is_searched_ignoring_case(api, trained):
    answer = read(api, trained, q="STEP").json()
    assert [line["number"] for line in answer["lines"]] == [2, 3]
    assert answer["lines"][1]["step"] == 2_500
    assert read(api, trained, q="no such text").json() == {"lines": [], "total": 4}
    assert read(api, trained, q="x" * 201).status_code == 422


def test_console_without_times_has_no_steps(api, experiment):
    for times in (None, [1.0], [1.0, 2.0, 3.0]):
        record(api, experiment, console="a\nb", console_times=times).raise_for_status()
        assert [line["step"] for line in read(api, experiment).json()["lines"]] == [None, None]
    record(api, experiment)
    assert read(api, experiment).json() == {"lines": [], "total": 0}


def test_times_over_their_limits_are_refused(api, experiment):
    for times in ([-1.0], [1e300], ["x"], [1.0] * 1_002, "1 2"):
        assert record(api, experiment, console="a", console_times=times).status_code == 422
    assert read(api, experiment, q="a\x00b").status_code in {200, 422}


def test_frozen_link_shows_no_console(client, api, trained):
    link = make_link(api, trained)
    assert read(reader_of(client, link), trained).json()["total"] == 4
    frozen = make_link(api, trained, frozen=True)
    assert read(reader_of(client, frozen), target_of(frozen)).status_code == 404


def test_page_shows_lines_with_steps_and_searches(client, database, workspace_id, trained):
    member = new_reader(client, database, new_member(database, workspace_id))
    page = member.get(f"/experiment/{trained}/about").text
    console = re.search(r'<section class="card" id="console".*?</section>', page, re.DOTALL)[0]
    assert '<a href="#line-3" data-step="2500" data-run="train"' in console
    assert "Step 2,500 &lt;b&gt;" in console
    assert "End of the console" not in page  # it is shown once
    searched = member.get(f"/experiment/{trained}/about?console=LOAD").text
    assert "1 of 4 lines" in searched
    assert "the end</code>" not in searched
