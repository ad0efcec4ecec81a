"""Content of a card: curves of runs of one or several experiments, or of groups of runs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from fastapi import Request

from tbservice.api.http.dependencies import get_database, get_object_store
from tbservice.auth import grants
from tbservice.errors import Forbidden, Invalid, NotFound, ServiceError, TooLarge, Unauthenticated
from tbservice.pages.base.templates import format_figure
from tbservice.pages.experiments.chart_cards import CARD_CURVES_ITEMS_MAX
from tbservice.pages.stock_page import page_auth
from tbservice.pages.stock_page.link_preview import is_picture
from tbservice.reading import comparison_spec
from tbservice.reading.comparison import ComparisonReader, Source, name_in_comparison
from tbservice.reading.curves import Curve, list_tag_page, rank_tags
from tbservice.reading.source import ExperimentReader
from tbservice.runs.columns import split_names
from tbservice.runs.group_bands import (
    BAND_KINDS,
    DEFAULT_BAND,
    BandCurve,
    DrawnGroups,
    group_selected,
    read_bands,
)
from tbservice.runs.grouped_reader import format_value, scan_of_readers
from tbservice.runs.grouping import RUN_PATTERN, GroupBy
from tbservice.runs.selected_runs import select_of_readers
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import Float64s
from tbservice.types.sampling import ALL_STEPS, Selection, StepRange
from tbwire.mean_text import format_mean
from tbwire.points import DataClass

CARD_POINTS: Final = 500
"""Points of one curve on a card."""


_NOT_THIS: Final = (Unauthenticated, NotFound)
"""Errors of a token that does not open an experiment, but may open another one."""


class CardChoice(NamedTuple):
    """The runs of a card: named ones or those of a filter, and what they are grouped by.

    `group` has columns with commas between; `pattern` is as in `GroupBy`. With `band` alone, all
    runs are one group.
    """

    runs: Sequence[str] = ()
    where: str = ""
    group: str = ""
    pattern: str | None = None
    band: str | None = None

    @property
    def has_groups(self) -> bool:
        """Whether groups are drawn in place of runs."""
        return bool(self.group) or self.pattern is not None or self.band is not None

    @property
    def kind(self) -> str:
        """Kind of the bands of groups."""
        return self.band or DEFAULT_BAND


class CardContent(NamedTuple):
    """Curves in the order of their colours, with what a card says of them.

    `hidden` runs or groups more have the tag. `bands` has lower and upper bounds of each curve,
    `values` its last value in words; none of runs. `note` says what lines and bands are.
    """

    curves: Sequence[Curve]
    hidden: int
    bands: Sequence[tuple[Float64s, Float64s]] = ()
    values: Sequence[str] = ()
    note: str = ""


def _grant_by_address(
    request: Request, experiment_id: str, tokens: Sequence[str]
) -> tuple[ReadGrant, str]:
    """Return the first of an address's tokens that opens the experiment, and its right.

    Raises Forbidden for a token that is no share link's, and as `grants.grant_read_by_token`.
    """
    problem: ServiceError | None = None
    for token in tokens:
        try:
            with get_database(request).transaction() as db:
                if is_picture(request):
                    return grants.grant_preview(db, experiment_id, token), token
                grant, is_link = grants.grant_read_by_token(db, experiment_id, token)
        except _NOT_THIS as error:
            problem = problem or error
            continue
        if not is_link:
            raise Forbidden(
                "an address is kept and passed on: only a share link's token may be in it"
            )
        return grant, token
    raise problem or Unauthenticated("the address has no token")


def open_source(request: Request, tokens: Sequence[str]) -> Source:
    """Return a reader of the experiment, or of those of the comparison, in the request's path.

    Each is read by a token of the address, else as `page_auth.open_source` does, whose errors are
    raised; of a comparison, one experiment suffices.
    """
    found = []
    for experiment_id, cookie_token in page_auth.list_page_tokens(request):
        opened = open_by_address(request, experiment_id, tokens)
        if opened is None:
            found.append(page_auth.read_grant(request, experiment_id, cookie_token))
        else:
            found.append(opened[0])
    return make_source(request, found)


def make_source(request: Request, found: Sequence[ReadGrant]) -> Source:
    """Return a reader of the experiments in the request's path by these rights."""
    database, objects = get_database(request), get_object_store(request)
    readers = [ExperimentReader(grant, database, objects) for grant in found]
    text = request.path_params.get("comparison")
    if text is None:
        return readers[0]
    names = [each.name for each in comparison_spec.parse(text, 1)]
    return ComparisonReader(text, dict(zip(names, readers, strict=True)))


def open_by_address(
    request: Request, experiment_id: str, tokens: Sequence[str]
) -> tuple[ReadGrant, str] | None:
    """Return the right of the address's tokens, and the one that has it; None for none of them.

    Of a comparison, the tokens may open some experiments only. Raises as `_grant_by_address`.
    """
    if not tokens:
        return None
    try:
        return _grant_by_address(request, experiment_id, tokens)
    except _NOT_THIS:
        if "comparison" in request.path_params:
            return None
        raise


