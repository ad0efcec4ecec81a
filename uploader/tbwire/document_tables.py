"""Tables to copy into documents: Markdown (GitHub's), LaTeX."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]<>|~&$#!])")
"""Punctuation that may have a meaning within a cell; a backslash takes it (CommonMark, 2.4)."""

_LATEX: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    # At the start of a row, these would be arguments of the end of the row before.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    # Two would be a dash.
    "-": "-{}",
    **{character: f"\\{character}" for character in "{}$&#_%"},
}


def markdown_lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown; texts are escaped."""
    yield _markdown_line(map(_escape_markdown, columns))
    yield _markdown_line("---" for _ in columns)
    for row in rows:
        yield _markdown_line(map(_escape_markdown, row))


def latex_lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a `tabular` of LaTeX, which needs no package; texts are escaped."""
    yield rf"\begin{{tabular}}{{{'l' * len(columns)}}}"
    yield r"\hline"
    yield _latex_line(columns)
    yield r"\hline"
    for row in rows:
        yield _latex_line(row)
    yield r"\hline"
    yield r"\end{tabular}"


def _markdown_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape_markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", _CONTROL.sub(" ", text))


def _latex_line(cells: Iterable[str]) -> str:
    return " & ".join(map(_escape_latex, cells)) + r" \\"


def _escape_latex(text: str) -> str:
    escaped = "".join(_LATEX.get(character, character) for character in _CONTROL.sub(" ", text))
    return re.sub(r"-{}(?!-)", "-", escaped)
