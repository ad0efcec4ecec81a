"""The HParams plugin with smaller reads, and with support for comparisons.

The stock plugin (`tensorboard/plugins/hparams/backend_context.py`) reads the metadata of all scalar
series although it needs only their names, and uses the schema of a single experiment.
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
from tbservice.types import Selection
from tbwire.points import DataClass

_SCALARS = scalar_metadata.PLUGIN_NAME


class LeanHParamsPlugin(HParamsPlugin):  # type: ignore[misc] # tensorboard has no annotations
    """The stock plugin over `LeanContext`."""

    def __init__(self, context: TBContext) -> None:
        super().__init__(context)
        self._context = LeanContext(context)


class LeanContext(backend_context.Context):  # type: ignore[misc] # tensorboard has no annotations
    """The stock backend context, reading names instead of metadata, and last values on demand."""

    def experiment_from_metadata(
        self,
        ctx: RequestContext,
        experiment_id: str,
        include_metrics: bool,
        hparams_run_to_tag_to_content: Mapping[str, Mapping[str, bytes]],
        data_provider_hparams: Any,
        hparams_limit: int | None = None,
    ) -> Any:
        """Return the schema (an `Experiment` proto); in a comparison, all schemas merged.

        The stock method uses the first declared schema alone. Here, each experiment contributes its
        declared schema or, without one, the columns of its sessions. Parameters are the stock ones.
        """
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

        by_experiment: dict[str, dict[str, Mapping[str, bytes]]] = {
            name: {} for name in source.readers
        }
        for run, tags in content.items():
            by_experiment[source.experiment_name_of(run)][run] = tags
        declared = {
            name: self._find_experiment_tag(runs, include_metrics)
            for name, runs in by_experiment.items()
        }

        undeclared = {
            run: tags
            for run, tags in content.items()
            if declared[source.experiment_name_of(run)] is None
        }
        computed = self._compute_experiment_from_runs(
            ctx, experiment_id, include_metrics, undeclared
        )

        merged = merge_schemas(
            [schema for schema in (*declared.values(), computed) if schema is not None]
        )
        backend_context._sort_and_reduce_to_hparams_limit(merged, hparams_limit)  # noqa: SLF001 - the stock order
        return merged

    def scalars_metadata(self, ctx: RequestContext, experiment_id: str) -> Mapping[str, Any]:
        """Return {run: scalar tags}.

        The stock method returns {run: {tag: metadata}}, of which the callers only use the keys.
        """
        source: Source = ctx.auth.get(READER_KEY)
        if source.experiment_id != experiment_id:
            tags: Mapping[str, Any] = super().scalars_metadata(ctx, experiment_id)
            return tags
        tags_by_run: dict[str, list[str]] = {}
        for group in source.list_tag_groups([(_SCALARS, DataClass.SCALAR)]):
            # A run has one group for each distinct metadata of its tags.
            tags_by_run.setdefault(group.run, []).extend(group.tags)
        return tags_by_run

    def read_last_scalars(
        self, ctx: RequestContext, experiment_id: str, run_tag_filter: provider.RunTagFilter | None
    ) -> Mapping[str, Mapping[str, provider.ScalarDatum]]:
        """Return {run: {tag: last point}}, a mapping that reads on first access."""
        source: Source = ctx.auth.get(READER_KEY)
        if source.experiment_id != experiment_id:
            points: Mapping[str, Any] = super().read_last_scalars(
                ctx, experiment_id, run_tag_filter
            )
            return points
        return _LastPoints(source, run_tag_filter)


class _LastPoints(Mapping[str, Mapping[str, provider.ScalarDatum]]):
    """{run: {tag: last point}}, read on first access: without sessions there is none."""

    def __init__(self, source: Source, run_tag_filter: provider.RunTagFilter | None) -> None:
        self._source = source
        self._selection = Selection(
            plugin=_SCALARS,
            runs=None if run_tag_filter is None else run_tag_filter.runs,
            tags=None if run_tag_filter is None else run_tag_filter.tags,
            data_class=DataClass.SCALAR,
        )

    @cached_property
    def _points(self) -> dict[str, dict[str, provider.ScalarDatum]]:
        last_points = self._source.list_last_points(self._selection)
        return {
            run: {tag: provider.ScalarDatum(*point) for tag, point in tags.items()}
            for run, tags in last_points.items()
        }

    def __getitem__(self, run: str) -> Mapping[str, provider.ScalarDatum]:
        return self._points[run]

    def __iter__(self) -> Iterator[str]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)
