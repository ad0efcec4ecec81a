"""Listing and sampling what an experiment holds.

Every function wants a snapshot (`Database.snapshot`): a merge may move points between the statements of one answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final, TypeVar

from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import Invalid, TooLarge
from tbservice.ingest.blobs import blob_key
from tbservice.reading import tensor_objects
from tbservice.reading.sampling import bernoulli_and_full, tensor_and_blob, uniform
from tbservice.reading.sampling.rules import BUCKET_POINTS_MAX
from tbservice.reading.tag_groups import numbers_of_place
from tbservice.scalars.scan import read_scalar_pieces
from tbservice.store import blob_points, runs_tags, tensor_points, time_series
from tbservice.store.blob_points import BlobPoint
from tbservice.store.scalar_format import Points
from tbservice.types import (
    ALL_STEPS,
    BlobSequenceSample,
    DataClass,
    ExperimentId,
    ReadGrant,
    Run,
    Sampling,
    SamplingRule,
    ScalarSample,
    Selection,
    Series,
    TensorSample,
)

T = TypeVar("T")
ByRunAndTag = dict[str, dict[str, T]]

ALL_BLOBS: Final = slice(None)
"""Of the indices of a blob sequence: none is left out."""


def list_runs(db: Connection, grant: ReadGrant) -> list[Run]:
    """Every run, in the order in which they came: that order only ever grows at its end."""
    return runs_tags.list_runs(db, grant.experiment_id)


def list_kinds(db: Connection, grant: ReadGrant) -> list[tuple[str, DataClass]]:
    """The kinds of series (plugin and data class) that there are, by the plugin's name."""
    return time_series.list_kinds(db, grant.experiment_id)


def list_plugins(db: Connection, grant: ReadGrant) -> list[str]:
    """The plugins that own a series, by name."""
    return list(dict.fromkeys(plugin for plugin, _ in list_kinds(db, grant)))


def list_series(db: Connection, grant: ReadGrant, selection: Selection) -> list[Series]:
    """The selected series, without a look at their points: a `count` may not be exact, and says so."""
    return time_series.list_series(db, grant.experiment_id, selection)


def list_series_counted(db: Connection, grant: ReadGrant, selection: Selection) -> list[Series]:
    """The selected series, each with its exact number of points: those whose count is not exact are read."""
    return _counted(db, grant, list_series(db, grant, selection))


def list_series_page(
    db: Connection, grant: ReadGrant, selection: Selection, after: str, limit: int
) -> tuple[list[Series], str | None]:
    """At most `limit` of them, in the order in which they came, and where the next page begins, None at the end.

    `after` is where it does, or empty. Raises Malformed for a place that is none.
    """
    place = numbers_of_place(after, 2) or [0, 0]
    found = time_series.list_page(db, grant.experiment_id, selection, (place[0], place[1]), limit + 1)
    page = found[:limit]
    following = f"{int(page[-1].data_class)}.{page[-1].series_id}" if len(found) > limit else None
    return _counted(db, grant, page), following


def _counted(db: Connection, grant: ReadGrant, found: list[Series]) -> list[Series]:
    counts = {series.series_id: 0 for series in found if not series.count_is_exact}
    pieces = read_scalar_pieces(db, grant.experiment_id, list(counts), ALL_STEPS, limits.piece_points)
    for id_, records in pieces if counts else ():
        counts[id_] += len(records)
    return [
        series if series.count_is_exact else replace(series, count=counts[series.series_id], count_is_exact=True)
        for series in found
    ]


def read_whole(db: Connection, grant: ReadGrant, found: Sequence[Series]) -> dict[int, Points]:
    """All points of these scalar series, by series id, in step order."""
    return uniform.read_levels(db, grant.experiment_id, {series.series_id: 0 for series in found}, {}) if found else {}


def read_scalars(
    db: Connection, grant: ReadGrant, selection: Selection, sampling: Sampling
) -> ByRunAndTag[ScalarSample]:
    """A sample of every selected scalar series.

    Raises TooLarge when that is over `read_points_max` points, or when over `scan_points_max` would be looked at;
    Invalid for numbers that make no sample.
    """
    found = _select(db, grant, selection, DataClass.SCALAR, sampling)
    if sampling.rule is SamplingRule.UNIFORM and sampling.last is None:
        samples = uniform.sample_scalars(db, grant.experiment_id, found, sampling.k, sampling.steps)
    else:
        samples = bernoulli_and_full.sample_scalars(db, grant.experiment_id, found, sampling)
    return _by_run_and_tag(found, samples)


