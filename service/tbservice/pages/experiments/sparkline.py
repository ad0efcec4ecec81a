"""Small curves as SVG, which pages contain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from markupsafe import Markup

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
_DOT: Final = Markup('<circle class="{}-{}" cx="{}" cy="{}" r="2"/>')


def draw_chart(chart: Chart, kind: str = "spark", colors: Sequence[int] | None = None) -> Markup:
    """Return the curves on common axes, as an image with a text; "" if no value is finite.

    Gaps of values that are not finite remain gaps.

    Args:
        chart: The curves.
        kind: Class of the image, and the beginning of those of its lines.
        colors: For each curve, the end of its line's class; by default its position.
    """
    curves = chart.curves
    finite = [curve.values[np.isfinite(curve.values)] for curve in curves]
    present = [values for values in finite if len(values)]
    if not present:
        return Markup("")
    steps = np.concatenate([curve.steps for curve in curves]).astype(np.float64)
    low, high = min(map(np.min, present)), max(map(np.max, present))
    drawn = Markup("").join(
        _draw(
            kind,
            index if colors is None else colors[index],
            _scale(curve.steps.astype(np.float64), steps.min(), steps.max(), _WIDTH),
            _HEIGHT - _scale(curve.values, low, high, _HEIGHT),
        )
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
    return _number(float(values[-1])) if len(values) else ""


def _scale(numbers: Float64s, low: float, high: float, size: int) -> Float64s:
    """Return numbers from [low, high] as positions within the margins of an axis."""
    inner = size - 2 * _MARGIN
    if not high > low:
        return np.where(np.isfinite(numbers), size / 2, np.nan)
    # Halves: the difference of two large numbers may be infinite.
    fraction = (numbers / 2 - low / 2) / (high / 2 - low / 2)
    return _MARGIN + inner * np.asarray(fraction, np.float64)


def _draw(kind: str, color: int, xs: Float64s, ys: Float64s) -> Markup:
    parts: list[Markup] = []
    points: list[str] = []
    for x, y in zip([*xs.tolist(), math.nan], [*ys.tolist(), math.nan], strict=True):
        if math.isfinite(x) and math.isfinite(y):
            points.append(f"{x:.1f},{y:.1f}")
        elif points:
            is_line = len(points) > 1
            parts.append(
                _LINE.format(kind, color, " ".join(points))
                if is_line
                else _DOT.format(kind, color, *points[0].split(","))
            )
            points = []
    return Markup("").join(parts)


def _number(value: float) -> str:
    return f"{value:.4g}"
