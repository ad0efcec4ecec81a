"""The page that deletes runs: what it lists, its confirmation, and bad forms."""

from __future__ import annotations

import html

import pytest

from support.batches import scalars, segment, stream
from support.share_links import make_link
from tbservice import limits

NAMES = ("<b>a</b>/train", "b %\nc", "", "B/eval")


@pytest.fixture
def written(api, experiment):
    """The path of the experiment's page, with runs."""
    api.write(
        experiment,
        *(segment(stream(name), 0, 9, scalars("loss", range(5))) for name in NAMES),
        segment(stream(NAMES[0], "second"), 0, 9, scalars("accuracy", range(2_000))),
    )
    return f"/experiment/{experiment}"


def ids_of(text):
    """Return the ids of the runs that the page offers."""
    return [part.partition('"')[0] for part in text.split('name="run" value="')[1:]]


def test_runs_are_listed_selected_and_deleted(api, experiment, browser, written):
    page = browser.get(f"{written}/runs")
    assert page.status_code == 200
    assert "<b>a</b>" not in page.text
    assert all(html.escape(name) in page.text for name in NAMES)
    assert "2 series, 2,005 points" in page.text
    first, second, *_ = ids_of(page.text)

    asked = browser.post(f"{written}/runs/delete", {"run": [first, second, first, "999999999"]})
    assert asked.status_code == 200
    assert "Delete 2 runs?" in asked.text
    assert "With 3 series and 2,010 points." in asked.text
    assert "cannot be undone" in asked.text
    assert len(api.get(experiment, "runs")["runs"]) == 4

    fields = {"run": ids_of(asked.text), "confirmed": "yes"}
    for _ in range(2):  # a button that is clicked twice
        answer = browser.post(f"{written}/runs/delete", fields)
        assert answer.headers["location"] == f"{written}/runs?done=runs-deleted"
    assert [run["run"] for run in api.get(experiment, "runs")["runs"]] == ["", "B/eval"]
    assert "The runs were deleted." in browser.get(answer.headers["location"]).text
    assert len(api.get(experiment, "runs/deleted")["runs"]) == 2


def test_runs_are_found_by_parts_of_names_and_in_pages(browser, written, monkeypatch):
    assert len(ids_of(browser.get(f"{written}/runs?q=b").text)) == 3
    assert "No run has a name like that." in browser.get(f"{written}/runs?q=%25%25").text
    everything = ids_of(browser.get(f"{written}/runs").text)
    monkeypatch.setattr(limits, "DELETED_RUNS_ITEMS_MAX", 3)
    first = browser.get(f"{written}/runs").text
    following = first.split('rel="next" href="')[1].partition('"')[0]
    second = browser.get(html.unescape(following)).text
    assert ids_of(first) + ids_of(second) == everything
    assert 'rel="next"' not in second


def test_bad_selections_are_refused(browser, written):
    for runs in ([], ["x"], ["-1"], [str(10**30)], list(map(str, range(101)))):
        assert browser.post(f"{written}/runs/delete", {"run": runs}).status_code == 422
    for after in ("x", "9" * 30):
        assert browser.get(f"{written}/runs?after={after}").status_code == 422
    assert browser.post(f"{written}/runs/delete", {"run": "1"}, csrf=False).status_code == 403


def test_form_without_selection_keeps_search(browser, written):
    answer = browser.post(f"{written}/runs/delete", {"q": "b", "after": "0"})
    assert answer.status_code == 422
    assert "Select 1 to 100 runs." in answer.text
    assert len(ids_of(answer.text)) == 3


def test_run_of_another_experiment_is_not_deleted(api, browser, written):
    other = api.new_experiment()
    api.write(other, segment(stream("theirs"), 0, 9, scalars("loss", [1])))
    (run,) = ids_of(browser.get(f"/experiment/{other}/runs").text)
    answer = browser.post(f"{written}/runs/delete", {"run": run, "confirmed": "yes"})
    assert answer.status_code == 303
    assert len(api.get(other, "runs")["runs"]) == 1


@pytest.mark.usefixtures("written")
def test_runs_of_frozen_copy_are_not_offered(api, experiment, browser):
    link = make_link(api, experiment, frozen=True)
    copy = link["url"].split("/experiment/")[1].split("/")[0]
    assert browser.get(f"/experiment/{copy}/runs").status_code in {403, 404}
