"""The catalog of an experiment (runs, plugins, time series) and samples of its series.

Every function needs a snapshot (`Database.snapshot`): compaction may move points between the
statements of one response.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence, Sized
from contextlib import closing
from dataclasses import replace
from typing import Final, TypeVar

from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import Invalid, TooLarge
from tbservice.experiments.lifecycle import get_experiment
from tbservice.pagination import (
    cut_page,
    decode_number_token,
    decode_series_token,
    encode_series_token,
)
from tbservice.reading.attempts import find_before, find_series_before
from tbservice.reading.point_samples import make_blob_sequence_sample, make_tensor_sample
from tbservice.reading.sampling import bernoulli_and_full, tensor_and_blob, uniform
from tbservice.reading.sampling.rules import BUCKET_POINTS_MAX
from tbservice.reading.tables import attempt_scan
from tbservice.samples import BlobSequenceSample, Sample, Samples, ScalarSample, TensorSample
from tbservice.series.scan import read_scalar_chunks
from tbservice.series.tables import runs_tags, time_series, value_scan
from tbservice.series.tables.value_scan import DATA_CLASSES, BlobRow, TensorRow, ValueRow
from tbservice.types.grants import ReadGrant
from tbservice.types.sampling import ALL_STEPS, Sampling, SamplingRule, Selection
from tbservice.types.series import Run, Series
from tbwire.points import DataClass, ScalarPoints

READ_BLOBS_MAX: Final = 1_000_000
"""Blobs listed in one response, of all points of all series; `sampling=all` has no such limit."""

READ_BYTES_MAX: Final = 256 * limits.MIB
"""Bytes of tensors in one response, or of logged content types."""

ALL_BLOBS: Final = slice(None)
"""Indices into a blob sequence: all of its blobs."""

_Listed = TypeVar("_Listed", bound=Sized)


def require(db: Connection, grant: ReadGrant, listed: _Listed) -> _Listed:
    """Return what was listed, unless it is empty because the experiment was deleted meanwhile.

    In the snapshot in which it was listed: after the grant, the experiment may be gone. Raises
    NotFound.
    """
    if not listed:
        get_experiment(db, grant)
    return listed


def list_runs(db: Connection, grant: ReadGrant) -> list[Run]:
    """Return all runs in order of creation, so that new runs are appended."""
    return require(db, grant, list(runs_tags.list_runs(db, grant.experiment_id).values()))


def list_runs_page(
    db: Connection, grant: ReadGrant, after: str, limit: int
) -> tuple[list[Run], str | None]:
    """Return a page of at most `limit` runs in order of creation, and the next page token.

    `after` is a page token, or empty for the first page; the last page has the token None. Raises
    MalformedRequest for an invalid token.
    """
    position = decode_number_token(after) or 0
    runs = runs_tags.list_runs(db, grant.experiment_id, position, limit + 1)
    page, token = cut_page(list(runs), limit, str)
    return require(db, grant, [runs[run_id] for run_id in page]), token


def list_kinds(db: Connection, grant: ReadGrant) -> list[tuple[str, DataClass]]:
    """Return the kinds of series (plugin and data class), ordered by plugin."""
    return require(db, grant, time_series.list_kinds(db, grant.experiment_id))


def list_plugins(db: Connection, grant: ReadGrant) -> list[str]:
    """Return the plugins that own a series, ordered by name."""
    return list(dict.fromkeys(plugin for plugin, _ in list_kinds(db, grant)))


def list_series(db: Connection, grant: ReadGrant, selection: Selection) -> list[Series]:
    """Return the selected series without reading points: see `count_is_exact`."""
    return require(db, grant, time_series.list_series(db, grant.experiment_id, selection))


def list_series_with_counts(db: Connection, grant: ReadGrant, selection: Selection) -> list[Series]:
    """Return the selected series with exact counts; reads the points of those without."""
    return _with_exact_counts(db, grant, list_series(db, grant, selection))


def list_series_page(
    db: Connection, grant: ReadGrant, selection: Selection, after: str, limit: int
) -> tuple[list[Series], str | None]:
    """Return a page of at most `limit` series with exact counts, and the next page token.

    Ordered by data class, then by creation. `after` is a page token, or empty for the first page;
    the last page has the token None. Raises MalformedRequest for an invalid token.
    """
    position = decode_series_token(after)
    series_list = require(
        db,
        grant,
        time_series.list_page(db, grant.experiment_id, selection, position, limit + 1),
    )
    page, next_page_token = cut_page(
        series_list, limit, lambda last: encode_series_token(last.data_class, last.series_id)
    )
    return _with_exact_counts(db, grant, page), next_page_token


def resolve_series(
    db: Connection, grant: ReadGrant, selection: Selection
) -> time_series.ResolvedSelection:
    """Return the selection for `list_series_after`."""
    return time_series.resolve_selection(db, grant.experiment_id, selection)


def list_series_after(
    db: Connection,
    grant: ReadGrant,
    resolved: time_series.ResolvedSelection,
    after: int,
    limit: int,
) -> list[Series]:
    """Return at most `limit` series with exact counts and an id above `after`, by id."""
    listed = time_series.list_after(db, grant.experiment_id, resolved, after, limit)
    return _with_exact_counts(db, grant, listed)


def _with_exact_counts(db: Connection, grant: ReadGrant, series_list: list[Series]) -> list[Series]:
    # A count is not exact while points that overlap earlier ones have not been merged.
    counts = {series.series_id: 0 for series in series_list if not series.count_is_exact}
    chunks = read_scalar_chunks(
        db, grant.experiment_id, list(counts), ALL_STEPS, limits.SCAN_CHUNK_POINTS
    )
    for id_, points in chunks if counts else ():
        counts[id_] += len(points)
    return [
        series
        if series.count_is_exact
        else replace(series, count=counts[series.series_id], count_is_exact=True)
        for series in series_list
    ]


def read_all_scalars(
    db: Connection, grant: ReadGrant, series_list: Sequence[Series]
) -> dict[int, ScalarPoints]:
    """Return all points of these scalar series by series id, in step order."""
    return (
        uniform.read_levels(
            db, grant.experiment_id, {series.series_id: 0 for series in series_list}, {}
        )
        if series_list
        else {}
    )


def read_scalars(
    db: Connection,
    grant: ReadGrant,
    selection: Selection,
    sampling: Sampling,
    attempt: int | None = None,
) -> Samples[ScalarSample]:
    """Return every selected scalar series, by run and tag, with a sample of it.

    With `attempt`, runs with more attempts are read as they were before the next one began.

    Raises:
        TooLarge: The samples have more than `READ_POINTS_MAX` points, or more than
            `SCAN_POINTS_MAX` points must be read for them.
        Invalid: Sampling parameters contradict each other.
        NotFound: No run has so many attempts.
    """
    series_list = _list_selected(db, grant, selection, DataClass.SCALAR, sampling)
    before = find_series_before(series_list, find_before(db, grant, attempt))
    shown = [series for series in series_list if series.series_id not in before]
    if sampling.rule is SamplingRule.UNIFORM and sampling.last is None:
        samples = uniform.sample_scalars(db, grant.experiment_id, shown, sampling.k, sampling.steps)
    else:
        samples = bernoulli_and_full.sample_scalars(db, grant.experiment_id, shown, sampling)
    if before:
        others = [series for series in series_list if series.series_id in before]
        samples |= bernoulli_and_full.sample_scalars(
            db, grant.experiment_id, others, sampling, before
        )
    return [(series, samples[series.series_id]) for series in series_list]


def read_tensors(
    db: Connection,
    grant: ReadGrant,
    selection: Selection,
    sampling: Sampling,
    attempt: int | None = None,
) -> Samples[TensorSample]:
    """Return every selected tensor series with a sample, with `attempt` as `read_scalars`.

    Tensors that are objects remain to be loaded (`tensor_objects.load_samples`). Raises as
    `read_scalars`, and TooLarge over `READ_BYTES_MAX` bytes, objects included.
    """
    series_list = _list_selected(db, grant, selection, DataClass.TENSOR, sampling)
    before = find_series_before(series_list, find_before(db, grant, attempt))
    samples = {}
    size = 0
    for plan, points in _plan_values(db, grant, TensorRow, series_list, sampling, before):
        rows = []
        with closing(points):
            for point in points:
                size += point.value.size
                check_tensor_bytes(size)
                rows.append(point)
        for id_, kept in tensor_and_blob.select_rows(db, plan, rows).items():
            samples[id_] = make_tensor_sample(db, grant, kept, plan.totals[id_])
    return [(series, samples[series.series_id]) for series in series_list]


def _plan_values(
    db: Connection,
    grant: ReadGrant,
    row_type: type[ValueRow],
    series_list: Sequence[Series],
    sampling: Sampling,
    before: Mapping[int, float],
) -> Iterator[tuple[tensor_and_blob.SamplePlan, Generator[ValueRow, None, None]]]:
    """Yield the plan and the rows of series that are read as shown, and of those in `before`."""
    data_class = DATA_CLASSES[row_type]
    shown = [series for series in series_list if series.series_id not in before]
    if shown or not before:
        plan = tensor_and_blob.plan_sample(db, grant.experiment_id, data_class, shown, sampling)
        yield (
            plan,
            value_scan.sample(db, row_type, grant.experiment_id, plan.k, plan.ranks_and_keys),
        )
    if before:
        plan = tensor_and_blob.plan_attempt(db, grant.experiment_id, data_class, sampling, before)
        yield (
            plan,
            attempt_scan.sample(db, row_type, grant.experiment_id, before, plan.ranks_and_keys),
        )


def read_blob_sequences(
    db: Connection,
    grant: ReadGrant,
    selection: Selection,
    sampling: Sampling,
    indices: slice = ALL_BLOBS,
    attempt: int | None = None,
) -> Samples[BlobSequenceSample]:
    """Return every selected blob sequence series with a sample, of the blobs at `indices`.

    With `attempt` as `read_scalars`. Raises as that, and TooLarge when the points have more than
    `READ_BLOBS_MAX` blobs or content types of more than `READ_BYTES_MAX` bytes.
    """
    series_list = _list_selected(db, grant, selection, DataClass.BLOB_SEQUENCE, sampling)
    before = find_series_before(series_list, find_before(db, grant, attempt))
    samples = {}
    # By series and step: a point may be read twice, as an end and in sample order.
    rows: dict[tuple[int, int], BlobRow] = {}
    count = size = 0
    for plan, points in _plan_values(db, grant, BlobRow, series_list, sampling, before):
        rows.clear()
        with closing(points):
            for point in points:
                key = point.series_id, point.step
                # Not counted twice for the limits.
                if key in rows:
                    continue
                rows[key] = point
                count += len(point.digests)
                size += len(point.logged_content_type.encode())
                _check_blobs(count)
                check_tensor_bytes(size, "content types")
        for id_, kept in tensor_and_blob.select_rows(db, plan, rows.values()).items():
            samples[id_] = make_blob_sequence_sample(
                grant.experiment_id, kept, indices, plan.totals[id_]
            )
    return [(series, samples[series.series_id]) for series in series_list]


def read_samples(
    db: Connection,
    grant: ReadGrant,
    data_class: DataClass,
    selection: Selection,
    sampling: Sampling,
    indices: slice = ALL_BLOBS,
    attempt: int | None = None,
) -> Sequence[tuple[Series, Sample]]:
    """Return every selected series of a data class with a sample, by the function of its class."""
    match data_class:
        case DataClass.SCALAR:
            return read_scalars(db, grant, selection, sampling, attempt)
        case DataClass.TENSOR:
            return read_tensors(db, grant, selection, sampling, attempt)
        case DataClass.BLOB_SEQUENCE:
            return read_blob_sequences(db, grant, selection, sampling, indices, attempt)


def check_tensor_bytes(size: int, what: str = "tensors") -> None:
    """Raise TooLarge when a response has more than `READ_BYTES_MAX` bytes of `what`."""
    if size > READ_BYTES_MAX:
        limit = f"the limit of {READ_BYTES_MAX} bytes of {what} (read_bytes_max)"
        raise TooLarge(f"the response exceeds {limit}; request fewer points or series")


def _check_blobs(count: int) -> None:
    if count > READ_BLOBS_MAX:
        limit = f"the limit of {READ_BLOBS_MAX} blobs (read_blobs_max)"
        raise TooLarge(f"the response exceeds {limit}; request fewer points or series")


def _list_selected(
    db: Connection,
    grant: ReadGrant,
    selection: Selection,
    data_class: DataClass,
    sampling: Sampling,
) -> list[Series]:
    _check_sampling(sampling, data_class)
    series_list = time_series.list_series(
        db, grant.experiment_id, replace(selection, data_class=data_class)
    )
    # Before anything is read, from the counts of the rows.
    points = sum(sampling.points_max(series.count) for series in series_list)
    if points > limits.READ_POINTS_MAX:
        detail = f"the samples of {len(series_list)} series have {points} points"
        limit = f"the limit of {limits.READ_POINTS_MAX} (read_points_max)"
        raise TooLarge(f"{detail}, over {limit}; request fewer points or series")
    return require(db, grant, series_list)


def _check_sampling(sampling: Sampling, data_class: DataClass) -> None:
    """Raise Invalid when the sampling rule does not exist for the data class or these numbers."""
    if sampling.rule is SamplingRule.EXTREMES:
        if data_class is not DataClass.SCALAR:
            raise Invalid("only scalars have extremes; use another sampling")
        if 0 < sampling.k < BUCKET_POINTS_MAX:
            minimum = f"{BUCKET_POINTS_MAX} points at least"
            raise Invalid(
                f"extremes need {minimum}; set 'downsample' to 0 or to that number or more"
            )
    if sampling.rule is SamplingRule.LINEAR and sampling.k > limits.READ_POINTS_MAX:
        raise Invalid(
            f"a linear sample has at most {limits.READ_POINTS_MAX} points (read_points_max)"
        )
