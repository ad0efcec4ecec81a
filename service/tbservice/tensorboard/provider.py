"""TensorBoard's DataProvider over our reading domain: what the stock handlers list and read.

Whatever the address said, only what the request was granted is read: every method asks for its source first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from tensorboard import errors
from tensorboard.auth import AuthProvider
from tensorboard.context import RequestContext
from tensorboard.data import provider

from tbservice.reading.source import Source
from tbservice.types import (
    BlobSequenceSample,
    DataClass,
    ScalarSample,
    Selection,
    Series,
    TensorSample,
)
from tbwire import tensors
from tbwire.tensorboard_pb2 import SummaryMetadata

READER_KEY: Final = "tbhub.reader"
"""Where the mount leaves the request's `Source` in the WSGI environment."""

_T = TypeVar("_T")
_Nested = dict[str, dict[str, _T]]


class ReaderAuth(AuthProvider):  # type: ignore[misc] # tensorboard has no annotations
    """Hands the source the mount made on to the data provider; a request without one fails."""

    def authenticate(self, environ: dict[str, Any]) -> Source:
        """What the request may read."""
        source: Source = environ[READER_KEY]
        return source


class StoreProvider(provider.DataProvider):  # type: ignore[misc] # tensorboard has no annotations
    """Reads one source a request. It keeps no state: who reads, and from where, is in the request's context."""

    def list_plugins(self, ctx: RequestContext, *, experiment_id: str) -> list[str]:
        """The plugins that own series."""
        return sorted({plugin for plugin, _ in _get_source(ctx, experiment_id).list_kinds()})

    def list_runs(self, ctx: RequestContext, *, experiment_id: str) -> list[provider.Run]:
        """The runs in the order they were first uploaded in."""
        runs = _get_source(ctx, experiment_id).list_runs()
        return [
            provider.Run(run_id=run.name, run_name=run.name, start_time=run.start_time)
            for run in runs
        ]

    def list_scalars(
        self,
        ctx: RequestContext,
        *,
        experiment_id: str,
        plugin_name: str,
        run_tag_filter: provider.RunTagFilter | None = None,
    ) -> _Nested[provider.ScalarTimeSeries]:
        """What is known of each scalar series without reading its points."""
        selection = _make_selection(plugin_name, run_tag_filter, DataClass.SCALAR)
        return _nest(
            (one, provider.ScalarTimeSeries(**_description(one), last_value=one.last_value))
            for one in _get_source(ctx, experiment_id).list_series(selection)
        )

    def list_tensors(
        self,
        ctx: RequestContext,
        *,
        experiment_id: str,
        plugin_name: str,
        run_tag_filter: provider.RunTagFilter | None = None,
    ) -> _Nested[provider.TensorTimeSeries]:
        """What is known of each tensor series without reading its points."""
        selection = _make_selection(plugin_name, run_tag_filter, DataClass.TENSOR)
        return _nest(
            (one, provider.TensorTimeSeries(**_description(one)))
            for one in _get_source(ctx, experiment_id).list_series(selection)
        )

    def list_blob_sequences(
        self,
        ctx: RequestContext,
        *,
        experiment_id: str,
        plugin_name: str,
        run_tag_filter: provider.RunTagFilter | None = None,
    ) -> _Nested[provider.BlobSequenceTimeSeries]:
        """What is known of each blob sequence series without reading its points."""
        selection = _make_selection(plugin_name, run_tag_filter, DataClass.BLOB_SEQUENCE)
        return _nest(
            (one, provider.BlobSequenceTimeSeries(**_description(one), max_length=one.max_length))
            for one in _get_source(ctx, experiment_id).list_series(selection)
        )

    def read_scalars(
        self,
        ctx: RequestContext,
        *,
        experiment_id: str,
        plugin_name: str,
        downsample: int,
        run_tag_filter: provider.RunTagFilter | None = None,
    ) -> _Nested[list[provider.ScalarDatum]]:
        """At most `downsample` points of each series, in step order."""
        selection = _make_selection(plugin_name, run_tag_filter, DataClass.SCALAR)
        samples = _get_source(ctx, experiment_id).read_scalars(selection, downsample)
        return {
            run: {tag: _scalar_data(sample) for tag, sample in tags.items()}
            for run, tags in samples.items()
        }

    def read_last_scalars(
        self,
        ctx: RequestContext,
        *,
        experiment_id: str,
        plugin_name: str,
        run_tag_filter: provider.RunTagFilter | None = None,
    ) -> _Nested[provider.ScalarDatum]:
        """The point with the greatest step of each series; no points are read for it."""
        selection = _make_selection(plugin_name, run_tag_filter, DataClass.SCALAR)
        return _nest(
            (one, provider.ScalarDatum(one.last_step, one.last_wall_time, one.last_value))
            for one in _get_source(ctx, experiment_id).list_series(selection)
        )

    def read_tensors(
        self,
        ctx: RequestContext,
        *,
        experiment_id: str,
        plugin_name: str,
        downsample: int,
        run_tag_filter: provider.RunTagFilter | None = None,
    ) -> _Nested[list[provider.TensorDatum]]:
        """At most `downsample` points of each series, in step order; strings are object arrays of bytes."""
        selection = _make_selection(plugin_name, run_tag_filter, DataClass.TENSOR)
        samples = _get_source(ctx, experiment_id).read_tensors(selection, downsample)
        return {
            run: {tag: _tensor_data(sample) for tag, sample in tags.items()}
            for run, tags in samples.items()
        }

    def read_blob_sequences(
        self,
        ctx: RequestContext,
        *,
        experiment_id: str,
        plugin_name: str,
        downsample: int,
        run_tag_filter: provider.RunTagFilter | None = None,
    ) -> _Nested[list[provider.BlobSequenceDatum]]:
        """At most `downsample` points of each series, in step order; a point is the keys of its blobs."""
        selection = _make_selection(plugin_name, run_tag_filter, DataClass.BLOB_SEQUENCE)
        samples = _get_source(ctx, experiment_id).read_blob_sequences(selection, downsample)
        return {
            run: {tag: _blob_data(sample) for tag, sample in tags.items()}
            for run, tags in samples.items()
        }

    def read_blob(self, ctx: RequestContext, *, blob_key: str) -> bytes:
        """The whole of one blob of what the request may read; NotFound for any other key, TooLarge."""
        source: Source = ctx.auth.get(READER_KEY)
        return source.read_blob(blob_key)


