"""Words of texts: those that an experiment is found by, and those that a search asks for.

A search finds what has a word that begins with each word of the search.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

from tbservice.experiment_values import ExperimentNotes
from tbservice.types.experiments import Experiment, Visibility
from tbservice.types.identifiers import UserId

EXPERIMENT_WORDS_ITEMS_MAX: Final = 500
"""Words (items) of one experiment that a search finds; the first ones of its texts."""

EXPERIMENT_WORD_CHARS_MAX: Final = 40
"""Characters of a word that are searched."""

SEARCH_WORDS_ITEMS_MAX: Final = 8
"""Words (items) of one search; further ones are ignored."""

_WORD: Final = re.compile(r"[^\W_]+")

_WORD_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
"""Parts of a compound word in ASCII: "ResNet50" has "Res", "Net" and "50"."""

_WITHOUT_SPACES: Final = re.compile("[\u0e00-\u0eff\u2e80-\u9fff\uf900-\ufaff]")
"""Characters of scripts that write no space between words (Thai, Lao, Chinese, Japanese)."""


def collect_words(
    experiment: Experiment, notes: ExperimentNotes, people: Iterable[str]
) -> set[str]:
    """Return the words of an experiment: of its texts, and those for filters.

    `people` are names and e-mail addresses of who created it. At most EXPERIMENT_WORDS_ITEMS_MAX.
    """
    marks = [mark_tag(tag) for tag in experiment.tags]
    marks.append(mark_visibility(experiment.visibility))
    if experiment.created_by is not None:
        marks.append(mark_person(experiment.created_by))

    texts = chain(
        [experiment.name, *experiment.tags, *people],
        [notes.origin.get("user", ""), notes.origin.get("host", "")],
        [experiment.description, notes.notes],
        chain.from_iterable(notes.properties.items()),
    )
    words = dict.fromkeys(marks)
    unique = (word for word in chain.from_iterable(map(_split, texts)) if word not in words)
    for word in unique:
        words[word] = None
        if len(words) >= EXPERIMENT_WORDS_ITEMS_MAX:
            break
    return set(words)


def parse_search(search_text: str) -> tuple[str, ...] | None:
    """Return the beginnings of words that a search asks for; None if nothing can match.

    That is so for a text that is not empty and has no word.
    """
    words = list(islice(_WORD.findall(_fold(search_text)), SEARCH_WORDS_ITEMS_MAX))
    if not words and search_text.strip():
        return None
    prefixes = {word[:EXPERIMENT_WORD_CHARS_MAX] for word in words}
    return tuple(sorted(prefixes))


def mark_tag(tag: str) -> str:
    """Return the word of all experiments with a tag."""
    return f"#{tag.casefold()}"


def mark_person(user_id: UserId) -> str:
    """Return the word of all experiments that a person created."""
    return f"@{user_id}"


def mark_visibility(visibility: Visibility) -> str:
    """Return the word of all experiments with a visibility."""
    return f"{VISIBILITY_PREFIX}{visibility.value}"


def mark_name(name_key: str) -> str:
    """Return the word of archived experiments with a name: lists do not find them by it."""
    return f'"{name_key}'


def in_archive(word: str) -> str:
    """Return the word by which archived experiments are found, in place of this one."""
    return f"{_ARCHIVE_PREFIX}{word}"


_ARCHIVE_PREFIX: Final = "-"
VISIBILITY_PREFIX: Final = "="
"""With one of these, each experiment has a word that begins so."""

TAG_PREFIX: Final = "#"
PERSON_PREFIX: Final = "@"


def _split(content: str) -> Iterator[str]:
    """Yield the words of a text, and the parts of compound ones; some several times."""
    for match in _WORD.finditer(unicodedata.normalize("NFKC", content)):
        word = match[0]
        folded = word.casefold()[:EXPERIMENT_WORD_CHARS_MAX]
        yield folded
        if word.isascii():
            parts = _WORD_PART.findall(word)
            if len(parts) > 1:
                yield from (part.lower() for part in parts if len(part) > 1)
        elif _WITHOUT_SPACES.search(folded):
            yield from (folded[start:] for start in range(1, len(folded)))


def _fold(content: str) -> str:
    return unicodedata.normalize("NFKC", content).casefold()
