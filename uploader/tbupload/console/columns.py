"""Lines of aligned columns that fit a terminal, printed one after the other as they arrive."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TextIO

from tbupload.console.terminal import escape

GAP: Final = "  "
"""Space between columns."""

LAST_COLUMN_MIN: Final = 18
"""Width that the last column has at least before another column is shown."""


class Column(NamedTuple):
    """A column: the key of its cells, its heading, its width, its side, and colors by content."""

    key: str
    heading: str
    width: int
    is_right: bool = False
    colors: Mapping[str, str] = {}


class ColumnLayout:
    """Chooses columns by the width of the terminal; without one, all of them, and nothing is cut.

    Args:
        columns: The columns in order; the last one takes the space that is left.
        priorities: The keys of the columns that may be left out, the most important one first.
        total: The width of the terminal; None for none.
    """

    def __init__(
        self, columns: Sequence[Column], priorities: Sequence[str], total: int | None
    ) -> None:
        self._total = total
        self.columns = list(columns)
        if total is None:
            return
        widths = {column.key: column.width + len(GAP) for column in columns}
        shown = {column.key for column in columns} - set(priorities)
        left = total - LAST_COLUMN_MIN - sum(widths[c.key] for c in columns[:-1] if c.key in shown)
        for key in priorities:
            if widths[key] > left:
                continue
            left -= widths[key]
            shown.add(key)
        self.columns = [column for column in columns if column.key in shown]

    def header(self) -> str:
        """Return the line of headings."""
        return self.line({column.key: column.heading for column in self.columns})

    def line(self, cells: Mapping[str, str]) -> str:
        """Return a line, with control characters of the cells escaped."""
        parts = [_pad(escape(cells[column.key]), column) for column in self.columns[:-1]]
        last = escape(cells[self.columns[-1].key])
        if self._total is not None:
            used = sum(display_width(part) + len(GAP) for part in parts)
            last = cut(last, max(self._total - used, 1))
        for index, column in enumerate(self.columns[:-1]):
            if color := column.colors.get(cells[column.key]):
                parts[index] = f"\x1b[{color}m{parts[index]}\x1b[0m"
        return GAP.join([*parts, last]).rstrip()


def terminal_columns() -> int | None:
    """Return the width of the terminal that stdout is; None if it is something else."""
    if not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size((80, 24)).columns if "COLUMNS" in os.environ else _width()


def has_colors(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that shows colors (https://no-color.org)."""
    is_dumb = os.environ.get("TERM") == "dumb" or os.environ.get("NO_COLOR", "") != ""
    return stream.isatty() and not is_dumb


def display_width(text: str) -> int:
    """Return how many columns of a terminal a printable text takes."""
    return sum(_char_width(char) for char in text)


def cut(text: str, width: int) -> str:
    """Return the text, or its beginning and an ellipsis, in at most `width` columns."""
    if display_width(text) <= width:
        return text
    used, kept = 0, []
    for char in text:
        used += _char_width(char)
        if used > width - 1:
            break
        kept.append(char)
    return f"{''.join(kept)}…"


def _width() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _char_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def _pad(text: str, column: Column) -> str:
    """Return the text with spaces up to the column's width; longer ones are cut, numbers never."""
    if not column.is_right:
        text = cut(text, column.width)
    space = " " * (column.width - display_width(text))
    return space + text if column.is_right else text + space
