"""The HParams dashboard's handlers, for comparisons too, with lean reads.

The stock ones describe every scalar series to look at its name, and know of one schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from tensorboard.context import RequestContext
from tensorboard.data import provider
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import backend_context
from tensorboard.plugins.hparams.hparams_plugin import HParamsPlugin
from tensorboard.plugins.scalar import metadata as scalar_metadata

from tbservice.reading.comparison import ComparisonReader
from tbservice.reading.source import Source
from tbservice.tensorboard.compare.hparams import merge_schemas
from tbservice.tensorboard.provider import READER_KEY
from tbservice.types import DataClass, Selection

_SCALARS = scalar_metadata.PLUGIN_NAME


class LeanHParamsPlugin(HParamsPlugin):  # type: ignore[misc] # tensorboard has no annotations
    """The stock plugin: its rules and its words, over `LeanContext`."""

    def __init__(self, context: TBContext) -> None:
        super().__init__(context)
        self._context = LeanContext(context)


class LeanContext(backend_context.Context):  # type: ignore[misc] # tensorboard has no annotations
    """Reads names instead of descriptions, and last values only if any are asked for."""

    def experiment_from_metadata(
        self,
        ctx: RequestContext,
        experiment_id: str,
        include_metrics: bool,
        hparams_run_to_tag_to_content: Mapping[str, Mapping[str, bytes]],
        data_provider_hparams: Any,
        hparams_limit: int | None = None,
    ) -> Any:
        """The columns: in a comparison those of all schemas, of which the stock method takes the first alone."""
        source: Source = ctx.auth.get(READER_KEY)
        content = hparams_run_to_tag_to_content
        if not isinstance(source, ComparisonReader):
            stock_arguments = (
                experiment_id,
                include_metrics,
                content,
                data_provider_hparams,
                hparams_limit,
            )
            return super().experiment_from_metadata(ctx, *stock_arguments)
        by_part: dict[str, dict[str, Mapping[str, bytes]]] = {name: {} for name in source.readers}
        for run, tags in content.items():
            by_part[source.experiment_name_of(run)][run] = tags
        declared = {
            name: self._find_experiment_tag(runs, include_metrics) for name, runs in by_part.items()
        }
        others = {
            run: tags
            for run, tags in content.items()
            if declared[source.experiment_name_of(run)] is None
        }
        computed = self._compute_experiment_from_runs(ctx, experiment_id, include_metrics, others)
        united = merge_schemas(
            [schema for schema in (*declared.values(), computed) if schema is not None]
        )
        backend_context._sort_and_reduce_to_hparams_limit(united, hparams_limit)  # noqa: SLF001 - the stock order
        return united

    def scalars_metadata(self, ctx: RequestContext, experiment_id: str) -> Mapping[str, Any]:
        """Each run's scalar tags. The stock method maps tags to their metadata, at which nobody looks."""
        source: Source = ctx.auth.get(READER_KEY)
        if source.experiment_id != experiment_id:
            tags: Mapping[str, Any] = super().scalars_metadata(ctx, experiment_id)
            return tags
        tags_by_run: dict[str, list[str]] = {}
        for group in source.list_tag_groups([(_SCALARS, DataClass.SCALAR)]):
            tags_by_run.setdefault(group.run, []).extend(
                group.tags
            )  # a run may have as many groups as tags
        return tags_by_run

    def read_last_scalars(
        self, ctx: RequestContext, experiment_id: str, run_tag_filter: provider.RunTagFilter | None
    ) -> Mapping[str, Mapping[str, provider.ScalarDatum]]:
        """The last point of each series, read when the first of them is asked for."""
        source: Source = ctx.auth.get(READER_KEY)
        if source.experiment_id != experiment_id:
            points: Mapping[str, Any] = super().read_last_scalars(
                ctx, experiment_id, run_tag_filter
            )
            return points
        return _LastPoints(source, run_tag_filter)


class _LastPoints(Mapping[str, Mapping[str, provider.ScalarDatum]]):
    """{run: {tag: last point}}, read when first looked at: without sessions nobody looks."""

    def __init__(self, source: Source, chosen: provider.RunTagFilter | None) -> None:
        self._source = source
        self._selection = Selection(
            plugin=_SCALARS,
            runs=None if chosen is None else chosen.runs,
            tags=None if chosen is None else chosen.tags,
            data_class=DataClass.SCALAR,
        )

    @cached_property
    def _points(self) -> dict[str, dict[str, provider.ScalarDatum]]:
        found = self._source.list_last_points(self._selection)
        return {
            run: {tag: provider.ScalarDatum(*point) for tag, point in tags.items()}
            for run, tags in found.items()
        }

    def __getitem__(self, run: str) -> Mapping[str, provider.ScalarDatum]:
        return self._points[run]

    def __iter__(self) -> Iterator[str]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)
