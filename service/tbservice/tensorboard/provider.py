"""TensorBoard's `DataProvider` over our reading package, for the stock handlers.

The interface is documented in `tensorboard/data/provider.py`. Each method reads from the `Source`
that the request was granted, and raises if the `experiment_id` is another one: an address alone
never selects data.
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

from tbservice.reading.comparison import Source
from tbservice.samples import BlobSequenceSample, ScalarSample, TensorSample
from tbservice.types.sampling import Selection
from tbservice.types.series import Series
from tbwire import tensors
from tbwire.points import DataClass
from tbwire.tensorboard_pb2 import SummaryMetadata

READER_KEY: Final = "tbhub.reader"
"""Key of the request's `Source` in the WSGI environment; set by `bind_source`."""

_T = TypeVar("_T")
_Nested = dict[str, dict[str, _T]]


class ReaderAuth(AuthProvider):  # type: ignore[misc] # tensorboard has no annotations
    """Passes the request's `Source` to the data provider; a request without one fails."""

    def authenticate(self, environ: dict[str, Any]) -> Source:
        """Return the source that the request was granted."""
        source: Source = environ[READER_KEY]
        return source


class StoreProvider(provider.DataProvider):  # type: ignore[misc] # tensorboard has no annotations
    """Reads from the `Source` in the request's context; it has no state.

    `wanted` are `plugin_name`, and `run_tag_filter` of some: see `_make_selection`.
    """

    def list_plugins(self, ctx: RequestContext, *, experiment_id: str) -> list[str]:
        """Return the names of the plugins that own series, sorted."""
        return sorted({plugin for plugin, _ in _get_source(ctx, experiment_id).list_kinds()})

    def list_runs(self, ctx: RequestContext, *, experiment_id: str) -> list[provider.Run]:
        """Return the runs in the order of their first upload."""
        runs = _get_source(ctx, experiment_id).list_runs()
        return [
            provider.Run(run_id=run.name, run_name=run.name, start_time=run.start_time)
            for run in runs
        ]

    def list_scalars(
        self, ctx: RequestContext, *, experiment_id: str, **wanted: Any
    ) -> _Nested[provider.ScalarTimeSeries]:
        """Return the description of each scalar series; reads no points."""
        return _nest(
            (
                series,
                provider.ScalarTimeSeries(**_description(series), last_value=series.last_value),
            )
            for series in _list_series(ctx, experiment_id, DataClass.SCALAR, **wanted)
        )

    def list_tensors(
        self, ctx: RequestContext, *, experiment_id: str, **wanted: Any
    ) -> _Nested[provider.TensorTimeSeries]:
        """Return the description of each tensor series; reads no points."""
        return _nest(
            (series, provider.TensorTimeSeries(**_description(series)))
            for series in _list_series(ctx, experiment_id, DataClass.TENSOR, **wanted)
        )

    def list_blob_sequences(
        self, ctx: RequestContext, *, experiment_id: str, **wanted: Any
    ) -> _Nested[provider.BlobSequenceTimeSeries]:
        """Return the description of each blob sequence series; reads no points."""
        return _nest(
            (
                series,
                provider.BlobSequenceTimeSeries(
                    **_description(series), max_length=series.max_length
                ),
            )
            for series in _list_series(ctx, experiment_id, DataClass.BLOB_SEQUENCE, **wanted)
        )

    def read_scalars(
        self, ctx: RequestContext, *, experiment_id: str, downsample: int, **wanted: Any
    ) -> _Nested[list[provider.ScalarDatum]]:
        """Return at most `downsample` points of each series, in step order."""
        selection = _make_selection(DataClass.SCALAR, **wanted)
        samples = _get_source(ctx, experiment_id).read_scalars(selection, downsample)
        return _nest((series, _scalar_data(sample)) for series, sample in samples)

    def read_last_scalars(
        self, ctx: RequestContext, *, experiment_id: str, **wanted: Any
    ) -> _Nested[provider.ScalarDatum]:
        """Return the point with the highest step of each series, from the series' row."""
        return _nest(
            (
                series,
                provider.ScalarDatum(series.last_step, series.last_wall_time, series.last_value),
            )
            for series in _list_series(ctx, experiment_id, DataClass.SCALAR, **wanted)
        )

    def read_tensors(
        self, ctx: RequestContext, *, experiment_id: str, downsample: int, **wanted: Any
    ) -> _Nested[list[provider.TensorDatum]]:
        """Return at most `downsample` points of each series, in step order.

        String tensors are object arrays of bytes.
        """
        selection = _make_selection(DataClass.TENSOR, **wanted)
        samples = _get_source(ctx, experiment_id).read_tensors(selection, downsample)
        return _nest((series, _tensor_data(sample)) for series, sample in samples)

    def read_blob_sequences(
        self, ctx: RequestContext, *, experiment_id: str, downsample: int, **wanted: Any
    ) -> _Nested[list[provider.BlobSequenceDatum]]:
        """Return at most `downsample` points per series, in step order; values are blob keys."""
        selection = _make_selection(DataClass.BLOB_SEQUENCE, **wanted)
        samples = _get_source(ctx, experiment_id).read_blob_sequences(selection, downsample)
        return _nest((series, _blob_data(sample)) for series, sample in samples)

    def read_blob(self, ctx: RequestContext, *, blob_key: str) -> bytes:
        """Return the bytes of one blob.

        Raises NotFound if the key is not of a blob in the granted source, and TooLarge if the blob
        is over the limit for blobs in memory.
        """
        source: Source = ctx.auth.get(READER_KEY)
        return source.read_blob(blob_key)


def _get_source(ctx: RequestContext, experiment_id: str) -> Source:
    """Return the granted source; raises PermissionDeniedError if `experiment_id` is another one."""
    source: Source = ctx.auth.get(READER_KEY)
    if experiment_id != source.experiment_id:
        raise errors.PermissionDeniedError("the grant is for another experiment")
    return source


def _list_series(
    ctx: RequestContext, experiment_id: str, data_class: DataClass, **wanted: Any
) -> list[Series]:
    return _get_source(ctx, experiment_id).list_series(_make_selection(data_class, **wanted))


def _make_selection(
    data_class: DataClass,
    *,
    plugin_name: str,
    run_tag_filter: provider.RunTagFilter | None = None,
) -> Selection:
    """Return the filter as a Selection: in both, None selects all and an empty set nothing."""
    chosen = run_tag_filter or provider.RunTagFilter()
    return Selection(plugin_name, chosen.runs, chosen.tags, data_class)


def _nest(pairs: Iterable[tuple[Series, _T]]) -> _Nested[_T]:
    nested: _Nested[_T] = {}
    for series, value in pairs:
        nested.setdefault(series.run, {})[series.tag] = value
    return nested


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
    """Return a stored tensor as a numpy array of the given shape.

    `dtype` is a `DataType` of `tensorboard/compat/proto/types.proto`; bfloat16 becomes float32.
    """
    array = tensors.to_numpy(dtype, shape, data)
    if dtype == tensors.BFLOAT16:  # numpy has no bfloat16: it is the upper half of a float32
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array
