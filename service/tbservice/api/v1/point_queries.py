"""What a request says of which series, and which points of each, it wants: in its address, or in its body."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat, model_validator

from tbservice import limits
from tbservice.api.formats import Format
from tbservice.errors import Invalid
from tbservice.types import ALL_STEPS, DataClass, Sampling, SamplingRule, Selection, StepRange
from tbwire.frames import MEDIA_TYPE as FRAMES_MEDIA_TYPE


def _check_names(names: object) -> object:
    """Raise one error, however many names are no text: a megabyte of them would make half a million."""
    if isinstance(names, list) and not all(isinstance(name, str) for name in names):
        raise ValueError("each name must be a string")
    return names


Names = Annotated[list[str] | None, BeforeValidator(_check_names)]
"""Names of runs or tags; None for all."""

DataClassName = Literal["scalars", "tensors", "blob_sequences"]
"""A data class, as addresses name it."""

DATA_CLASSES: Final[dict[DataClassName, DataClass]] = {
    "scalars": DataClass.SCALAR,
    "tensors": DataClass.TENSOR,
    "blob_sequences": DataClass.BLOB_SEQUENCE,
}

_UNKNOWN_FIELDS_SHOWN: Final = 10
"""Unknown fields that are each named in a refusal."""

_DOWNSAMPLE: Final = 1_000
_COUNT_MAX: Final = 2**31 - 1

_PERCENT_MIN: Final = 0.001
"""Of the 65,536 slots that are drawn from, 0.0015 % is a single one; and PostgreSQL refuses what underflows."""


class FewFields(BaseModel):
    """What is read from a body or an address: a megabyte of unknown fields is one error, and not a hundred thousand."""

    @model_validator(mode="before")
    @classmethod
    def _check_count(cls, fields: object) -> object:
        if isinstance(fields, dict) and len(fields) > len(cls.model_fields) + _UNKNOWN_FIELDS_SHOWN:
            raise ValueError(f"has too many fields; it may have {', '.join(cls.model_fields)}")
        return fields


class SeriesQuery(FewFields):
    """Which series: the cross product of runs and tags, of one plugin. What is absent does not narrow it.

    Numbers of a JSON body are numbers, no text and no booleans; the subclasses for URLs, where all is text, are not
    strict.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    run: Names = Field(default=None, description="Repeatable")
    tag: Names = Field(default=None, description="Repeatable")
    plugin: str | None = None

    def to_selection(self, data_class: DataClass | None = None) -> Selection:
        """The same as a plain value."""
        runs = None if self.run is None else frozenset(self.run)
        tags = None if self.tag is None else frozenset(self.tag)
        return Selection(self.plugin, runs, tags, data_class)


class ScalarSeriesQuery(SeriesQuery):
    """Which scalar series."""

    last_value_min: FiniteFloat | None = Field(
        default=None, description="Only series whose last value is no less"
    )
    last_value_max: FiniteFloat | None = Field(
        default=None, description="Only series whose last value is no greater"
    )

    def to_selection(self, data_class: DataClass | None = None) -> Selection:
        """The same as a plain value."""
        chosen = super().to_selection(data_class)
        return replace(
            chosen, last_value_min=self.last_value_min, last_value_max=self.last_value_max
        )


class SeriesPageQuery(SeriesQuery):
    """Which series, and how many of them at a time."""

    limit: int | None = Field(
        default=None,
        ge=1,
        le=limits.SERIES_PAGE_ITEMS_MAX,
        description='Series on a page; the answer is then `{"series": …, "next": …}`. Without it, all of them',
    )
    after: str = Field(default="", description="The `next` of the page before")


class SeriesPageInUrl(SeriesPageQuery):
    """The same in a URL."""

    model_config = ConfigDict(strict=False)


class ScalarSeriesPageQuery(SeriesPageQuery, ScalarSeriesQuery):
    """Which scalar series, and how many of them at a time."""


class ScalarSeriesPageInUrl(ScalarSeriesPageQuery):
    """The same in a URL."""

    model_config = ConfigDict(strict=False)


