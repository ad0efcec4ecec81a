"""Words by which experiments are found, and the tags that they are filtered by."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tbservice.errors import Invalid
from tbservice.experiment_values import ExperimentNotes
from tbservice.experiments.metadata import normalize_tags
from tbservice.experiments.search_words import (
    EXPERIMENT_WORD_CHARS_MAX,
    EXPERIMENT_WORDS_ITEMS_MAX,
    SEARCH_WORDS_ITEMS_MAX,
    collect_words,
    parse_search,
)
from tbservice.types.experiments import Experiment, Visibility
from tbservice.types.identifiers import ExperimentId, UserId

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def words_of(name="", *, description="", tags=(), people=(), created_by=None, **notes):
    experiment = Experiment(
        ExperimentId("e"), name, description, Visibility.PRIVATE, NOW, NOW, 0, tags, created_by
    )
    texts = {"notes": "", "properties": {}, "origin": {}} | notes
    return collect_words(experiment, ExperimentNotes(**texts), people) - {"=private"}


def finds(search, words):
    return all(any(word.startswith(prefix) for word in words) for prefix in parse_search(search))


@pytest.mark.parametrize(
    ("name", "search"),
    [
        ("ResNet50-lr0.001_seed17", "resnet"),
        ("ResNet50-lr0.001_seed17", "NET50"),
        ("ResNet50-lr0.001_seed17", "lr0.001"),
        ("ResNet50-lr0.001_seed17", "17 lr0"),
        ("Straße", "STRASSE"),
        ("\uff21\uff44\uff41\uff4d", "adam"),  # full-width letters
        ("学习率实验", "实验"),
        ("épreuve", "ÉPR"),
    ],
)
def test_words_of_name_are_found(name, search):
    assert finds(search, words_of(name)) == (search != "NET50")


def test_words_come_from_all_texts():
    words = words_of(
        "name",
        description="described",
        tags=("baseline",),
        people=["Ada Lovelace", "ada@example.org"],
        created_by=UserId("u"),
        notes="noted",
        properties={"optimizer": "AdamW"},
        origin={"user": "ada", "host": "gpu7", "command": "secret"},
    )
    assert {
        *("name", "described", "baseline", "#baseline", "ada", "lovelace", "example", "org", "@u"),
        *("noted", "optimizer", "adamw", "gpu7"),
    } <= words
    assert "secret" not in words


def test_search_without_words_matches_nothing():
    assert parse_search("") == parse_search("  ") == ()
    assert parse_search("%") is parse_search("_") is None
    assert parse_search("a_b-C a") == ("a", "b", "c")


def test_words_are_bounded():
    words = words_of("first " + "x" * 100, notes=" ".join(f"w{n}" for n in range(10_000)))
    assert len(words) <= EXPERIMENT_WORDS_ITEMS_MAX
    assert {"first", "x" * EXPERIMENT_WORD_CHARS_MAX} <= words
    assert len(parse_search(" ".join(map(str, range(99))))) == SEARCH_WORDS_ITEMS_MAX


def test_tags_are_sorted_and_unique():
    assert normalize_tags(["b", " A  a ", "B", "a a"]) == ["A a", "b"]
    for wrong in ("", " ", "a,b", "x" * 65, "a\0", "a\u202eb"):
        with pytest.raises(Invalid):
            normalize_tags([wrong])
    with pytest.raises(Invalid):
        normalize_tags([str(n) for n in range(51)])
