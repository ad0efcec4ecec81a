"""One column of a table of runs: values of several types, compared and sorted as arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tbservice.patterns import PatternSearches
from tbservice.types.identifiers import Float64s, Int64s
from tbwire.hparams import HparamValue

Bools = npt.NDArray[np.bool_]

MISSING: Final = 0
BOOL: Final = 1
NUMBER: Final = 2
TEXT: Final = 3


@dataclass(frozen=True, slots=True)
class RunValues:
    """The values of some runs; `kinds` has the type of each.

    `numbers` has numbers, and booleans as 0 and 1. A text is the one of `texts` that `codes` names.
    """

    kinds: npt.NDArray[np.uint8]
    numbers: Float64s
    codes: Int64s
    texts: Sequence[str]

    def matches(self, kind: int, is_true: Callable[[Float64s], Bools]) -> Bools:
        """Return which values of a kind, a number or boolean, fulfil a condition."""
        with np.errstate(invalid="ignore"):
            result: Bools = (self.kinds == kind) & is_true(self.numbers)
        return result

    def matches_text(self, is_true: Callable[[str], bool]) -> Bools:
        """Return which values are texts that fulfil a condition; asks once for equal texts."""
        used = np.zeros(len(self.texts) + 1, bool)
        is_text = self.kinds == TEXT
        used[np.unique(self.codes[is_text])] = True
        answers = np.zeros(len(self.texts) + 1, bool)
        for code in np.flatnonzero(used).tolist():
            answers[code] = is_true(self.texts[code])
        result: Bools = is_text & answers[self.codes]
        return result

    def matches_pattern(self, pattern: str, searches: PatternSearches) -> Bools:
        """Return which values are texts in which a valid pattern matches.

        By RE2 of Arrow: 10 times as fast as a call for each text. Raises TooLarge.
        """
        searches.count(pattern, sum(map(len, self.texts)))
        found = pc.match_substring_regex(pa.array(self.texts, pa.string()), pattern)
        answers = np.append(found.to_numpy(zero_copy_only=False).astype(bool), False)
        result: Bools = (self.kinds == TEXT) & answers[self.codes]
        return result

    def is_same(self, rows: Int64s) -> bool:
        """Return whether some runs have one value; NaN is none."""
        kind = self.kinds[rows[0]]
        values = self.codes if kind == TEXT else self.numbers
        is_equal = (self.kinds[rows] == kind) & (
            (kind == MISSING) | (values[rows] == values[rows[0]])
        )
        return bool(is_equal.all())

    def take(self, rows: Int64s) -> RunValues:
        """Return the values of some runs, with their texts only."""
        if len(rows) == len(self.kinds):
            return self
        used, codes = np.unique(self.codes[rows], return_inverse=True)
        texts = [self.texts[code] for code in used.tolist()] if self.texts else []
        return RunValues(self.kinds[rows], self.numbers[rows], codes, texts)

    def ranks(self) -> Float64s:
        """Return numbers in the order of the values; NaN for missing ones.

        False, true, numbers, NaN, then texts by code points.
        """
        ranks = np.full(len(self.kinds), np.nan)
        is_number = self.kinds == NUMBER
        distinct, inverse = np.unique(self.numbers[is_number], return_inverse=True)
        ranks[is_number] = inverse + 2.0
        is_bool = self.kinds == BOOL
        ranks[is_bool] = self.numbers[is_bool]
        is_text = self.kinds == TEXT
        order = sorted(range(len(self.texts)), key=self.texts.__getitem__)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        ranks[is_text] = place[self.codes[is_text]] + len(distinct) + 2.0
        return ranks


def of_objects(values: Iterable[HparamValue | None]) -> RunValues:
    """Return the column of Python values; None is missing."""
    listed = list(values)
    kinds = np.zeros(len(listed), np.uint8)
    numbers = np.full(len(listed), math.nan)
    codes = np.zeros(len(listed), np.int64)
    texts: dict[str, int] = {}
    for row, value in enumerate(listed):
        if value is None:
            continue
        if isinstance(value, str):
            kinds[row], codes[row] = TEXT, texts.setdefault(value, len(texts))
        elif isinstance(value, bool):
            kinds[row], numbers[row] = BOOL, value
        else:
            kinds[row], numbers[row] = NUMBER, value
    return RunValues(kinds, numbers, codes, list(texts))


def of_numbers(numbers: Float64s, has_value: Bools) -> RunValues:
    """Return a column of numbers, of which some may be NaN, and some missing."""
    kinds = np.where(has_value, NUMBER, MISSING).astype(np.uint8)
    return RunValues(kinds, numbers, np.zeros(len(numbers), np.int64), [])


def of_codes(codes: Int64s, texts: Sequence[str]) -> RunValues:
    """Return a column of texts by their positions in `texts`; -1 is missing."""
    kinds = np.where(codes >= 0, TEXT, MISSING).astype(np.uint8)
    return RunValues(kinds, np.full(len(codes), math.nan), np.maximum(codes, 0), texts)


def concatenate(columns: Sequence[RunValues]) -> RunValues:
    """Return the values of all columns as one; equal texts become one."""
    if len(columns) == 1:
        return columns[0]
    texts: dict[str, int] = {}
    codes = []
    for column in columns:
        places = [texts.setdefault(each, len(texts)) for each in column.texts]
        codes.append(np.array(places, np.int64)[column.codes] if places else column.codes)
    return RunValues(
        np.concatenate([column.kinds for column in columns]),
        np.concatenate([column.numbers for column in columns]),
        np.concatenate(codes),
        list(texts),
    )
