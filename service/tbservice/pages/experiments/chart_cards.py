"""Cards with curves on our own pages: tags, runs, plain pictures, and what the script needs.

Without JavaScript a card is an SVG of a few runs and a table. `static/charts.js` puts plots with
all runs of the page in their place, and asks the HTTP API for points.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup
from sqlalchemy import Connection

from tbservice.pages.experiments.sparkline import draw_chart
from tbservice.reading import catalog, curves
from tbservice.reading.curves import Chart, Curve
from tbservice.runs.group_bands import BandKind
from tbservice.types.grants import ReadGrant
from tbservice.types.sampling import Selection
from tbservice.types.series import Series
from tbwire.points import DataClass

CARD_ITEMS: Final = 12
"""Cards (items) on one page: one for each tag."""

CARD_CURVES_ITEMS_MAX: Final = 20
"""Runs (items) that one card as a picture draws: the first by name."""

CARD_RUNS_ITEMS_MAX: Final = 1_000
"""Runs (items) that the cards of a page draw; others by a search."""

PLAIN_RUNS_ITEMS_MAX: Final = 10
"""Runs (items) that the plain picture and the table of a card show: as many as have a colour."""

_PICTURE_CHARS_MAX: Final = 4_000
"""Characters of the address of a picture: of much longer ones, servers refuse to answer."""

_SEARCH_CHARS_MAX: Final = 200
_PAGE_MAX: Final = 1_000_000


Snapshot = Callable[[ReadGrant], AbstractContextManager[Connection]]


class ChartRun(NamedTuple):
    """A run that cards draw: position of its experiment, its name there, and the name to show."""

    source: int
    run: str
    label: str


class ChartSource(NamedTuple):
    """An experiment that cards draw runs of; `token` is for the script, None for none."""

    grant: ReadGrant
    token: str | None


class CardRow(NamedTuple):
    """A row of a card's table: the last point of a run."""

    run: str
    step: int
    value: float | None


class BandRow(NamedTuple):
    """A row of a card's table: the band of a group at its last step, and the runs that count."""

    group: str
    runs: int
    step: int
    center: float | None
    lower: float | None
    upper: float | None


class ChartCard(NamedTuple):
    """One tag: its plain picture, "" for none, and the last points of the runs or groups in it.

    `problem` says why the curves of groups are not computed.
    """

    tag: str
    picture: Markup
    rows: list[CardRow]
    bands: Sequence[BandRow] = ()
    problem: str = ""


class ShownGroups(NamedTuple):
    """Groups that cards show in place of runs: how, and the number of runs of each.

    `left_out` says that the runs are those of the newest experiments.
    """

    kind: BandKind
    runs: Sequence[int]
    left_out: bool


@dataclass(frozen=True, slots=True)
class ChartsAddress:
    """Address of a page with cards: texts to search, and the page of cards."""

    path: str
    tag: str = ""
    run: str = ""
    page: int = 1
    others: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """Position of the first card."""
        return (self.page - 1) * CARD_ITEMS

    def link(self, **changes: str | int) -> str:
        """Return the address with some values changed, of the first page."""
        values = {"tag": self.tag, "run": self.run, "page": 1} | changes
        shown = {
            name: value for name, value in values.items() if value and (name, value) != ("page", 1)
        }
        query = urlencode({**self.others, **shown}, doseq=True)
        return f"{self.path}?{query}" if query else self.path


def parse_charts_address(
    path: str, query: Mapping[str, str], others: Mapping[str, Sequence[str]] | None = None
) -> ChartsAddress:
    """Return what an address says; nonsense is as if it were absent."""
    text = query.get("page", "")
    page = int(text) if text.isascii() and text.isdigit() and len(text) < len(str(_PAGE_MAX)) else 1
    return ChartsAddress(
        path,
        query.get("tag", "").strip()[:_SEARCH_CHARS_MAX],
        query.get("run", "").strip()[:_SEARCH_CHARS_MAX],
        max(1, page),
        others or {},
    )


class PictureAddress(NamedTuple):
    """Address of the cards of a page as pictures: what is before their file, and the query."""

    path: str
    query: Mapping[str, Sequence[str]]

    def link(self, file: str, tag: str) -> str:
        """Return the address of `card.svg`, `card.png` or `embed` of a tag; "" for one too long."""
        query = urlencode({"tag": tag, **self.query}, doseq=True, errors="replace")
        address = f"{self.path}/{file}?{query}"
        return address if len(address) <= _PICTURE_CHARS_MAX else ""


@dataclass(slots=True)
class Charts:
    """The cards of a page, and of how many tags and runs they were chosen.

    With `groups`, `runs` are groups of runs. `pictures` says where the cards are as pictures;
    `running` counts the experiments that may have new points.
    """

    address: ChartsAddress
    cards: list[ChartCard]
    tags_total: int
    runs: list[ChartRun]
    runs_total: int
    config: dict[str, Any]
    groups: ShownGroups | None = None
    pictures: PictureAddress | None = None
    running: int = 0

    @property
    def is_distribution(self) -> bool:
        """Whether cards show quantiles of the runs of an experiment: too many to draw each."""
        return bool(self.config.get("is_distribution"))