def share_key(source: Source, *asked: object) -> Hashable:
    """Return a key of `SharedWork` for what is asked of a source, the same for equal rights."""
    rights = tuple(replace(each.grant, user_id=None) for each in list_readers(source).values())
    return source.experiment_id, rights, repr(asked)


def list_readers(source: Source) -> Mapping[str, ExperimentReader]:
    """Return the readers of a source's experiments, by the prefix of their runs; "" for one."""
    return source.readers if isinstance(source, ComparisonReader) else {"": source}


def find_first_tag(source: Source, runs: Sequence[str]) -> str:
    """Return the scalar tag to draw first, of some runs or of all. Raises NotFound for none."""
    if runs:
        selection = Selection(runs=frozenset(runs), data_class=DataClass.SCALAR)
        tags = {series.tag for series in source.list_series(selection)}
    else:
        tags = {
            tag
            for reader in list_readers(source).values()
            for tag in reader.read(list_tag_page, "", 0, 1)[0]
        }
    if not tags:
        raise NotFound("there are no scalars")
    return rank_tags(tags)[0]


def read_card(source: Source, tag: str, choice: CardChoice) -> CardContent:
    """Return the curves of a scalar tag.

    Raises:
        NotFound: No run that was chosen has the tag.
        Invalid: Runs of groups are named, or a filter or a column is wrong.
        TooLarge: Groups have too many points.
    """
    return (
        _read_groups(source, tag, choice) if choice.has_groups else _read_runs(source, tag, choice)
    )


def _read_runs(source: Source, tag: str, choice: CardChoice) -> CardContent:
    runs = frozenset(choice.runs) or None
    selection = Selection(runs=runs, tags=frozenset([tag]), data_class=DataClass.SCALAR)
    names = {series.run for series in source.list_series(selection)}
    if choice.where:
        names &= select_names(source, choice.where)
    if not names:
        raise NotFound("no run that is chosen has this scalar tag")
    shown = sorted(names)[:CARD_CURVES_ITEMS_MAX]
    selection = Selection(runs=frozenset(shown), tags=frozenset([tag]), data_class=DataClass.SCALAR)
    samples = sorted(source.read_scalars(selection, CARD_POINTS), key=lambda each: each[0].run)
    curves = [Curve(series.run, sample.steps, sample.values) for series, sample in samples]
    return CardContent(curves, len(names) - len(shown))


def select_names(source: Source, where: str) -> set[str]:
    """Return the names of the runs that a filter selects, as the source has them."""
    readers = list_readers(source)
    chosen = select_of_readers(list(readers.values()), where)
    prefixes = list(readers)
    return {
        name_in_comparison(prefixes[index], name) if prefixes[index] else name
        for index, places in chosen.runs.split(np.flatnonzero(chosen.selected))
        for name in (chosen.runs.parts[index].names[place] for place in places.tolist())
    }


def _read_groups(source: Source, tag: str, choice: CardChoice) -> CardContent:
    drawn, bands = read_group_curves(source, tag, choice)
    if not bands:
        drawn.chosen.known.check_metric(tag, "tag")
        raise NotFound("no run that is chosen has this scalar tag")
    curves = [Curve(_name(drawn, each.group), each.steps, each.center) for each in bands]
    by = ", ".join("part of name" if name == RUN_PATTERN else name for name in drawn.columns)
    return CardContent(
        curves,
        drawn.total - len(drawn.names),
        [(each.lower, each.upper) for each in bands],
        [_describe(each, choice.kind) for each in bands],
        f"{BAND_KINDS[choice.kind].title} by {by}" if by else BAND_KINDS[choice.kind].title,
    )


def read_group_curves(
    source: Source, tag: str, choice: CardChoice, steps: StepRange = ALL_STEPS
) -> tuple[DrawnGroups, list[BandCurve]]:
    """Return the groups of the chosen runs, and their curves of a tag. Raises as `read_card`."""
    if choice.runs:
        raise Invalid("run: the runs of groups are those of a filter: write where=FILTER")
    readers = list(list_readers(source).values())
    group_by = GroupBy(split_names(choice.group), choice.pattern)
    drawn = group_selected(select_of_readers(readers, choice.where), group_by)
    found = read_bands(scan_of_readers(readers), drawn, [tag], choice.kind, steps)[tag]
    if isinstance(found, str):
        raise TooLarge(found)
    return drawn, found


def _name(drawn: DrawnGroups, group: int) -> str:
    """Return the values of a group; the note of the card has the columns."""
    values = [format_value(column[group]) for column in drawn.columns.values()]
    return ", ".join(values) or drawn.names[group]


def _describe(curve: BandCurve, band: str) -> str:
    """Return the last values of a group in words."""
    last = [float(column[-1]) for column in (curve.center, curve.lower, curve.upper)]
    count = int(curve.counts[-1])
    if band.startswith("std"):
        return format_mean(last[0] if count else None, last[2] - last[0], count)
    center, lower, upper = map(format_figure, last)
    return f"{center}, {lower} to {upper} ({count})"
