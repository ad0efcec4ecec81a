"""Native HParams routes, over the package that answers the HParams API.

Both front ends use them: the HParams dashboard, and the run table of the Time Series dashboard. The
stock handlers are in `tensorboard/plugins/hparams/hparams_plugin.py`. `docs/hparams.md` lists the
answers that differ because the stock ones are wrong.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

import orjson
from starlette.responses import Response
from werkzeug.wrappers import Request

from tbservice import limits
from tbservice.errors import Invalid, MalformedRequest, NotFound, ServiceError, TooLarge
from tbservice.hparams import encoding, requests, use_cases
from tbservice.hparams.requests import ExperimentRequest, SessionGroupsRequest
from tbservice.hparams.schema import complete
from tbservice.hparams.values import common_type, value_key
from tbservice.reading.comparison import Source
from tbservice.tensorboard.native import hparams_download, json_answers
from tbwire.hparams import DeclaredHparam, Domain, HparamType, HparamValue, Interval

_Handler = Callable[[Source, Request], Response]
_PLAIN: Final = "text/plain; charset=utf-8"

_CHECK_BOX_ITEMS_MAX: Final = 9
"""Values that the HParams dashboard shows as check boxes; for more, it asks for an expression."""


def _with_plain_errors(handler: _Handler) -> _Handler:
    """Answer errors of a request in plain text, with the stock status 400, or 404.

    The page shows the text. The run table never asks again after any other status than 400, also
    not 413.
    """

    @functools.wraps(handler)
    def handle(source: Source, request: Request) -> Response:
        try:
            return handler(source, request)
        except (MalformedRequest, Invalid, TooLarge, NotFound) as error:
            return _error_response(error)

    return handle


def _error_response(error: ServiceError) -> Response:
    status = error.status if isinstance(error, NotFound) else MalformedRequest.status
    return Response(f"{error.detail}\n", status, media_type=_PLAIN)


@_with_plain_errors
def get_experiment(source: Source, request: Request) -> Response:
    """Answer `experiment` with the columns, and the name that a summary declares.

    The run table asks for those without metrics, then for the values of all of them in one request;
    it gets the columns that fit the limits of that request, since it shows nothing of one that is
    refused.
    """
    wanted = requests.parse_experiment_request(_read_message(request), is_name_required=False)
    if not wanted.includes_metrics:
        columns_max = limits.HPARAMS_COLUMN_ITEMS_MAX
        wanted = replace(
            wanted,
            hparams_limit=min(wanted.hparams_limit or columns_max, columns_max),
            values_max=limits.HPARAMS_RESPONSE_ITEMS_MAX,
        )
    schema = use_cases.get_experiment(source, _without_name(wanted), cover)
    schema = replace(schema, name=schema.declared_name or schema.name)
    return json_answers.compressed_response(request, [encoding.encode_schema(schema)])


@_with_plain_errors
def list_session_groups(source: Source, request: Request) -> Response:
    """Answer `session_groups` with a slice of the groups."""
    wanted = _session_groups_request(request)
    page = use_cases.list_session_groups(source, wanted, cover)
    return json_answers.compressed_response(
        request, [encoding.encode_session_groups(page.groups, page.total_size)]
    )


@_with_plain_errors
def list_metric_evals(source: Source, request: Request) -> Response:
    """Answer `metric_evals` with the points of a session's metric."""
    wanted = requests.parse_metric_evals_request(_read_message(request))
    points = use_cases.list_metric_evals(source, replace(wanted, experiment_name=""))
    return json_answers.compressed_response(request, [encoding.encode_metric_evals(points)])


@_with_plain_errors
def download(source: Source, request: Request) -> Response:
    """Answer `download_data` with the groups as the page shows them: CSV, LaTeX or JSON."""
    layout = request.args.get("format", "")
    if layout not in hparams_download.MEDIA_TYPES:
        known = ", ".join(hparams_download.MEDIA_TYPES)
        raise MalformedRequest(f"format: must be one of {known}")
    visibility = _parse_visibility(request.args.get("columnsVisibility", ""))
    wanted = _session_groups_request(request)
    groups = use_cases.list_session_groups(source, wanted, cover).groups
    schema = use_cases.get_experiment(source, ExperimentRequest("", wanted.includes_metrics))
    columns = hparams_download.list_columns(wanted.columns, schema, visibility)
    content = hparams_download.render(layout, columns, groups)
    return json_answers.compressed_response(
        request, [content], hparams_download.MEDIA_TYPES[layout]
    )


def _read_message(request: Request) -> bytes:
    """Return the message: the body of a POST, else the parameter `request`."""
    if request.method == "POST":
        return request.get_data()
    return request.args.get("request", "").encode()


def _session_groups_request(request: Request) -> SessionGroupsRequest:
    """Return the request, for which values that are not finite are missing.

    In JSON they are strings, for which the front ends have no place on a numeric axis, and which
    the run table takes for values outside of the domain. The stock handlers leave them out, too.
    """
    wanted = requests.parse_session_groups_request(_read_message(request))
    return replace(wanted, experiment_name="", is_finite_only=True)


def _without_name(wanted: ExperimentRequest) -> ExperimentRequest:
    """Return the request without the experiment's name: the page has a made-up one for all."""
    return replace(wanted, experiment_name="")


def _parse_visibility(text: str) -> list[bool]:
    try:
        flags = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise MalformedRequest("columnsVisibility: must be a JSON list") from error
    if not isinstance(flags, list):
        raise MalformedRequest("columnsVisibility: must be a JSON list")
    return [bool(flag) for flag in flags]


def cover(column: DeclaredHparam, seen: Collection[HparamValue]) -> DeclaredHparam:
    """Return a column with type and domain: as `complete`, but the domain has all finite values.

    The run table hides each run that has a value outside of the domain, and a value of another type
    than the others is outside of an interval. The HParams dashboard makes no check box for values
    outside, a numeric axis of columns of numbers, and asks for an expression if there are too many
    check boxes: a column with values of another type than its own becomes one of strings. If there
    are more numbers than check boxes, the domain is an interval, as there is no expression for
    numbers.
    """
    completed = complete(column, seen)
    values = sorted({value_key(value): value for value in seen if _is_finite(value)}.items())
    finite = [value for _, value in values]
    numbers = [value for value in finite if type(value) is float]
    if completed.type is HparamType.DATA_TYPE_FLOAT64 and len(numbers) == len(finite):
        return replace(completed, domain=_cover_numbers(completed.domain, numbers))

    is_uniform = common_type(finite) in {HparamType.DATA_TYPE_UNSET, completed.type}
    type_ = completed.type if is_uniform else HparamType.DATA_TYPE_STRING
    declared = column.domain if isinstance(column.domain, tuple) else ()
    return replace(completed, type=type_, domain=_unite(declared, finite) or None)


def _cover_numbers(domain: Domain, numbers: Collection[float]) -> Domain:
    if isinstance(domain, tuple):
        united = _unite(domain, numbers)
        if len(united) <= _CHECK_BOX_ITEMS_MAX:
            return united
        numbers = [value for value in united if isinstance(value, float) and math.isfinite(value)]
    bounds = (domain.min_value, domain.max_value) if isinstance(domain, Interval) else ()
    known = [value for value in (*bounds, *numbers) if not math.isnan(value)]
    return Interval(min(known), max(known)) if known else None


def _unite(
    declared: Collection[HparamValue], others: Collection[HparamValue]
) -> tuple[HparamValue, ...]:
    return tuple({value_key(value): value for value in (*declared, *others)}.values())


def _is_finite(value: HparamValue) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
