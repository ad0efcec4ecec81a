"""Filters: which runs and series are uploaded, and a digest that identifies the filters."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Final

DECODER_VERSION: Final = 4
"""Increased when the reader makes other points of the same bytes: streams are then read again."""


@dataclass(frozen=True)
class SeriesFilter:
    """A choice of runs, tags and plugins; None does not restrict.

    An expression must match the complete name. Exclusions win over inclusions.
    """

    plugins: frozenset[str] | None = None
    include_runs: re.Pattern[str] | None = None
    exclude_runs: re.Pattern[str] | None = None
    include_tags: re.Pattern[str] | None = None
    exclude_tags: re.Pattern[str] | None = None

    @property
    def chooses_tags(self) -> bool:
        """Return whether a tag may be excluded, independent of its plugin."""
        return self.include_tags is not None or self.exclude_tags is not None

    @property
    def chooses_series(self) -> bool:
        """Return whether series of an accepted run may be excluded."""
        return self.chooses_tags or self.plugins is not None

    def accepts_run(self, run: str) -> bool:
        """Return whether the run with this name is uploaded."""
        return _matches(run, self.include_runs, self.exclude_runs)

    def accepts_tag(self, tag: str) -> bool:
        """Return whether series with this tag are uploaded, if their plugin is accepted as well."""
        return _matches(tag, self.include_tags, self.exclude_tags)

    def accepts_series(self, tag: str, plugin: str) -> bool:
        """Return whether the series with this tag and plugin is uploaded."""
        return (self.plugins is None or plugin in self.plugins) and self.accepts_tag(tag)

    def digest(self) -> bytes:
        """Return the SHA-256 (32 bytes) of the filters of tags and plugins and of DECODER_VERSION.

        Filters of runs are not included: they do not change what is read of a file.
        """
        return hashlib.sha256(json.dumps(self._content(), sort_keys=True).encode()).digest()

    def _content(self) -> dict[str, object]:
        patterns = (self.include_tags, self.exclude_tags)
        return {
            "decoder": DECODER_VERSION,
            "plugins": None if self.plugins is None else sorted(self.plugins),
            "tags": [pattern and [pattern.pattern, pattern.flags] for pattern in patterns],
        }


def _matches(name: str, include: re.Pattern[str] | None, exclude: re.Pattern[str] | None) -> bool:
    if exclude is not None and exclude.fullmatch(name):
        return False
    return include is None or include.fullmatch(name) is not None
