"""A chart as an SVG file of its own, with axes and a legend: for a README, a paper or a note."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, cycle
from typing import Final

import numpy as np

from tbservice.pages.base.templates import TEMPLATES, format_figure
from tbservice.pages.experiments.card_content import CardContent
from tbservice.pages.experiments.plotting import (
    find_range,
    format_ticks,
    outline,
    place,
    split_at_gaps,
)
from tbservice.types.identifiers import Float64s

_NAME_CHARS: Final = 36
_TWO_COLUMNS_MIN: Final = 560
"""Pixels from which the legend has two columns."""

_NOTE_CHARS_MIN: Final = 12
"""Characters of a note for which there must be room beside the title."""

_CHAR_WIDTH: Final = 7
_SWATCH: Final = 16
_ROWS_OF_ONE: Final = 4
"""Groups that have a row of the legend each, if their names are long."""

_LEGEND_ENTRIES: Final = 8
_ROW_HEIGHT: Final = 18
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 34, 26
_TICKS: Final = 5
_DECADES_MAX: Final = 3
_NO_RANGE: Final = (0.0, 1.0)

_COLOURS: Final = (
    *("#0f6fc6", "#d9480f", "#2b8a3e", "#ae3ec9"),
    *("#c92a2a", "#0b7285", "#a1660a", "#5f3dc4"),
)
"""Colours of the curves, in turn: each has a contrast of 3 to white and to the dark background."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a chart is drawn: its size in pixels, smoothing as TensorBoard's, a logarithmic axis."""

    width: int = 640
    height: int = 320
    smoothing: float = 0.0
    is_logarithmic: bool = False


