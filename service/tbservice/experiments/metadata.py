"""Text that people write about an experiment: check it, and make columns of it."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tbservice import limits
from tbservice.errors import Invalid
from tbservice.types.experiments import RESTORABLE, Expiry, Visibility

NAME_KEY_CHARS: Final = 100
"""Characters of a name by which lists are sorted: an index entry has at most 2,704 bytes."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """Fields to set of an experiment; None leaves one as it is, or at its default in a new one.

    `tags` and `origin` replace those before. Each item of `properties` is set, or removed if its
    value is None. An archived experiment is in a list of its own, and nothing else. One that is
    published may be listed by search engines.
    """

    name: str | None = None
    description: str | None = None
    visibility: Visibility | None = None
    tags: Sequence[str] | None = None
    notes: str | None = None
    properties: Mapping[str, str | None] | None = None
    origin: Mapping[str, str] | None = None
    expires_at: Expiry | None = None
    archived: bool | None = None
    published: bool | None = None


def make_columns(metadata: Metadata, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the columns that change; `properties` are those of the experiment so far.

    Raises Invalid for what is over its limit, or has characters that no text may have.
    """
    columns: dict[str, Any] = {}
    if metadata.name is not None:
        check_text("a name", metadata.name, limits.EXPERIMENT_NAME_CHARS_MAX)
        columns["name"] = metadata.name
        columns["name_key"] = make_name_key(metadata.name)
    if metadata.description is not None:
        chars_max = limits.EXPERIMENT_DESCRIPTION_CHARS_MAX
        check_text("a description", metadata.description, chars_max)
        columns["description"] = metadata.description
    if metadata.visibility is not None:
        columns["visibility"] = metadata.visibility.value
    if metadata.tags is not None:
        columns["tags"] = normalize_tags(metadata.tags)
    if metadata.notes is not None:
        check_text("notes", metadata.notes, limits.EXPERIMENT_NOTES_CHARS_MAX)
        columns["notes"] = metadata.notes
    if metadata.properties is not None:
        united = {**properties, **metadata.properties}
        columns["properties"] = check_pairs(
            "properties", {key: value for key, value in united.items() if value is not None}
        )
    flags = {"is_listed": _negate(metadata.archived), "is_published": metadata.published}
    columns |= {column: flag for column, flag in flags.items() if flag is not None}
    if metadata.origin is not None:
        origin = check_pairs("origin", metadata.origin)
        columns["origin"] = {remove_controls(k): remove_controls(v) for k, v in origin.items()}
    if metadata.expires_at is not None:
        columns["erase_at"] = _erase_time(metadata.expires_at)
    return columns


def _negate(flag: bool | None) -> bool | None:
    return None if flag is None else not flag


def _erase_time(expires_at: Expiry) -> datetime | None:
    """Return when an experiment is erased that expires then."""
    if expires_at == "never":
        return None
    now = datetime.now(UTC)
    if not now < expires_at <= now + timedelta(days=limits.EXPIRY_DAYS_MAX):
        raise Invalid(
            f"expires_at is a time in the future, at most {limits.EXPIRY_DAYS_MAX:,} days ahead; "
            "to delete an experiment now, delete it"
        )
    return expires_at + RESTORABLE


def make_name_key(name: str) -> str:
    """Return the beginning of a name by which lists are sorted."""
    return name.casefold()[:NAME_KEY_CHARS]


def normalize_tags(tags: Sequence[str], owner: str = "an experiment") -> list[str]:
    """Return the tags sorted, without spaces around them, none twice (ignoring case).

    `owner` is what has them, for messages. Raises Invalid for too many, for an empty one, and for
    one over its limit.
    """
    by_key: dict[str, str] = {}
    for tag in tags:
        content = unicodedata.normalize("NFC", " ".join(tag.split()))
        check_text("a tag", content, limits.EXPERIMENT_TAG_CHARS_MAX)
        if not content or "," in content or not content.isprintable():
            raise Invalid(
                f"{content!r} is no tag: it has at least one character, and neither a comma nor "
                "characters that are not shown"
            )
        by_key.setdefault(content.casefold(), content)
    if len(by_key) > limits.EXPERIMENT_TAGS_ITEMS_MAX:
        raise Invalid(f"{owner} has at most {limits.EXPERIMENT_TAGS_ITEMS_MAX} tags")
    return [by_key[key] for key in sorted(by_key)]


def check_text(what: str, content: str, chars_max: int) -> None:
    """Raise Invalid if a text is over its limit, or contains NUL."""
    if len(content) > chars_max or "\0" in content:
        raise Invalid(f"{what} has at most {chars_max} characters, none of them NUL")


def remove_controls(content: str) -> str:
    """Return a text of a machine on one line, without what could hide or reorder its characters.

    Control characters, separators of lines, and the bidirectional controls (Unicode categories Cc,
    Cf, Zl and Zp) each become a replacement character.
    """
    if content.isprintable():
        return content
    return "".join(
        "\ufffd" if unicodedata.category(each) in {"Cc", "Cf", "Zl", "Zp"} else each
        for each in content
    )


def remove_controls_of_lines(content: str) -> str:
    """Return a text of several lines, each without controls, as `remove_controls`."""
    return "\n".join(map(remove_controls, content.split("\n")))


def check_pairs(what: str, pairs: Mapping[str, str]) -> dict[str, str]:
    """Return the pairs. Raises Invalid for too many, and for a key or value over its limit."""
    if len(pairs) > limits.EXPERIMENT_PROPERTIES_ITEMS_MAX:
        raise Invalid(f"{what} has at most {limits.EXPERIMENT_PROPERTIES_ITEMS_MAX} keys")
    for key, value in pairs.items():
        check_text("a key", key, limits.EXPERIMENT_PROPERTY_KEY_CHARS_MAX)
        if not key.strip():
            raise Invalid(f"a key of {what} has at least one character")
        check_text("a value", value, limits.EXPERIMENT_PROPERTY_VALUE_CHARS_MAX)
    return dict(pairs)
