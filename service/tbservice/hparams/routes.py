"""Routes of the HParams API: columns, session groups and metrics, as proto3 JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import Depends, Query, Request, Response

from tbservice import limits
from tbservice.api.http.body import read_body
from tbservice.api.http.dependencies import MayRead, UsesDatabase, UsesObjects
from tbservice.api.http.grant_route import look_up_grants
from tbservice.api.http.routers import make_router
from tbservice.hparams import encoding, openapi, requests, use_cases
from tbservice.reading.source import ExperimentReader

router = make_router(prefix="/api/v1/experiments/{experiment_id}/hparams", tags=["hparams"])

_JSON: Final = "application/json"


async def _read_body(_grant: MayRead, request: Request) -> bytes:
    await look_up_grants(request)
    return await read_body(request, limits.JSON_BODY_BYTES_MAX, limits.REQUEST_BODY_SECONDS_MAX)


_Body = Annotated[bytes, Depends(_read_body)]


_PerSession = Annotated[bool, Query(description="Return each session as a group alone")]


def _describe(request: str, response: dict[str, Any]) -> dict[str, Any]:
    """Return what OpenAPI says of a route: its bodies are parsed and written past pydantic."""
    return {
        "response_class": Response,
        "responses": {200: {"content": {_JSON: {"schema": response}}}},
        "openapi_extra": {
            "requestBody": {
                "required": True,
                "content": {_JSON: {"schema": openapi.REQUESTS[request]}},
            }
        },
    }


@router.post("/experiment", **_describe("GetExperimentRequest", openapi.EXPERIMENT))
def list_columns(
    grant: MayRead, body: _Body, database: UsesDatabase, objects: UsesObjects
) -> Response:
    """Return the columns of the experiment: its hyperparameters and metrics, declared or seen.

    Hyperparameters that differ between sessions are first, then by name. `docs/hparams.md` has the
    rules.
    """
    source = ExperimentReader(grant, database, objects)
    schema = use_cases.get_experiment(source, requests.parse_experiment_request(body))
    return Response(encoding.encode_schema(schema), media_type=_JSON)


@router.post(
    "/session_groups",
    **_describe("ListSessionGroupsRequest", openapi.SESSION_GROUPS),
)
def list_session_groups(
    grant: MayRead,
    body: _Body,
    database: UsesDatabase,
    objects: UsesObjects,
    per_session: _PerSession = False,
) -> Response:
    """List session groups with their sessions, filtered, sorted, and a slice at a time.

    `allowed_statuses` and `slice_size` are empty and 0 by default: then there are no groups. With
    `per_session`, each session is a group alone, with the name of its group: so it shows its own
    hyperparameters, and a slice is one of sessions, by name.
    """
    request = requests.parse_session_groups_request(body)
    source = ExperimentReader(grant, database, objects)
    page = use_cases.list_session_groups(source, replace(request, is_per_session=per_session))
    return Response(encoding.encode_session_groups(page.groups, page.total_size), media_type=_JSON)


@router.post("/metric_evals", **_describe("ListMetricEvalsRequest", openapi.METRIC_EVALS))
def list_metric_evals(
    grant: MayRead, body: _Body, database: UsesDatabase, objects: UsesObjects
) -> Response:
    """List points of a session's metric, at most 1,000: `[[wall_time, step, value], …]`."""
    source = ExperimentReader(grant, database, objects)
    points = use_cases.list_metric_evals(source, requests.parse_metric_evals_request(body))
    return Response(encoding.encode_metric_evals(points), media_type=_JSON)
