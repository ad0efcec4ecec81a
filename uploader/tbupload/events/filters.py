"""Which runs and series are to be uploaded, and a digest that tells one choice from another."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Final

DECODER_VERSION: Final = 3
"""Grows when the reader learns to make other points of the same bytes: streams are then read again from the start."""


@dataclass(frozen=True, slots=True)
class SeriesFilter:
    """A choice of runs, tags and plugins; an expression must match the whole name, None leaves that side open.

    What an exclusion matches is left out even when an inclusion matches it too.
    """

    plugins: frozenset[str] | None = None
    include_runs: re.Pattern[str] | None = None
    exclude_runs: re.Pattern[str] | None = None
    include_tags: re.Pattern[str] | None = None
    exclude_tags: re.Pattern[str] | None = None

    @property
    def chooses_tags(self) -> bool:
        """Whether it may leave out a tag, of whatever plugin."""
        return self.include_tags is not None or self.exclude_tags is not None

    @property
    def chooses_series(self) -> bool:
        """Whether it may leave out series of a run that it accepts."""
        return self.chooses_tags or self.plugins is not None

    def accepts_run(self, run: str) -> bool:
        """Whether the run of this name is to be uploaded at all."""
        return _matches(run, self.include_runs, self.exclude_runs)

    def accepts_tag(self, tag: str) -> bool:
        """Whether series of this tag are to be uploaded, of whatever plugin."""
        return _matches(tag, self.include_tags, self.exclude_tags)

    def accepts_series(self, tag: str, plugin: str) -> bool:
        """Whether the series of this tag and plugin is to be uploaded."""
        return (self.plugins is None or plugin in self.plugins) and self.accepts_tag(tag)

    def digest(self) -> bytes:
        """SHA-256 (32 bytes) of the filters that decide what is read of a file, and of the decoder's version.

        The filters of runs are not among them: a file is read the same whichever other files are.
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
