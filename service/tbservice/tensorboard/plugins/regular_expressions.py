"""Stock handlers that match a user's regular expression, changed to use RE2 (`patterns`)."""

from __future__ import annotations

from typing import Any, Final

from tensorboard.context import RequestContext
from tensorboard.data import provider
from tensorboard.plugins.custom_scalar.custom_scalars_plugin import CustomScalarsPlugin
from tensorboard.plugins.scalar import metadata as scalar_metadata

from tbservice.errors import TooLarge
from tbservice.patterns import PatternSearches, compile_pattern

CUSTOM_SCALARS_TAGS_ITEMS_MAX: Final = 5_000
"""Items (tags of a run) that one chart of the Custom Scalars dashboard may show.

100,000 took a handler 20 s, and no page draws them.
"""

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
        listed = self._data_provider.list_scalars(
            ctx,
            experiment_id=experiment,
            plugin_name=scalar_metadata.PLUGIN_NAME,
            run_tag_filter=provider.RunTagFilter(runs=[run]),
        )
        searches = PatternSearches()
        tags = [tag for tag in listed.get(run, {}) if searches.has_match_at_start(pattern, tag)]
        if len(tags) > CUSTOM_SCALARS_TAGS_ITEMS_MAX:
            limit = f"{CUSTOM_SCALARS_TAGS_ITEMS_MAX} (custom_scalars_tags_items_max)"
            raise TooLarge(
                f"the chart's pattern matches {len(tags)} tags of this run, over the limit of "
                f"{limit}: none are shown; let the layout name fewer tags"
            )
        return {"regex_valid": True, "tag_to_events": self._events(ctx, experiment, run, tags)}

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


def _find_pattern(text: str | None) -> Any | None:
    try:
        return compile_pattern(text) if text else None
    except ValueError:
        return None