def read_experiment_charts(db: Connection, source: ChartSource, address: ChartsAddress) -> Charts:
    """Return the cards of an experiment: as far as the source's grant shows it."""
    names, runs_total = curves.list_run_page(db, source.grant, address.run, CARD_RUNS_ITEMS_MAX)
    tags, tags_total = curves.list_tag_page(
        db, source.grant, address.tag, address.first, CARD_ITEMS
    )
    if not tags and address.page > 1:  # nothing tells how many there are before this page
        tags_total = curves.list_tag_page(db, source.grant, address.tag, 0, 1)[1]
    runs = [ChartRun(0, name, name) for name in names]
    has_all_runs = not address.run and runs_total == len(runs)
    charts = make_charts(
        lambda _: nullcontext(db),
        [source],
        runs,
        tags,
        address,
        (tags_total, runs_total),
        has_all_runs=has_all_runs,
    )
    charts.config["is_distribution"] = not address.run and runs_total > len(runs)
    shown: dict[str, list[str]] = {"run": names[:CARD_CURVES_ITEMS_MAX]} if address.run else {}
    if charts.is_distribution:
        shown = {"band": ["quartiles"]}
    charts.pictures = PictureAddress(f"/experiment/{source.grant.experiment_id}", shown)
    return charts


def make_charts(
    snapshot: Snapshot,
    sources: Sequence[ChartSource],
    runs: list[ChartRun],
    tags: Sequence[str],
    address: ChartsAddress,
    totals: tuple[int, int],
    *,
    has_all_runs: bool = False,
) -> Charts:
    """Return cards of these tags and runs.

    Args:
        snapshot: Opens a snapshot of what a source's grant reads.
        sources: The experiments of the runs.
        runs: Which runs, those first that plain pictures show.
        tags: Tags of this page.
        address: Address of the page.
        totals: Numbers of tags and of runs that there are.
        has_all_runs: Whether the runs are all of the experiment.
    """
    plain = runs[:PLAIN_RUNS_ITEMS_MAX]
    charts = _read_charts(snapshot, sources, plain, tags)
    rows = _list_rows(snapshot, sources, plain, tags)
    cards = [
        ChartCard(tag, _draw(charts[tag], plain) if tag in charts else Markup(""), rows[tag])
        for tag in tags
    ]
    config = {
        "sources": [
            {"id": source.grant.experiment_id, "token": source.token} for source in sources
        ],
        "runs": [{"source": run.source, "run": run.run, "label": run.label} for run in runs],
        "tags": list(tags),
        "has_all_runs": has_all_runs,
    }
    return Charts(address, cards, totals[0], runs, totals[1], config)


def _read_charts(
    snapshot: Snapshot,
    sources: Sequence[ChartSource],
    runs: Sequence[ChartRun],
    tags: Sequence[str],
) -> dict[str, list[tuple[int, Curve]]]:
    """Return the curves of each tag, each with the position of its run."""
    found: defaultdict[str, list[tuple[int, Curve]]] = defaultdict(list)
    for number, source in enumerate(sources):
        positions = {run.run: place for place, run in enumerate(runs) if run.source == number}
        if not positions or not tags:
            continue
        with snapshot(source.grant) as db:
            read = curves.read_run_charts(db, source.grant, tags, list(positions))
        for tag, chart in read.items():
            found[tag] += [(positions[curve.run], curve) for curve in chart.curves]
    return found


def _draw(placed: Sequence[tuple[int, Curve]], runs: Sequence[ChartRun]) -> Markup:
    ordered = sorted(placed, key=lambda each: each[0])
    drawn = [curve._replace(run=runs[place].label) for place, curve in ordered]
    return draw_chart(Chart("Curves", drawn), "plain", [place for place, _ in ordered])


def _list_rows(
    snapshot: Snapshot,
    sources: Sequence[ChartSource],
    runs: Sequence[ChartRun],
    tags: Sequence[str],
) -> dict[str, list[CardRow]]:
    """Return the last point of each run, by tag."""
    found: dict[tuple[int, str, str], Series] = {}
    for number, source in enumerate(sources):
        names = frozenset(run.run for run in runs if run.source == number)
        if names and tags:
            selection = Selection(None, names, frozenset(tags), DataClass.SCALAR)
            with snapshot(source.grant) as db:
                listed = catalog.list_series(db, source.grant, selection)
            found.update({(number, series.run, series.tag): series for series in listed})
    return {
        tag: [
            CardRow(run.label, last.last_step, last.last_value)
            for run in runs
            if (last := found.get((run.source, run.run, tag))) is not None
        ]
        for tag in tags
    }
