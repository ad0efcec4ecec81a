"""Models of queries, in a URL or a JSON body: which series, and which points of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from pydantic import Field, FiniteFloat

from tbservice.api.formats import Format
from tbservice.api.http.request_models import FewFields, Names
from tbservice.errors import Invalid
from tbservice.types.sampling import ALL_STEPS, Sampling, SamplingRule, Selection, StepRange
from tbwire.frames import MEDIA_TYPE as FRAMES_MEDIA_TYPE
from tbwire.points import DataClass

SERIES_PAGE_ITEMS_MAX: Final = 10_000
"""Series on one page of their metadata."""


_DOWNSAMPLE: Final = 1_000
_COUNT_MAX: Final = 2**31 - 1

_PERCENT_MIN: Final = 0.001
"""Below one of the 65,536 sample slots (0.0015 %). Far smaller values underflow in PostgreSQL."""


class SeriesQuery(FewFields, strict=True):
    """The selected series: the cross product of runs and tags, of one plugin.

    An absent field selects all. In a JSON body, numbers must be numbers: neither strings nor
    booleans are accepted.
    """

    run: Names = Field(default=None, description="Name of a run; repeatable")
    tag: Names = Field(default=None, description="Name of a tag; repeatable")
    plugin: str | None = Field(default=None, description="Name of the plugin that owns the series")

    def to_selection(self, data_class: DataClass | None = None) -> Selection:
        """Return the selection, limited to a data class if one is given."""
        runs = None if self.run is None else frozenset(self.run)
        tags = None if self.tag is None else frozenset(self.tag)
        return Selection(self.plugin, runs, tags, data_class)


class ScalarSeriesQuery(SeriesQuery):
    """The selected scalar series: as other series, and by their last value."""

    last_value_min: FiniteFloat | None = Field(
        default=None, description="Select series with a last value of at least this"
    )
    last_value_max: FiniteFloat | None = Field(
        default=None, description="Select series with a last value of at most this"
    )

    def to_selection(self, data_class: DataClass | None = None) -> Selection:
        """Return the selection, limited to a data class if one is given."""
        selection = super().to_selection(data_class)
        return replace(
            selection, last_value_min=self.last_value_min, last_value_max=self.last_value_max
        )


class SeriesPageQuery(SeriesQuery):
    """The selected series, and a page of them."""

    limit: int | None = Field(
        default=None,
        ge=1,
        le=SERIES_PAGE_ITEMS_MAX,
        description="Maximum series per page; the response is then "
        '`{"series": …, "next": …}`. Without it, all series are returned',
    )
    after: str = Field(default="", description="`next` of the previous page; requires `limit`")


class ScalarSeriesPageQuery(SeriesPageQuery, ScalarSeriesQuery):
    """The selected scalar series, and a page of them."""


class SampleQuery(SeriesQuery):
    """The selected series, and which points of each to return."""

    sampling: SamplingRule = Field(
        default=SamplingRule.UNIFORM,
        strict=False,  # in JSON, too, an enum is a string
        description="`uniform`: the first and the last point, and a pseudo-random choice of the "
        "others, which depends only on the series' steps. `linear`: for each of `downsample` "
        "equally spaced steps, the first point at or after it. `extremes` (scalars only): the "
        "first, lowest, highest and last point, and a NaN, of each of equally long ranges of "
        "steps. `bernoulli`: the first and the last point, and each other with probability "
        "`percent`. `all`: every point.",
    )
    downsample: int | None = Field(
        default=None,
        ge=0,
        le=_COUNT_MAX,
        description="Points per series: with `uniform` exactly this number, or all if there are "
        "fewer; with `linear` and `extremes` at most this number. 0 returns none, 1 the last "
        f"point. The default is {_DOWNSAMPLE}, or all points if `last` is given.",
    )
    percent: float | None = Field(
        default=None,
        ge=_PERCENT_MIN,
        le=100,
        description="For `bernoulli`, and required there: the probability in percent that a point "
        "is returned",
    )
    seed: int | None = Field(
        default=None,
        ge=0,
        le=_COUNT_MAX,
        description="For `bernoulli`: the same seed returns the same points; 0 by default",
    )
    step_min: int | None = Field(
        default=None,
        ge=ALL_STEPS.first,
        le=ALL_STEPS.last,
        description="Lowest step, inclusive",
    )
    step_max: int | None = Field(
        default=None,
        ge=ALL_STEPS.first,
        le=ALL_STEPS.last,
        description="Highest step, inclusive",
    )
    last: int | None = Field(
        default=None,
        ge=0,
        le=_COUNT_MAX,
        description="Sample only this number of points per series: those with the highest steps. "
        "Not together with `step_min` and `step_max`",
    )
    attempt: int | None = Field(
        default=None,
        ge=1,
        le=_COUNT_MAX,
        description="Read runs that were restarted as they were just before the next attempt "
        "began: see `/attempts`. Runs with fewer attempts are read as they are shown",
    )
    format: Format | None = Field(
        default=None,
        strict=False,
        description="Format of the response; takes precedence over `Accept`. Without both, `json`",
    )
    metadata: bool = Field(
        default=False,
        description="Add the summary metadata of each series: `summary_metadata` in JSON; in CSV, "
        "Parquet and Arrow the columns plugin, display_name, description and plugin_content. The "
        "format `points` always has it",
    )

    def to_sampling(self) -> Sampling:
        """Return the rule by which points are sampled; raises Invalid for contradictory fields."""
        self._check()

        rule, k = self.sampling, self.downsample
        if k is None:
            k = _DOWNSAMPLE
            rule = (
                SamplingRule.ALL if self.last is not None and rule is SamplingRule.UNIFORM else rule
            )
        return Sampling(rule, k, self.percent or 0.0, self.seed or 0, self.steps(), self.last)

    def steps(self) -> StepRange:
        """Return the requested range of steps."""
        first = ALL_STEPS.first if self.step_min is None else self.step_min
        return StepRange(first, ALL_STEPS.last if self.step_max is None else self.step_max)

    def _check(self) -> None:
        if self.last is not None and (self.step_min is not None or self.step_max is not None):
            raise Invalid(
                "'last' cannot be combined with 'step_min' and 'step_max': give one or the other"
            )
        if self.steps().first > self.steps().last:
            raise Invalid("'step_min' is greater than 'step_max'")
        if self.sampling is not SamplingRule.BERNOULLI and (
            self.percent is not None or self.seed is not None
        ):
            raise Invalid("'percent' and 'seed' require 'sampling=bernoulli'")
        if self.sampling is SamplingRule.BERNOULLI and (
            self.percent is None or self.downsample is not None
        ):
            raise Invalid("'sampling=bernoulli' requires 'percent' and excludes 'downsample'")


class TensorSampleQuery(SampleQuery):
    """The selected tensor series, which points of each, and how to handle lost objects.

    `lost` is not accepted in a URL: a client may cache the response to a GET, although the lost
    objects may be restored.
    """

    lost: Literal["refuse", "name"] = Field(
        default="refuse",
        description="How to handle a tensor that the object store has lost or cannot read: "
        "`refuse` the request, or leave out the point and `name` it. `name` requires "
        "`sampling=all`; the response is then a stream of frames "
        f"(`{FRAMES_MEDIA_TYPE}`) that contains the bytes of the requested `format` and the points "
        "that were left out.",
    )

    def _check(self) -> None:
        super()._check()
        if self.lost == "name" and (self.sampling is not SamplingRule.ALL or self.last is not None):
            raise Invalid("'lost=name' requires 'sampling=all' and excludes 'last'")


class ScalarSampleQuery(SampleQuery, ScalarSeriesQuery):
    """The selected scalar series, and which points of each to return."""


class BlobSampleQuery(SampleQuery):
    """The selected blob sequence series, which points of each, and which blobs of each point."""

    index_min: int | None = Field(
        default=None,
        ge=0,
        le=_COUNT_MAX,
        description="Lowest index of the blobs of each point, inclusive; the first blob is 0",
    )
    index_max: int | None = Field(
        default=None,
        ge=0,
        le=_COUNT_MAX,
        description="Highest index of the blobs of each point, inclusive",
    )
    index_last: int | None = Field(
        default=None,
        ge=0,
        le=_COUNT_MAX,
        description="Return only this number of blobs of each point: the last ones. Not together "
        "with `index_min` and `index_max`",
    )

    def indices(self) -> slice:
        """Return the slice of each point's blobs; raises Invalid for contradictory fields."""
        if self.index_last is None:
            return slice(self.index_min, None if self.index_max is None else self.index_max + 1)
        if self.index_min is not None or self.index_max is not None:
            raise Invalid(
                "'index_last' cannot be combined with 'index_min' and 'index_max': "
                "give one or the other"
            )
        return slice(-self.index_last if self.index_last else _COUNT_MAX, None)
