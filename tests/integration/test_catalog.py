"""Listing an experiment's contents: names alone, and metadata in pages."""

from __future__ import annotations

import threading

import pytest

from support.batches import images, scalars, segment, stream, texts
from tbservice.db.database import Database
from tbservice.experiments.eraser import erase_due


def pages(api, experiment, kind, **asked):
    after = ""
    while after is not None:
        page = api.get(experiment, kind, after=after, **asked)
        yield page["series"]
        after = page["next"]


def test_names_are_listed_in_order_in_which_they_came(api, experiment):
    assert api.get(experiment, "names") == {}
    api.write(
        experiment,
        segment(stream("z"), 0, 9, scalars("loss", [0]), images("pictures", [0], [[b"x"]])),
    )
    api.write(
        experiment,
        segment(stream("a"), 0, 9, texts("notes", [0], [b"t"]), scalars("accuracy", [0])),
        segment(stream("z"), 9, 10, scalars("accuracy", [0])),
    )
    names = api.get(experiment, "names")
    assert list(names) == ["z", "a"]
    assert set(names["z"]) == {"loss", "pictures", "accuracy"}
    assert names["z"].index("loss") < names["z"].index("accuracy")
    assert set(names["a"]) == {"notes", "accuracy"}


def test_metadata_come_in_pages_that_together_are_list(api, experiment):
    for number in range(3):
        tags = [scalars(f"t{index}", [0, 1 + number]) for index in range(7)]
        api.write(
            experiment, segment(stream(f"r{number}"), 0, 9, *tags, texts("notes", [0], [b"t"]))
        )
    api.write(
        experiment, segment(stream("r0"), 9, 10, scalars("t0", [0, 5]))
    )  # its count is not exact now
    whole = api.get(experiment, "scalars")
    assert whole["r0"]["t0"]["count"] == 3
    for limit in (1, 4, 21, 22):
        joined = {}
        for page in pages(api, experiment, "scalars", limit=limit):
            assert 1 <= sum(map(len, page.values())) <= limit
            for run, tags in page.items():
                assert not joined.get(run, {}).keys() & tags.keys()
                joined.setdefault(run, {}).update(tags)
        assert joined == whole
    (selected,) = pages(api, experiment, "scalars", limit=10, run="r1", tag=["t3", "t4"])
    assert selected == {"r1": {tag: whole["r1"][tag] for tag in ("t3", "t4")}}
    assert list(pages(api, experiment, "blob_sequences", limit=5)) == [{}]
    many = {"run": [f"nowhere{number}" for number in range(5_000)] + ["r1"]}
    for kind in ("scalars", "tensors", "blob_sequences"):
        posted = api.request("POST", f"/experiments/{experiment}/{kind}", json=many)
        assert posted.json() == api.get(experiment, kind, run="r1"), kind


def test_runs_come_in_pages_that_together_are_list(api, experiment):
    for number in range(5):
        api.write(experiment, segment(stream(f"r{number}"), 0, 9, scalars("loss", [0])))
    everything = api.get(experiment, "runs")
    assert list(everything) == ["runs"]
    for limit in (1, 2, 5, 6):
        listed, after = [], ""
        while after is not None:
            page = api.get(experiment, "runs", limit=limit, after=after)
            assert 1 <= len(page["runs"]) <= limit
            listed += page["runs"]
            after = page["next"]
        assert listed == everything["runs"]


def test_page_token_that_is_malformed_is_refused(api, experiment):
    for asked, status in (
        ({"limit": 1, "after": "here"}, 400),
        ({"limit": 1, "after": "1.1.1"}, 400),
        ({"limit": 1, "after": f"1.{2**63}"}, 400),
        ({"after": "1.1"}, 422),
        ({"limit": 0}, 422),
        ({"limit": 10_001}, 422),
    ):
        for kind in ("scalars", "runs"):
            answer = api.request("GET", f"/experiments/{experiment}/{kind}", params=asked)
            assert answer.status_code == status, answer.text


PATHS = ("runs", "runs?limit=9", "names", "plugins", "scalars", "scalars?limit=9", "scalars/data")


@pytest.mark.parametrize("path", PATHS)
def test_listing_of_what_is_erased_meanwhile_is_not_empty(api, database, monkeypatch, path):
    """After the grant and before the snapshot: it looked like an experiment without data."""
    experiment = api.new_experiment()
    api.write(experiment, segment(stream(), 0, 9, scalars("loss", [1])))
    begin = Database.snapshot

    def delete_first(*arguments, **options):
        monkeypatch.undo()
        api.request("DELETE", f"/experiments/{experiment}?final=true").raise_for_status()
        erase_due(database, threading.Event())
        return begin(*arguments, **options)

    monkeypatch.setattr(Database, "snapshot", delete_first)
    answer = api.request("GET", f"/experiments/{experiment}/{path}")
    assert answer.status_code == 404, answer.text
