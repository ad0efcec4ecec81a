"""Cards that show groups of runs: a line and a band for each group, computed with the page.

A page's script has a token for each experiment and none for the workspace: the page has the numbers
of the groups, and its script asks `/runs/compare/groups` for them when they have changed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from tbservice.pages.experiments.chart_cards import (
    BandRow,
    ChartCard,
    ChartRun,
    Charts,
    ChartsAddress,
    ShownGroups,
)
from tbservice.pages.experiments.sparkline import draw_chart
from tbservice.reading.curves import Chart, Curve
from tbservice.runs.group_bands import BAND_KINDS, BandCurve, DrawnGroups
from tbservice.types.identifiers import Float64s
from tbservice.types.sampling import ALL_STEPS, StepRange

_DIGITS: Final = 6
"""Significant digits of the numbers in a page, which are drawn and read by people."""


def make_group_charts(
    drawn: DrawnGroups,
    found: Mapping[str, list[BandCurve] | str],
    tags: tuple[list[str], int],
    kind: str,
    address: ChartsAddress,
) -> Charts:
    """Return cards of the groups.

    Args:
        drawn: The groups.
        found: Their curves, as `read_bands` returns them.
        tags: The tags of this page, and how many there are on all pages.
        kind: One of BAND_KINDS.
        address: Address of the page.
    """
    shown, tags_total = tags
    center = BAND_KINDS[kind].center
    cards = [_make_card(tag, found[tag], drawn.names, center) for tag in shown]
    runs = [ChartRun(0, name, name) for name in drawn.names]
    config = {
        "sources": [],
        "has_all_runs": True,
        "runs": [{"source": run.source, "run": run.run, "label": run.label} for run in runs],
        "tags": shown,
        "groups": {
            "title": BAND_KINDS[kind].title,
            "is_deviation": kind.startswith("std"),
            "cards": _encode_cards(found, shown),
        },
    }
    groups = ShownGroups(BAND_KINDS[kind], drawn.runs, drawn.chosen.left_out)
    return Charts(address, cards, tags_total, runs, drawn.total, config, groups)


def parse_steps(query: Mapping[str, str]) -> StepRange:
    """Return the range of steps of a zoom, `step_min` and `step_max`; nonsense is no bound."""
    return StepRange(
        *(
            int(text) if re.fullmatch(r"-?\d{1,18}", text := query.get(name, "")) else default
            for name, default in (("step_min", ALL_STEPS.first), ("step_max", ALL_STEPS.last))
        )
    )


def encode_groups(
    drawn: DrawnGroups, found: Mapping[str, list[BandCurve] | str], tags: Sequence[str]
) -> dict[str, Any]:
    """Return names, numbers of runs and curves of groups as they are now, for the script."""
    return {"names": drawn.names, "runs": drawn.runs, "cards": _encode_cards(found, tags)}


def _encode_cards(
    found: Mapping[str, list[BandCurve] | str], tags: Sequence[str]
) -> list[list[dict[str, Any]]]:
    """Return the curves of each tag as JSON, for the script."""
    return [[_encode(curve) for curve in _curves_of(found[tag])] for tag in tags]


def _curves_of(found: list[BandCurve] | str) -> list[BandCurve]:
    return [] if isinstance(found, str) else found


def _make_card(tag: str, found: list[BandCurve] | str, names: list[str], center: str) -> ChartCard:
    curves = _curves_of(found)
    drawn = [Curve(names[each.group], each.steps, each.center) for each in curves]
    bands = [(each.lower, each.upper) for each in curves]
    picture = Markup("")
    if drawn:
        places = [each.group for each in curves]
        picture = draw_chart(Chart(center, drawn), "plain", places, bands)
    rows = [
        BandRow(
            names[each.group],
            int(each.counts[-1]),
            int(each.steps[-1]),
            *(_finite(column[-1]) for column in (each.center, each.lower, each.upper)),
        )
        for each in curves
    ]
    return ChartCard(tag, picture, [], rows, found if isinstance(found, str) else "")


def _encode(curve: BandCurve) -> dict[str, Any]:
    return {
        "group": curve.group,
        "runs": curve.runs,
        "total": curve.total,
        "steps": curve.steps.tolist(),
        "counts": curve.counts.tolist(),
        "walls": list(map(_finite, curve.walls.round(3).tolist())),
        **{name: _round(getattr(curve, name)) for name in ("center", "lower", "upper")},
    }


def _round(numbers: Float64s) -> list[float | None]:
    return [
        None if value is None else float(f"{value:.{_DIGITS}g}") for value in map(_finite, numbers)
    ]


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