def read_tensors(
    db: Connection, grant: ReadGrant, selection: Selection, sampling: Sampling
) -> ByRunAndTag[TensorSample]:
    """A sample of every selected tensor series, whose objects are still to be loaded (`tensor_objects.load_samples`).

    Raises as `read_scalars`; TooLarge over `read_bytes_max`, objects included.
    """
    found = _select(db, grant, selection, DataClass.TENSOR, sampling)
    wanted = tensor_and_blob.choose_places(db, grant.experiment_id, DataClass.TENSOR, found, sampling)
    read = []
    size = 0
    with closing(tensor_points.sample(db, grant.experiment_id, wanted.k, wanted.places)) as points:
        for point in points:
            size += point.value.size
            check_size(size)
            read.append(point)
    samples = {}
    for id_, chosen in tensor_and_blob.pick(db, wanted, read).items():
        values = tensor_objects.locate(db, grant.workspace_id, [point.value for point in chosen])
        samples[id_] = TensorSample(
            tensor_and_blob.steps_of(chosen), tensor_and_blob.wall_times_of(chosen), values, wanted.totals[id_]
        )
    return _by_run_and_tag(found, samples)


def read_blob_sequences(
    db: Connection, grant: ReadGrant, selection: Selection, sampling: Sampling, indices: slice = ALL_BLOBS
) -> ByRunAndTag[BlobSequenceSample]:
    """A sample of every selected blob sequence series: the keys of the blobs at `indices`.

    Raises as `read_scalars`; TooLarge when its points have more than `read_blobs_max` blobs, or content types of more
    than `read_bytes_max`.
    """
    found = _select(db, grant, selection, DataClass.BLOB_SEQUENCE, sampling)
    wanted = tensor_and_blob.choose_places(db, grant.experiment_id, DataClass.BLOB_SEQUENCE, found, sampling)
    read: dict[tuple[int, int], BlobPoint] = {}
    count = size = 0
    with closing(blob_points.sample(db, grant.experiment_id, wanted.k, wanted.places)) as points:
        for point in points:
            place = point.series_id, point.step
            if place in read:
                continue
            read[place] = point
            count += len(point.digests)
            size += len(point.logged_content_type.encode())
            _check_blobs(count)
            check_size(size, "content types")
    samples = {}
    for id_, chosen in tensor_and_blob.pick(db, wanted, read.values()).items():
        keys = [_keys(grant.experiment_id, point)[indices] for point in chosen]
        content_types = [point.logged_content_type for point in chosen]
        times = tensor_and_blob.steps_of(chosen), tensor_and_blob.wall_times_of(chosen)
        samples[id_] = BlobSequenceSample(*times, keys, content_types, wanted.totals[id_])
    return _by_run_and_tag(found, samples)


def check_size(size: int, what: str = "tensors") -> None:
    """Raises TooLarge when an answer has more than `read_bytes_max` bytes of something."""
    if size > limits.read_bytes_max:
        limit = f"the limit of {limits.read_bytes_max} bytes of {what} (read_bytes_max)"
        raise TooLarge(f"the answer is over {limit}; ask for fewer points or series")


def _check_blobs(count: int) -> None:
    if count > limits.read_blobs_max:
        limit = f"the limit of {limits.read_blobs_max} blobs (read_blobs_max)"
        raise TooLarge(f"the answer is over {limit}; ask for fewer points or series")


def _select(
    db: Connection, grant: ReadGrant, selection: Selection, data_class: DataClass, sampling: Sampling
) -> list[Series]:
    _check(sampling, data_class)
    found = time_series.list_series(db, grant.experiment_id, replace(selection, data_class=data_class))
    points = sum(sampling.points_max(series.count) for series in found)
    if points > limits.read_points_max:
        detail = f"the samples of {len(found)} series are {points} points"
        limit = f"the limit of {limits.read_points_max} (read_points_max)"
        raise TooLarge(f"{detail}, over {limit}; ask for fewer points or series")
    return found


def _check(sampling: Sampling, data_class: DataClass) -> None:
    """Raises Invalid for a sampling that there is not."""
    if sampling.rule is SamplingRule.EXTREMES:
        if data_class is not DataClass.SCALAR:
            raise Invalid("only scalars have extremes; take another sampling")
        if 0 < sampling.k < BUCKET_POINTS_MAX:
            raise Invalid(f"extremes keep {BUCKET_POINTS_MAX} points at least; ask for 0, or for no fewer than those")
    if sampling.rule is SamplingRule.LINEAR and sampling.k > limits.read_points_max:
        raise Invalid(f"a linear sample has at most {limits.read_points_max} points (read_points_max)")


def _by_run_and_tag(found: Iterable[Series], samples: Mapping[int, T]) -> ByRunAndTag[T]:
    answer: ByRunAndTag[T] = {}
    for series in found:
        answer.setdefault(series.run, {})[series.tag] = samples[series.series_id]
    return answer


def _keys(experiment_id: ExperimentId, point: BlobPoint) -> list[str]:
    return [
        blob_key(experiment_id, point.series_id, point.step, index, digest)
        for index, digest in enumerate(point.digests)
    ]