@dataclass(frozen=True, slots=True)
class _Axis:
    """Numbers from `low` to `high`, drawn from position `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def place(self, numbers: Float64s) -> Float64s:
        return place(numbers, self.low, self.high, self.start, self.end)

    def ticks(self) -> list[float]:
        """Return round numbers within the axis, at most some _TICKS + 2 of them."""
        span = self.high / 2 - self.low / 2
        if not (span > 0 and math.isfinite(span)):
            return [self.low]
        distance = span / _TICKS * 2  # not of all: the span of the largest numbers is infinite
        power = 10.0 ** math.floor(math.log10(distance))
        step = next(power * k for k in (1, 2, 5, 10) if power * k >= distance)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [number * step for number in range(first, last + 1)]

    def powers(self) -> list[float]:
        """Return the ticks of logarithms: whole ones, and those of 2 and 5 on a short axis."""
        factors = (1, 2, 5) if self.high - self.low < _DECADES_MAX else (1,)
        decades = range(math.floor(self.low), math.ceil(self.high) + 1)
        ticks = [decade + math.log10(factor) for decade in decades for factor in factors]
        return [tick for tick in ticks if self.low <= tick <= self.high]


def draw_card(title: str, content: CardContent, look: Look) -> str:
    """Return the curves as an SVG file.

    Values that are not finite, and those below zero on a logarithmic axis, are gaps.
    """
    curves = content.curves
    drawn = [(curve.steps.astype(np.float64), _shape(curve.values, look)) for curve in curves]
    bands = [(_shape(lower, look), _shape(upper, look)) for lower, upper in content.bands]
    count = min(len(curves), _LEGEND_ENTRIES)
    columns = 2 if look.width >= _TWO_COLUMNS_MIN and count > 2 else 1  # noqa: PLR2004 - rows
    if content.values:  # long ones, of which few may have a row each
        longest = max(map(len, map("{} {}".format, [each.run for each in curves], content.values)))
        columns = 1 if count <= _ROWS_OF_ONE and longest > _count_chars(look, columns) else columns
    entries = _list_legend(content, _count_chars(look, columns))
    rows = [entries[start : start + columns] for start in range(0, len(entries), columns)]
    bottom = max(_TOP, look.height - _BOTTOM - len(rows) * _ROW_HEIGHT)
    x_axis = _Axis(
        *(find_range([steps for steps, _ in drawn]) or _NO_RANGE), _LEFT, look.width - _RIGHT
    )
    columns_of_y = [*(values for _, values in drawn), *chain(*bands)]
    y_axis = _Axis(*(find_range(columns_of_y) or _NO_RANGE), bottom, _TOP)
    title, note = _clip(title), ""
    note_chars = _count_chars(look, 1) - len(title) - 2
    if content.note and note_chars >= _NOTE_CHARS_MIN:
        note = _clip(content.note, note_chars)
    return TEMPLATES.render(
        "card.svg",
        look=look,
        left=_LEFT,
        right=look.width - _RIGHT,
        bottom=round(bottom),
        title=title,
        note=note,
        x_ticks=_list_ticks(x_axis, x_axis.ticks()),
        y_ticks=_list_ticks(
            y_axis,
            y_axis.powers() if look.is_logarithmic else y_axis.ticks(),
            is_power=look.is_logarithmic,
        ),
        areas=[
            (colour, outline(x_axis.place(steps), y_axis.place(lower), y_axis.place(upper)))
            for colour, (steps, _), (lower, upper) in zip(cycle(_COLOURS), drawn, bands)
        ],
        lines=[
            (colour, split_at_gaps(x_axis.place(steps), y_axis.place(values)))
            for colour, (steps, values) in zip(cycle(_COLOURS), drawn)
        ],
        legend=_place_legend(rows, bottom + _BOTTOM, look),
    )


def _shape(values: Float64s, look: Look) -> Float64s:
    """Return the values as they are drawn."""
    finite = np.where(np.isfinite(values), values, np.nan)
    if look.smoothing:
        finite = _smooth(finite, look.smoothing)
    if look.is_logarithmic:
        with np.errstate(divide="ignore", invalid="ignore"):
            finite = np.where(finite > 0, np.log10(finite), np.nan)
    return finite


def _smooth(values: Float64s, weight: float) -> Float64s:
    """Return the debiased exponential moving average that TensorBoard draws; gaps stay gaps."""
    smoothed = np.full(len(values), np.nan)
    last = 0.0
    for count, index in enumerate(np.flatnonzero(np.isfinite(values)).tolist(), 1):
        last = last * weight + (1 - weight) * float(values[index])
        smoothed[index] = last / (1 - weight**count)
    return smoothed


def _list_ticks(
    axis: _Axis, ticks: Sequence[float], *, is_power: bool = False
) -> list[tuple[str, float]]:
    """Return text and position of each tick; with `is_power`, ticks are logarithms."""
    texts = format_ticks([10.0**tick for tick in ticks] if is_power else ticks)
    return list(zip(texts, axis.place(np.array(ticks)).tolist(), strict=True))


def _count_chars(look: Look, columns: int) -> int:
    """Return how many characters have room beside each other, in each of some columns."""
    return round((look.width - _LEFT - _RIGHT) / columns - _SWATCH) // _CHAR_WIDTH


def _list_legend(content: CardContent, chars: int) -> list[tuple[str, str]]:
    """Return colour and text of each entry of the legend; those of groups fit into `chars`."""
    curves, hidden = content.curves, content.hidden
    values = content.values or [_last(curve.values) for curve in curves]
    shown = list(zip(curves, values, strict=True))[:_LEGEND_ENTRIES]
    room = [max(8, chars - len(value) - 2) if content.values else _NAME_CHARS for value in values]
    entries = [
        (_COLOURS[number % len(_COLOURS)], f"{_clip(curve.run, room[number])}  {value}")
        for number, (curve, value) in enumerate(shown)
    ]
    if more := len(curves) - len(entries) + hidden:
        entries.append(("none", f"and {more} more" + (f", {hidden} not drawn" if hidden else "")))
    return entries


def _place_legend(
    rows: Sequence[Sequence[tuple[str, str]]], top: int, look: Look
) -> list[tuple[int, int, str, str]]:
    """Return position, colour and text of each entry."""
    width = (look.width - _LEFT - _RIGHT) / max(map(len, rows), default=1)
    return [
        (_LEFT + round(column * width), top + row * _ROW_HEIGHT, colour, text)
        for row, entries in enumerate(rows)
        for column, (colour, text) in enumerate(entries)
    ]


def _last(values: Float64s) -> str:
    return format_figure(float(values[-1])) if len(values) else ""


def _clip(text: str, chars: int = _NAME_CHARS) -> str:
    # XML has no control characters: a name with one would be no picture at all.
    text = "".join(letter if letter >= " " else "�" for letter in text)
    return text if len(text) <= chars else f"{text[: chars - 1]}…"
