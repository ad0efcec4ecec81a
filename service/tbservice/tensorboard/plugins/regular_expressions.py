"""Stock handlers that match a user's regular expression, changed to use RE2 (`patterns`)."""

from __future__ import annotations

from typing import Any, Final

from tensorboard import plugin_util
from tensorboard.context import RequestContext
from tensorboard.data import provider
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar.custom_scalars_plugin import CustomScalarsPlugin
from tensorboard.plugins.scalar import metadata as scalar_metadata

from tbservice.errors import TooLarge
from tbservice.patterns import PatternSearches, compile_pattern
from tbservice.runs.grouped_reader import BANDS, KIND, GroupedReader
from tbservice.tensorboard.provider import READER_KEY

CUSTOM_SCALARS_TAGS_ITEMS_MAX: Final = 5_000
"""Items (tags of a run) that one chart of the Custom Scalars dashboard may show.

100,000 took a handler 20 s, and no page draws them.
"""

BAND_CHART_ITEMS_MAX: Final = 100
"""Items (charts) of each kind of band: those of the first metrics by name."""

_SAMPLE_POINTS: Final = 1_000
"""Points per series in a chart: `_DEFAULT_DOWNSAMPLING` of `plugins/scalar/scalars_plugin.py`."""


class SafeCustomScalarsPlugin(CustomScalarsPlugin):  # type: ignore[misc] # tensorboard has no annotations
    """The Custom Scalars plugin with RE2 for tag patterns, and one read for all matching tags."""

    def scalars_impl(
        self, ctx: RequestContext, run: str, tag_regex_string: str | None, experiment: str
    ) -> dict[str, object]:
        """Return the points of the run's scalar series with a match at the start of their tags.

        As the stock method: {"regex_valid", "tag_to_events": {tag: [(wall time, step, value)]}}.
        Raises TooLarge for a pattern and tags that take too many steps, and for too many matches:
        the answer has no place to say that some are left out.
        """
        pattern = _find_pattern(tag_regex_string)
        if pattern is None:
            return {"regex_valid": False, "tag_to_events": {}}
        searches = PatternSearches()
        tags = [
            tag
            for tag in self._list_tags(ctx, run, experiment)
            if searches.has_match_at_start(pattern, tag)
        ]
        if len(tags) > CUSTOM_SCALARS_TAGS_ITEMS_MAX:
            limit = f"{CUSTOM_SCALARS_TAGS_ITEMS_MAX} (custom_scalars_tags_items_max)"
            raise TooLarge(
                f"the chart's pattern matches {len(tags)} tags of this run, over the limit of "
                f"{limit}: none are shown; let the layout name fewer tags"
            )
        return {"regex_valid": True, "tag_to_events": self._events(ctx, experiment, run, tags)}

    def layout_impl(self, ctx: RequestContext, experiment: str) -> dict[str, object]:
        """Return the layout that the runs logged; of groups of runs, charts of their bands."""
        source = ctx.auth.get(READER_KEY)
        if isinstance(source, GroupedReader):
            return _make_band_layout(source)
        layout: dict[str, object] = super().layout_impl(ctx, experiment)
        return layout

    def _list_tags(self, ctx: RequestContext, run: str, experiment: str) -> list[str]:
        source = ctx.auth.get(READER_KEY)
        if isinstance(source, GroupedReader):
            return source.list_tags(run)
        listed = self._data_provider.list_scalars(
            ctx,
            experiment_id=experiment,
            plugin_name=scalar_metadata.PLUGIN_NAME,
            run_tag_filter=provider.RunTagFilter(runs=[run]),
        )
        return list(listed.get(run, {}))

    def _events(
        self, ctx: RequestContext, experiment: str, run: str, tags: list[str]
    ) -> dict[str, list[tuple[float, int, float]]]:
        samples = self._data_provider.read_scalars(
            ctx,
            experiment_id=experiment,
            plugin_name=scalar_metadata.PLUGIN_NAME,
            downsample=_SAMPLE_POINTS,
            run_tag_filter=provider.RunTagFilter(runs=[run], tags=tags),
        )
        return {
            tag: [(point.wall_time, point.step, point.value) for point in points]
            for tag, points in samples.get(run, {}).items()
        }


def _make_band_layout(source: GroupedReader) -> dict[str, object]:
    """Return a category for each kind of band: a margin chart for each of the first metrics."""
    metrics = sorted({tag for group in source.list_tag_groups([KIND]) for tag in group.tags})
    layout = layout_pb2.Layout()
    for index, band in enumerate(BANDS):
        category = layout.category.add(title=band.title, closed=index > 0)
        for metric in metrics[:BAND_CHART_ITEMS_MAX]:
            chart = category.chart.add(title=metric)
            chart.margin.series.add(
                value=metric, lower=metric + band.lower, upper=metric + band.upper
            )
    content: dict[str, object] = plugin_util.proto_to_json(layout)
    return content


def _find_pattern(text: str | None) -> Any | None:
    try:
        return compile_pattern(text) if text else None
    except ValueError:
        return None
