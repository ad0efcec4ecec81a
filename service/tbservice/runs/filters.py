"""The filter of a table of runs: its grammar, parsed to a tree.

filter     = and-terms separated by `or`
and-terms  = terms separated by `and`
term       = `not` term | `(` filter `)` | column operator value | column `is` [`not`] `missing`
operator   = `=` `!=` `<` `<=` `>` `>=`, and for texts `~` `!~` (RE2)
value      = number | "text" or 'text' with backslash escapes | `true` | `false`
column     = a name, or any text in backticks; docs/runs.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from tbservice.errors import Invalid
from tbservice.patterns import compile_pattern

FILTER_CHARS_MAX: Final = 4_000
"""Characters of a filter."""

FILTER_LEVEL_ITEMS_MAX: Final = 50
"""Levels (items) of parentheses and `not` in a filter."""

Value = float | bool | str

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]) | [+-](?:inf|nan)\b)
    | (?P<name>[^\W\d][\w./:@%-]*)
    | `(?P<quoted>(?:[^`\\]|\\.)+)`(?P<suffix>(?:\.\w+)?)
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<operator>!=|!~|<=|>=|==|[=<>~])
    | (?P<bracket>[()])
    """,
    re.VERBOSE,
)
_ESCAPES: Final = {"n": "\n", "t": "\t"}
_WORDS: Final = {"and", "or", "not", "is"}


