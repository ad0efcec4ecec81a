"""Base of request models; parameters that several routes have: names, pages of lists."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from tbservice import limits
from tbservice.api.http.query_names import describe_unknown
from tbservice.errors import Invalid
from tbservice.types.sampling import ALL_STEPS, StepRange


def _check_names(names: object) -> object:
    """Raise one error for all names that are not strings: a body of 1 MiB could cause 500,000."""
    if isinstance(names, list) and not all(isinstance(name, str) for name in names):
        raise ValueError("each name must be a string")
    return names


Names = Annotated[list[str] | None, BeforeValidator(_check_names)]
"""Names of runs or tags; None selects all."""

After = Annotated[str | None, Query(description="`next` of the previous page")]
"""Page token of a list; None for its beginning."""


def page_limit(items: str) -> Any:
    """Return the parameter for how many `items` a page has, at most `PAGE_ITEMS_MAX`."""
    return Query(ge=1, le=limits.PAGE_ITEMS_MAX, description=f"Maximum {items} per page")


class FewFields(BaseModel):
    """Base of request models: unknown fields are one error, which says what may be meant."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, fields: object) -> object:
        if isinstance(fields, dict):
            problem = describe_unknown("field", fields, cls.model_fields)
            if problem:
                raise PydanticCustomError("unknown_field", "{problem}", {"problem": problem})
        return fields


class StepRangeFields(FewFields):
    """A range of steps: all of them by default."""

    step_min: int = Field(
        default=ALL_STEPS.first,
        ge=ALL_STEPS.first,
        le=ALL_STEPS.last,
        description="Lowest step, inclusive",
    )
    step_max: int = Field(
        default=ALL_STEPS.last,
        ge=ALL_STEPS.first,
        le=ALL_STEPS.last,
        description="Highest step, inclusive",
    )

    def to_range(self) -> StepRange:
        """Return the range; raises Invalid for an empty one."""
        if self.step_min > self.step_max:
            raise Invalid("'step_min' is greater than 'step_max'")
        return StepRange(self.step_min, self.step_max)