class SampleQuery(SeriesQuery):
    """Which series, and which points of each."""

    sampling: SamplingRule = Field(
        default=SamplingRule.UNIFORM,
        strict=False,  # an enumeration's value is text in JSON, too
        description="`uniform`: the last point, the first, and a choice that depends on the set of steps alone. "
        "`linear`: the lowest step at or after each of `downsample` equally distant ones. `extremes` (scalars): of "
        "each of so many ranges of steps the first, the least, the greatest and the last point and a NaN. `bernoulli`: "
        "the first, the last, and each other by chance. `all`: every point.",
    )
    downsample: int | None = Field(
        default=None,
        ge=0,
        le=_COUNT_MAX,
        description=f"Points of each series: exactly so many of `uniform`, or all when it has fewer; at most so many "
        f"of `linear` and `extremes`. 0 gives none, 1 the last. {_DOWNSAMPLE} unless `last` is given, and then all.",
    )
    percent: float | None = Field(
        default=None,
        ge=_PERCENT_MIN,
        le=100,
        description="Of `bernoulli`: how likely a point is kept",
    )
    seed: int | None = Field(
        default=None, ge=0, le=_COUNT_MAX, description="Of `bernoulli`: names the draw; else 0"
    )
    step_min: int | None = Field(
        default=None, ge=ALL_STEPS.first, le=ALL_STEPS.last, description="Inclusive"
    )
    step_max: int | None = Field(
        default=None, ge=ALL_STEPS.first, le=ALL_STEPS.last, description="Inclusive"
    )
    last: int | None = Field(
        default=None, ge=0, le=_COUNT_MAX, description="Of each series only the highest steps"
    )
    format: Format | None = Field(
        default=None,
        strict=False,
        description="Instead of what `Accept` says; `json` without either",
    )

    def to_sampling(self) -> Sampling:
        """Which points of each series, as a plain value. Raises Invalid for what does not go together."""
        self._check()
        rule, k = self.sampling, self.downsample
        if k is None:
            k = _DOWNSAMPLE
            rule = (
                SamplingRule.ALL if self.last is not None and rule is SamplingRule.UNIFORM else rule
            )
        return Sampling(rule, k, self.percent or 0.0, self.seed or 0, self.steps(), self.last)

    def steps(self) -> StepRange:
        """The steps that are asked for."""
        first = ALL_STEPS.first if self.step_min is None else self.step_min
        return StepRange(first, ALL_STEPS.last if self.step_max is None else self.step_max)

    def _check(self) -> None:
        if self.last is not None and (self.step_min is not None or self.step_max is not None):
            raise Invalid(
                "'last' does not go with 'step_min' and 'step_max': give one or the other"
            )
        if self.steps().first > self.steps().last:
            raise Invalid("'step_min' is over 'step_max'")
        if self.sampling is not SamplingRule.BERNOULLI and (
            self.percent is not None or self.seed is not None
        ):
            raise Invalid("'percent' and 'seed' go with 'sampling=bernoulli' alone")
        if self.sampling is SamplingRule.BERNOULLI and (
            self.percent is None or self.downsample is not None
        ):
            raise Invalid("'sampling=bernoulli' takes 'percent', and no 'downsample'")


class SampleInUrl(SampleQuery):
    """The same in a URL."""

    model_config = ConfigDict(strict=False)


class TensorSampleQuery(SampleQuery):
    """Which tensor series, which points of each, and what becomes of those whose object is lost.

    Not in a URL: the answer to a GET may be kept by the client, and what is lost may be repaired.
    """

    lost: Literal["refuse", "name"] = Field(
        default="refuse",
        description="Where the object store has lost a tensor, or fails to read it: `refuse` the answer, or leave out "
        "the point and `name` it. With `name`, and `sampling=all`, the answer is one of frames "
        f"(`{FRAMES_MEDIA_TYPE}`), in which the bytes of any other `format` stand beside the points that were left "
        "out.",
    )

    def _check(self) -> None:
        super()._check()
        if self.lost == "name" and (self.sampling is not SamplingRule.ALL or self.last is not None):
            raise Invalid("'lost=name' goes with 'sampling=all', and without 'last'")


class ScalarSampleQuery(SampleQuery, ScalarSeriesQuery):
    """Which scalar series, and which points of each."""


class ScalarSampleInUrl(ScalarSampleQuery):
    """The same in a URL."""

    model_config = ConfigDict(strict=False)


class BlobSampleQuery(SampleQuery):
    """Which blob sequence series, which points of each, and which blobs of each point."""

    index_min: int | None = Field(
        default=None, ge=0, le=_COUNT_MAX, description="Inclusive; the first blob is 0"
    )
    index_max: int | None = Field(default=None, ge=0, le=_COUNT_MAX, description="Inclusive")
    index_last: int | None = Field(
        default=None, ge=0, le=_COUNT_MAX, description="Of each point only its last blobs"
    )

    def indices(self) -> slice:
        """The blobs of each point that are asked for. Raises Invalid for what does not go together."""
        if self.index_last is None:
            return slice(self.index_min, None if self.index_max is None else self.index_max + 1)
        if self.index_min is not None or self.index_max is not None:
            raise Invalid(
                "'index_last' does not go with 'index_min' and 'index_max': give one or the other"
            )
        return slice(-self.index_last if self.index_last else _COUNT_MAX, None)


class BlobSampleInUrl(BlobSampleQuery):
    """The same in a URL."""

    model_config = ConfigDict(strict=False)
