"""Which runs and series a filter accepts, and that different filters have different digests."""

from __future__ import annotations

import re

import pytest

from tbupload.events import filters
from tbupload.events.filters import SeriesFilter

RE = re.compile


def test_open_filter_accepts_everything():
    series_filter = SeriesFilter()
    assert series_filter.accepts_run("")
    assert series_filter.accepts_series("any tag", "any plugin")


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        ("train/loss", True),
        ("train/lost", True),
        ("train", False),
        ("a/train/loss", False),
        ("train/loss\n", False),
    ],
)
def test_expression_must_match_whole_name(name, accepted):
    assert (
        SeriesFilter(include_tags=RE("train/los."), include_runs=None).accepts_tag(name) is accepted
    )
    assert SeriesFilter(include_runs=RE("train/los.")).accepts_run(name) is accepted


def test_exclusion_wins_over_inclusion():
    series_filter = SeriesFilter(include_tags=RE("loss.*"), exclude_tags=RE(".*raw"))
    assert series_filter.accepts_tag("loss/mean")
    assert not series_filter.accepts_tag("loss/raw")


def test_plugins_are_chosen_by_name():
    series_filter = SeriesFilter(plugins=frozenset({"scalars"}))
    assert series_filter.accepts_series("t", "scalars")
    assert not series_filter.accepts_series("t", "images")


def test_equal_filters_have_equal_digests():
    first = SeriesFilter(plugins=frozenset({"b", "a"}), include_tags=RE("x"))
    other = SeriesFilter(plugins=frozenset({"a", "b"}), include_tags=RE("x"))
    assert first.digest() == other.digest()
    assert len(first.digest()) == 32


def test_every_choice_has_digest_of_its_own():
    choices = [
        SeriesFilter(),
        SeriesFilter(plugins=frozenset()),
        SeriesFilter(plugins=frozenset({"scalars"})),
        SeriesFilter(include_tags=RE("x")),
        SeriesFilter(exclude_tags=RE("x")),
        SeriesFilter(include_tags=RE("x", re.IGNORECASE)),
    ]
    assert len({choice.digest() for choice in choices}) == len(choices)


def test_choice_of_runs_does_not_change_how_file_is_read():
    assert (
        SeriesFilter(include_runs=RE("x"), exclude_runs=RE("y")).digest() == SeriesFilter().digest()
    )


def test_new_decoder_has_other_digests(monkeypatch):
    before = SeriesFilter().digest()
    monkeypatch.setattr(filters, "DECODER_VERSION", filters.DECODER_VERSION + 1)
    assert SeriesFilter().digest() != before
