"""Routes that set the hyperparameters and the status of a run's session."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    FiniteFloat,
    PlainValidator,
    WithJsonSchema,
)

from tbservice import limits
from tbservice.api.http.dependencies import MayAppend, UsesIngest
from tbservice.api.http.request_models import FewFields
from tbservice.api.http.routers import make_router
from tbservice.errors import TooLarge
from tbservice.ingest.session_records import SessionFields
from tbservice.types.series import HparamValue, SessionStatus

SESSION_TIME_SECONDS_MAX: Final = 253_402_300_799
"""Seconds since the epoch of a session's start or end: the end of the year 9999."""

router = make_router(prefix="/api/v1/experiments/{experiment_id}/runs", tags=["uploads"])

_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Numbers that JSON cannot express, as the strings that this API has for them."""


def _read_value(value: Any) -> HparamValue:
    """Return the value of a hyperparameter. Raise ValueError for lists, objects and NaN literals.

    A plain validator, since a union would report each wrong value once per type.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _NOT_FINITE.get(value, value)
    if isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise ValueError(
                'is not a finite 64-bit number (send "NaN", "Infinity", "-Infinity" as strings)'
            )
        return number
    raise ValueError("must be a number, a string, true, false or null")


def _check_count(hparams: object) -> object:
    """Raise TooLarge for too many hyperparameters: 1 MiB could cause 100,000 errors."""
    if isinstance(hparams, dict) and len(hparams) > limits.SESSION_HPARAMS_ITEMS_MAX:
        limit = f"{limits.SESSION_HPARAMS_ITEMS_MAX} hyperparameters (session_hparams_items_max)"
        raise TooLarge(f"hparams: a session has at most {limit}; this has {len(hparams)}")
    return hparams


_Value = Annotated[
    HparamValue,
    PlainValidator(_read_value),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number"},
                {"type": "string"},
                {"type": "boolean"},
                {"type": "null"},
            ]
        }
    ),
]
_Text = Annotated[str | None, Field(max_length=limits.NAME_CHARS_MAX)]
_Seconds = Annotated[FiniteFloat | None, Field(ge=0, le=SESSION_TIME_SECONDS_MAX)]


class SessionChange(FewFields, strict=True):
    """Fields to set of a run's session.

    A field that is absent, null, an empty text or the time 0 keeps what the session has.
    """

    hparams: Annotated[dict[str, _Value] | None, BeforeValidator(_check_count)] = Field(
        default=None,
        description="Hyperparameters by name; others that the session has are kept. A number may "
        'be the string "NaN", "Infinity" or "-Infinity"; null is one without a value',
        json_schema_extra={"maxProperties": limits.SESSION_HPARAMS_ITEMS_MAX},
    )
    group_name: _Text = Field(
        default=None, description="Name of the session group; a run without is a group of its own"
    )
    model_uri: _Text = Field(default=None, description="Where the model is stored")
    monitor_url: _Text = Field(default=None, description="Where the session can be watched")
    start_time_secs: _Seconds = Field(default=None, description="Start, in seconds since the epoch")
    status: Literal["unknown", "success", "failure", "running"] | None = Field(
        default=None, description="`running` also removes the end that was set before"
    )
    end_time_secs: _Seconds = Field(default=None, description="End, in seconds since the epoch")

    def to_fields(self) -> SessionFields:
        """Return the change as the use case takes it."""
        fields = self.model_dump(exclude={"hparams", "status"})
        status = None if self.status is None else SessionStatus[self.status.upper()]
        return SessionFields(self.hparams or {}, **fields, status=status)


class SessionAnswer(BaseModel):
    """Result of a change of a session."""

    run: str
    changed: bool = Field(description="False if the session had all of it already")


_IfAbsent = Annotated[
    bool, Query(description="Set nothing if the run has hyperparameters, logged or set before")
]


@router.put("/{run:path}/hparams")
def set_hparams(
    grant: MayAppend,
    run: str,
    change: SessionChange,
    ingest: UsesIngest,
    if_absent: _IfAbsent = False,
) -> SessionAnswer:
    """Set hyperparameters, status and other properties of a run's session.

    It stores what a training script would have logged for TensorBoard's HParams plugin, and creates
    the run if necessary. Hyperparameters that are not named are kept; repeating a request changes
    nothing. Use `PUT …/runs/hparams?run=` for names with `.` or `..` between slashes, as the root
    run's: many clients remove these from paths.
    """
    changed = ingest.set_session(grant, run, change.to_fields(), only_if_absent=if_absent)
    return SessionAnswer(run=run, changed=changed)


@router.put("/hparams")
def set_hparams_of_named_run(
    grant: MayAppend,
    run: Annotated[str, Query(description="Name of the run; the root run is `.`")],
    change: SessionChange,
    ingest: UsesIngest,
    if_absent: _IfAbsent = False,
) -> SessionAnswer:
    """Set hyperparameters as `PUT …/runs/{run}/hparams` does, for any name of a run."""
    return set_hparams(grant, run, change, ingest, if_absent)
