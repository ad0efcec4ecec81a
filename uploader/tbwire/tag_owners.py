"""Whose a tag is: in each run, the plugin's that came with it first, which also decided about its class of data."""

from __future__ import annotations

from typing import Any, Final

TAG_CHARS_SHOWN = 200
"""Of a tag, so many characters are told."""

SeriesKind = tuple[str | None, Any]
"""A plugin, None or empty where none is named, and a data class: of any type, the same on both sides."""


HPARAMS: Final = "hparams"
"""The plugin whose summary metadata may be replaced: of all others the first of a series remains.

Its whole content is in the metadata, and a session writes it again when it ends. The metadata that
came with the greatest wall time remains; of equal ones, the one that came later. Source:
`tensorboard/plugins/hparams/metadata.py`, where the tensor (NULL_TENSOR) is only a placeholder.
"""


def belongs_to_owner(sent: SeriesKind, owner: SeriesKind) -> bool:
    """Whether points of this kind go into the owner's series: a second file need not name the plugin again."""
    return sent[0] in {None, "", owner[0]} and sent[1] == owner[1]


def misfit_reason(tag: str, owner_plugin: str) -> str:
    """Why points that do not fit are skipped, as it is counted with their stream and told to people."""
    return f"tag {tag[:TAG_CHARS_SHOWN]!r} belongs to plugin {owner_plugin!r} in this run already"