def _get_source(ctx: RequestContext, experiment_id: str) -> Source:
    """What the request may read, if that is what is asked for."""
    source: Source = ctx.auth.get(READER_KEY)
    if experiment_id != source.experiment_id:
        raise errors.PermissionDeniedError("the grant is for another experiment")
    return source


def _make_selection(
    plugin: str, chosen: provider.RunTagFilter | None, data_class: DataClass
) -> Selection:
    """A filter's None selects all and its empty set nothing, as in `Selection`."""
    if chosen is None:
        return Selection(plugin=plugin, data_class=data_class)
    return Selection(plugin=plugin, runs=chosen.runs, tags=chosen.tags, data_class=data_class)


def _nest(pairs: Iterable[tuple[Series, _T]]) -> _Nested[_T]:
    answer: _Nested[_T] = {}
    for series, value in pairs:
        answer.setdefault(series.run, {})[series.tag] = value
    return answer


def _description(series: Series) -> dict[str, Any]:
    metadata = SummaryMetadata.FromString(series.summary_metadata)
    return {
        "max_step": series.last_step,
        "max_wall_time": series.max_wall_time,
        "plugin_content": metadata.plugin_data.content,
        "description": metadata.summary_description,
        "display_name": metadata.display_name,
    }


def _scalar_data(sample: ScalarSample) -> list[provider.ScalarDatum]:
    points = zip(
        sample.steps.tolist(), sample.wall_times.tolist(), sample.values.tolist(), strict=True
    )
    return [provider.ScalarDatum(step, wall_time, value) for step, wall_time, value in points]


def _tensor_data(sample: TensorSample) -> list[provider.TensorDatum]:
    points = zip(sample.steps.tolist(), sample.wall_times.tolist(), sample.tensors, strict=True)
    return [
        provider.TensorDatum(step, wall_time, as_array(tensor.dtype, tensor.shape, tensor.data))
        for step, wall_time, tensor in points
    ]


def _blob_data(sample: BlobSequenceSample) -> list[provider.BlobSequenceDatum]:
    points = zip(sample.steps.tolist(), sample.wall_times.tolist(), sample.sequences, strict=True)
    return [
        provider.BlobSequenceDatum(
            step, wall_time, tuple(provider.BlobReference(key) for key in keys)
        )
        for step, wall_time, keys in points
    ]


def as_array(dtype: int, shape: tuple[int, ...], data: bytes) -> npt.NDArray[Any]:
    """A stored tensor as an array of a type that numpy has."""
    array = tensors.to_numpy(dtype, shape, data)
    if dtype == tensors.BFLOAT16:  # the upper half of a float32's bits, which numpy can show
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array
