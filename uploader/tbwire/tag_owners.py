"""Owner of a tag: in each run, the plugin and data class of the points that came first."""

from __future__ import annotations

from typing import Any, Final, Optional

TAG_CHARS_SHOWN: Final = 200
"""Characters of a tag in a reason for people."""

HPARAMS: Final = "hparams"
"""The plugin whose summary metadata changes: of all others, a series' first one remains.

All of its content is in the metadata, so writing a tag again changes only that. `hparams_union` is
the rule for what a series has then. Source: `tensorboard/plugins/hparams/metadata.py`, where the
tensor (NULL_TENSOR) is only a placeholder.
"""

SeriesKind = tuple[Optional[str], Any]
"""Plugin and data class. The plugin is None or empty when none is named; the data class has any
type, but the same on both sides of a comparison."""


def belongs_to_owner(sent: SeriesKind, owner: SeriesKind) -> bool:
    """Return whether points of kind `sent` belong to the owner's series.

    They need not name the plugin: in event files only a tag's first value does.
    """
    return sent[0] in {None, "", owner[0]} and sent[1] == owner[1]


def misfit_reason(tag: str, owner_plugin: str) -> str:
    """Return the reason, for people, by which skipped points of another kind are counted."""
    return f"tag {tag[:TAG_CHARS_SHOWN]!r} belongs to plugin {owner_plugin!r} in this run already"
