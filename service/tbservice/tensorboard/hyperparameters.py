"""The HParams dashboard's handlers with lean reads: the stock ones describe every scalar series to look at its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from tensorboard.context import RequestContext
from tensorboard.data import provider
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams.backend_context import Context
from tensorboard.plugins.hparams.hparams_plugin import HParamsPlugin
from tensorboard.plugins.scalar import metadata as scalar_metadata

from tbservice.domain import listing
from tbservice.tensorboard.provider import READER_KEY, Reader
from tbservice.types import DataClass, Selection

_SCALARS = scalar_metadata.PLUGIN_NAME


class LeanHParamsPlugin(HParamsPlugin):  # type: ignore[misc] # tensorboard has no annotations
    """The stock plugin: its rules and its words, over `LeanContext`."""

    def __init__(self, context: TBContext) -> None:
        super().__init__(context)
        self._context = LeanContext(context)


class LeanContext(Context):  # type: ignore[misc] # tensorboard has no annotations
    """Reads names instead of descriptions, and last values only if any are asked for."""

    def scalars_metadata(self, ctx: RequestContext, experiment_id: str) -> Mapping[str, Any]:
        """Each run's scalar tags. The stock method maps tags to their metadata, at which nobody looks."""
        reader: Reader = ctx.auth.get(READER_KEY)
        if reader.grant.experiment_id != experiment_id:
            tags: Mapping[str, Any] = super().scalars_metadata(ctx, experiment_id)
            return tags
        with reader.database.snapshot(reader.grant.workspace_id) as db:
            groups = listing.list_tag_groups(db, reader.grant, [(_SCALARS, DataClass.SCALAR)])
        found: dict[str, tuple[str, ...]] = {}
        for group in groups:
            found[group.run] = found.get(group.run, ()) + group.tags
        return found

    def read_last_scalars(
        self, ctx: RequestContext, experiment_id: str, run_tag_filter: provider.RunTagFilter | None
    ) -> Mapping[str, Mapping[str, provider.ScalarDatum]]:
        """The last point of each series, read when the first of them is asked for."""
        reader: Reader = ctx.auth.get(READER_KEY)
        if reader.grant.experiment_id != experiment_id:
            points: Mapping[str, Any] = super().read_last_scalars(ctx, experiment_id, run_tag_filter)
            return points
        return _LastPoints(reader, run_tag_filter)


class _LastPoints(Mapping[str, Mapping[str, provider.ScalarDatum]]):
    """{run: {tag: last point}}, read when first looked at: without sessions nobody looks."""

    def __init__(self, reader: Reader, chosen: provider.RunTagFilter | None) -> None:
        self._reader = reader
        self._selection = Selection(
            plugin=_SCALARS,
            runs=None if chosen is None else chosen.runs,
            tags=None if chosen is None else chosen.tags,
            data_class=DataClass.SCALAR,
        )

    @cached_property
    def _points(self) -> dict[str, dict[str, provider.ScalarDatum]]:
        with self._reader.database.snapshot(self._reader.grant.workspace_id) as db:
            found = listing.list_last_points(db, self._reader.grant, self._selection)
        points: dict[str, dict[str, provider.ScalarDatum]] = {}
        for one in found:
            points.setdefault(one.run, {})[one.tag] = provider.ScalarDatum(one.step, one.wall_time, one.value)
        return points

    def __getitem__(self, run: str) -> Mapping[str, provider.ScalarDatum]:
        return self._points[run]

    def __iter__(self) -> Iterator[str]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)