@dataclass(frozen=True, slots=True)
class ColumnName:
    """A column that a filter names, and at which character of the filter, from 1 on."""

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares a column with a value; for `~` and `!~`, that is a valid pattern."""

    column: ColumnName
    operator: str
    value: Value


@dataclass(frozen=True, slots=True)
class IsMissing:
    """Selects the runs that have no value in a column."""

    column: ColumnName


@dataclass(frozen=True, slots=True)
class Not:
    """Selects what the term does not select."""

    term: Filter


@dataclass(frozen=True, slots=True)
class Every:
    """Selects what all terms select."""

    terms: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """Selects what one of the terms selects."""

    terms: tuple[Filter, ...]


Filter = Comparison | IsMissing | Not | Every | Some


class FilterError(Invalid):
    """A filter that cannot be parsed; the detail has the position and what was expected."""

    code = "invalid_filter"

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"the filter, character {position}: {problem}")


class _Token(NamedTuple):
    kind: str
    text: str
    position: int

    def describe(self) -> str:
        return "the end of the filter" if self.kind == "end" else repr(self.text[:40])


def parse_filter(text: str) -> Filter | None:
    """Return the tree of a filter; None for an empty one. Raises FilterError."""
    if len(text) > FILTER_CHARS_MAX:
        limit = f"a filter has at most {FILTER_CHARS_MAX} characters (filter_chars_max)"
        raise FilterError(FILTER_CHARS_MAX + 1, limit)
    tokens = list(_tokenize(text))
    if tokens[0].kind == "end":
        return None
    parser = _Parser(tokens)
    tree = parser.parse_some(0)
    parser.expect_end()
    return tree


def find_equal_texts(tree: Filter | None, column: str) -> set[str] | None:
    """Return the texts of which every selected run has one in the column; None for any text."""
    if isinstance(tree, Comparison) and tree.column.name == column and tree.operator == "=":
        return {tree.value} if isinstance(tree.value, str) else set()
    if isinstance(tree, Every):
        sets = [each for term in tree.terms if (each := find_equal_texts(term, column)) is not None]
        return set.intersection(*sets) if sets else None
    if isinstance(tree, Some):
        found = [find_equal_texts(term, column) for term in tree.terms]
        return None if None in found else set().union(*(each for each in found if each is not None))
    return None


def list_columns(tree: Filter | None) -> Iterator[ColumnName]:
    """Yield the columns that a filter names."""
    if isinstance(tree, Comparison | IsMissing):
        yield tree.column
    elif isinstance(tree, Not):
        yield from list_columns(tree.term)
    elif isinstance(tree, Every | Some):
        for term in tree.terms:
            yield from list_columns(term)


def quote(text: str) -> str:
    """Return a text as a filter has it."""
    escaped = re.sub(r'(["\\])', r"\\\1", text)
    return f'"{escaped}"'


def unescape(text: str) -> str:
    """Return a text without its backslash escapes."""
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text, flags=re.DOTALL)


def _tokenize(text: str) -> Iterator[_Token]:
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            problem = f"{text[place]!r} begins no column, value or operator"
            if text[place] in "\"'`":
                problem = f"the {text[place]} is not closed"
            raise FilterError(place + 1, problem)
        kind = match.lastgroup or ""
        if match["quoted"] is not None:
            yield _Token("column", unescape(match["quoted"]) + match["suffix"], place + 1)
        elif kind == "name" and match["name"].lower() in _WORDS:
            yield _Token("word", match["name"].lower(), place + 1)
        elif kind == "name":
            yield _Token("column", match["name"], place + 1)
        elif kind != "space":
            yield _Token(kind, match[0], place + 1)
        place = match.end()
    yield _Token("end", "", len(text) + 1)


class _Parser:
    """A recursive descent parser; each method takes what it parses from the front."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = iter(tokens)
        self._next = next(self._tokens)

    def parse_some(self, level: int) -> Filter:
        terms = [self._parse_every(level)]
        while self._takes("word", "or"):
            terms.append(self._parse_every(level))
        return terms[0] if len(terms) == 1 else Some(tuple(terms))

    def expect_end(self) -> None:
        if self._next.kind != "end":
            raise self._error("expected 'and', 'or' or the end of the filter")

    def _parse_every(self, level: int) -> Filter:
        terms = [self._parse_term(level)]
        while self._takes("word", "and"):
            terms.append(self._parse_term(level))
        return terms[0] if len(terms) == 1 else Every(tuple(terms))

    def _parse_term(self, level: int) -> Filter:
        if level > FILTER_LEVEL_ITEMS_MAX:
            limit = f"more than {FILTER_LEVEL_ITEMS_MAX} levels (filter_level_items_max)"
            raise FilterError(self._next.position, limit)
        if self._takes("word", "not"):
            return Not(self._parse_term(level + 1))
        if self._takes("bracket", "("):
            tree = self.parse_some(level + 1)
            if not self._takes("bracket", ")"):
                raise self._error("expected 'and', 'or' or ')'")
            return tree
        if self._next.kind != "column":
            raise self._error("expected a column, 'not' or '('")
        column = ColumnName(self._next.text, self._next.position)
        self._advance()
        if self._takes("word", "is"):
            is_negated = self._takes("word", "not")
            if (self._next.kind, self._next.text) != ("column", "missing"):
                raise self._error("expected 'missing' or 'not missing'")
            self._advance()
            return Not(IsMissing(column)) if is_negated else IsMissing(column)
        return self._parse_comparison(column)

    def _parse_comparison(self, column: ColumnName) -> Comparison:
        if self._next.kind != "operator":
            raise self._error(
                f"expected an operator after {column.name!r}: = != < <= > >= ~ !~, or 'is missing'"
            )
        operator = "=" if self._next.text == "==" else self._next.text
        self._advance()
        position = self._next.position
        value = self._parse_value(operator)
        if operator in {"~", "!~"} and isinstance(value, str):
            try:
                compile_pattern(value)
            except ValueError as error:
                raise FilterError(position, str(error)) from error
        return Comparison(column, operator, value)

    def _parse_value(self, operator: str) -> Value:
        kind, text, _ = self._next
        value: Value | None = None
        if kind == "text":
            value = unescape(text[1:-1])
        elif operator in {"~", "!~"}:
            raise self._error(f"expected a regular expression in quotes after {operator}")
        elif kind == "number" or (kind == "column" and text.lower() in {"inf", "nan"}):
            value = float(text)
        elif kind == "column" and text.lower() in {"true", "false"}:
            value = text.lower() == "true"
        if value is None:
            hint = f': texts are in quotes, "{text[:40]}"' if kind == "column" else ""
            raise self._error(f"expected a number, a text in quotes, true or false{hint}")
        self._advance()
        return value

    def _takes(self, kind: str, text: str) -> bool:
        """Take the next token if it is this one."""
        if (self._next.kind, self._next.text) != (kind, text):
            return False
        self._advance()
        return True

    def _advance(self) -> None:
        self._next = next(self._tokens)

    def _error(self, expected: str) -> FilterError:
        return FilterError(self._next.position, f"{expected}; found {self._next.describe()}")
