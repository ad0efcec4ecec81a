"""Small curves as SVG, which pages contain."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np
from markupsafe import Markup

from tbservice.pages.base.templates import format_figure
from tbservice.pages.experiments.plotting import (
    find_range,
    outline,
    place,
    split_at_gaps,
)
from tbservice.reading.curves import Chart
from tbservice.types.identifiers import Float64s

_WIDTH: Final = 160
_HEIGHT: Final = 36
_MARGIN: Final = 2

_SVG: Final = Markup(
    '<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}" '
    'preserveAspectRatio="none">{}</svg>'
)
_LINE: Final = Markup('<polyline class="{}-{}" points="{}"/>')
_BAND: Final = Markup('<polygon class="{}-{}" points="{}"/>')
_DOT: Final = Markup('<circle class="{}-{}" cx="{}" cy="{}" r="2"/>')


def draw_chart(
    chart: Chart,
    kind: str = "spark",
    colors: Sequence[int] | None = None,
    bands: Sequence[tuple[Float64s, Float64s]] = (),
) -> Markup:
    """Return the curves on common axes, as an image with a text; "" if no value is finite.

    Gaps of values that are not finite remain gaps.

    Args:
        chart: The curves.
        kind: Class of the image, and the beginning of those of its lines.
        colors: For each curve, the end of its line's class; by default its position.
        bands: For each curve, the lower and the upper bounds of a band, or none at all.
    """
    curves = chart.curves
    steps = [curve.steps.astype(np.float64) for curve in curves]
    y_range = find_range([*(curve.values for curve in curves), *itertools.chain(*bands)])
    x_range = find_range(steps)
    if x_range is None or y_range is None:
        return Markup("")
    places = [place(each, *x_range, _MARGIN, _WIDTH - _MARGIN) for each in steps]
    numbers = range(len(curves)) if colors is None else colors
    drawn = Markup("").join(
        _fill(kind, numbers[index], places[index], *(_rise(bound, y_range) for bound in bounds))
        for index, bounds in enumerate(bands)
    )
    drawn += Markup("").join(
        _draw(kind, numbers[index], places[index], _rise(curve.values, y_range))
        for index, curve in reversed(list(enumerate(curves)))
    )
    return _SVG.format(kind, _WIDTH, _HEIGHT, describe(chart), drawn)


def describe(chart: Chart) -> str:
    """Return what the curves show, in words."""
    newest, *others = chart.curves
    more = f" and {len(others)} more" if others else ""
    last = last_value(chart) or "unknown"
    return f"{chart.tag[:100]} of run {newest.run[:100]}{more}: last value {last}"


def last_value(chart: Chart) -> str:
    """Return the last value of the newest run; "" without points."""
    values = chart.curves[0].values
    return format_figure(float(values[-1])) if len(values) else ""


def _rise(values: Float64s, y_range: tuple[float, float]) -> Float64s:
    return place(values, *y_range, _HEIGHT - _MARGIN, _MARGIN)


def _fill(kind: str, color: int, xs: Float64s, lower: Float64s, upper: Float64s) -> Markup:
    """Return an area between the bounds for each part without a gap."""
    return Markup("").join(
        _BAND.format(kind, color, " ".join(points)) for points in outline(xs, lower, upper)
    )


def _draw(kind: str, color: int, xs: Float64s, ys: Float64s) -> Markup:
    return Markup("").join(
        _LINE.format(kind, color, " ".join(points))
        if len(points) > 1
        else _DOT.format(kind, color, *points[0].split(","))
        for points in split_at_gaps(xs, ys)
    )
