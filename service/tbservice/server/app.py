"""The application: routes, middleware, error responses and lifespan, put together."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import Response

from tbservice import metrics as figures
from tbservice import traces
from tbservice.admission.callers import CallerLookup
from tbservice.admission.listener import limit_connections
from tbservice.admission.middleware import AdmissionMiddleware
from tbservice.admission.pacing import PacingMiddleware
from tbservice.admission.worker_shares import WorkerShares
from tbservice.api.http.api_docs import add_docs
from tbservice.api.http.change_notifier import ChangeNotifier
from tbservice.api.http.head_requests import HeadMiddleware
from tbservice.api.http.methods import allowed_methods
from tbservice.api.http.observation import ObservationMiddleware, set_error_code
from tbservice.api.http.openapi_errors import Application
from tbservice.api.http.primary_retry import PrimaryRetryMiddleware
from tbservice.api.http.readiness import Readiness
from tbservice.api.http.request_id import HEADER, REQUEST_ID, RequestIdMiddleware
from tbservice.api.http.security_headers import NOSNIFF, SecurityHeadersMiddleware
from tbservice.api.http.shared_answers import SharedAnswers
from tbservice.api.http.traffic import TrafficMiddleware
from tbservice.auth.oidc.sign_in import SignIn
from tbservice.db.database import Database
from tbservice.db.schema import check_schema
from tbservice.errors import (
    CursorConflict,
    ObjectMissing,
    QuotaExceeded,
    RunDeleted,
    ServiceError,
    StartupError,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    forget_frames,
)
from tbservice.experiments.eraser import Eraser
from tbservice.handlers.pool import HandlerPool
from tbservice.ingest.door import Door
from tbservice.ingest.observers import CompactionQueue, LiveTails, PointMetrics
from tbservice.ingest.service import Ingest
from tbservice.integrity.sweeper import Sweeper
from tbservice.katib import run_rows
from tbservice.objects.object_store import ObjectStore
from tbservice.pages.base import errors as error_pages
from tbservice.pages.base import form_visits
from tbservice.pages.base.content_origin import ContentOriginMiddleware
from tbservice.pages.base.signed_in import SignInRequired
from tbservice.pages.base.static_files import static_url
from tbservice.pages.sign_in import sign_in
from tbservice.quotas.traffic import TrafficMeter
from tbservice.series.compactor import Compactor
from tbservice.series.summary_filler import SummaryFiller
from tbservice.server.grpc_service import GrpcService
from tbservice.server.logs import log_failure
from tbservice.server.quota_administration import apply_plans
from tbservice.server.routes import PAGE_MODULES, ROUTER_MODULES
from tbservice.server.signals import ForcedExit, on_shutdown_signal
from tbservice.settings import Settings
from tbservice.tensorboard.mount import mount
from tbservice.types.sign_up import SignUp

_log = logging.getLogger(__name__)

HANDLER_MODULES: Final = (
    "tbservice.tensorboard.handler_jobs",
    "tbservice.api.v0_classic.graph_text",
    "tbservice.pages.experiments.card_jobs",
)
"""Modules with the jobs of handler processes; only those processes import them."""

_HANDLERS_START_SECONDS: Final = 2.0
"""Seconds after the start until TensorBoard is imported for handler processes, unless a page needs
it before: that takes a second of processor time, which uploads that wait for the service need.
"""

_PROBLEMS_SHOWN = 10
"""Validation problems that one error response lists."""

_UNPARSED = "model_attributes_type"
"""Pydantic's type of a body that is no object. FastAPI parses none without a media type of JSON."""

_SEND_JSON = "body: it is not sent as JSON; add the header 'Content-Type: application/json'"
"""Advice for a body as `curl --data` sends it by itself, as a form."""

_DESCRIPTION = """A hosted service for TensorBoard data. Send `Authorization: Bearer <token>`. An
error is `{"code", "detail"}`: the code is for programs, the detail says what to do. Numbers that
are not finite are the strings "NaN", "Infinity" and "-Infinity".
"""


def create_app(settings: Settings) -> FastAPI:
    """Create the application. It connects to nothing until its lifespan starts.

    The lifespan calls `prepare_backends`, unless that was called before.
    """
    app = Application(
        title="tbhub",
        version=version("tbhub"),
        description=_DESCRIPTION,
        license_info={"name": "Apache 2.0", "identifier": "Apache-2.0"},
        servers=[{"url": settings.public_url.rstrip("/")}],
        openapi_url=None,  # `add_docs` serves it, and a page; FastAPI's loads from a CDN
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # the redirect would contain the Host of the request
        lifespan=_lifespan,
    )

    app.state.settings = settings
    app.state.is_prepared = False
    app.state.stop_traces = lambda: None
    read_url = settings.read_database_url
    app.state.database = Database(
        settings.database_url.get_secret_value(),
        settings.database_pool_size,
        None if read_url is None else read_url.get_secret_value(),
    )
    figures.observe_pool_size(settings.database_pool_size)
    app.state.objects = ObjectStore(settings)
    app.state.shares = WorkerShares(settings.database_pool_size)
    app.state.traffic = TrafficMeter(app.state.database)
    app.state.readiness = Readiness(app.state.database, app.state.objects)
    app.state.compactor = Compactor(app.state.database)
    app.state.summaries = SummaryFiller(app.state.database)
    app.state.eraser = Eraser(app.state.database)
    app.state.sweeper = _make_sweeper(app.state.database, app.state.objects, settings)
    app.state.notifier = ChangeNotifier(app.state.database)
    app.state.ingest = Ingest(app.state.objects, _make_door(app))
    app.state.shared_answers = SharedAnswers()
    app.state.sign_up = SignUp.parse(settings.sign_up)
    app.state.sign_in = SignIn(settings.oidc_providers, settings.public_url, app.state.sign_up)

    run_rows.register()
    for module in (*ROUTER_MODULES, *PAGE_MODULES):
        app.router.routes.extend(module.router.routes)
    # Before TensorBoard's page, which answers all other paths of an experiment.
    forms = [route for module in PAGE_MODULES for route in module.router.routes]
    app.router.routes.extend(form_visits.make_routes(forms))
    app.state.handlers = HandlerPool(*HANDLER_MODULES)
    app.state.grpc = GrpcService(app.state)
    app.state.forced_exit = ForcedExit()
    add_docs(app, static_url)
    mount(app)

    _add_middleware(app, settings)
    _add_error_handlers(app)
    return app


def _make_door(app: FastAPI) -> Door:
    compaction = CompactionQueue(app.state.compactor)
    tails = LiveTails(app.state.notifier.note_commit)
    return Door(app.state.database, [PointMetrics(), compaction, tails])


def _make_sweeper(database: Database, objects: ObjectStore, settings: Settings) -> Sweeper:
    return Sweeper(
        database,
        objects,
        settings.sweep_hours,
        settings.sweep_older_than_days,
        settings.sweep_objects_per_second,
    )


def _add_middleware(app: FastAPI, settings: Settings) -> None:
    # The middleware added last is the outermost.
    limit_connections(settings.requests_per_second, settings.trusted_proxies)
    callers = CallerLookup(app.state.database)
    if settings.read_database_url is not None:
        app.add_middleware(PrimaryRetryMiddleware)
    app.add_middleware(
        TrustedHostMiddleware, allowed_hosts=_list_hosts(settings), www_redirect=False
    )
    app.add_middleware(
        AdmissionMiddleware,
        database=app.state.database,
        shares=app.state.shares,
        callers=callers,
        refuse=error_pages.refuse,
    )
    if settings.content_url is not None:
        # Before admission: there too, nobody is signed in on the content origin.
        app.add_middleware(ContentOriginMiddleware, content_url=settings.content_url)
    app.add_middleware(HeadMiddleware)  # outside of what counts and shortens responses
    app.add_middleware(TrafficMiddleware, meter=app.state.traffic)  # outside of that: what is sent
    app.add_middleware(SecurityHeadersMiddleware)
    app.add_middleware(ObservationMiddleware)  # outside the others: it counts what they refuse
    app.add_middleware(  # outside of all that works
        PacingMiddleware, callers=callers, requests_per_second=settings.requests_per_second
    )
    app.add_middleware(RequestIdMiddleware)  # outermost: whatever is logged has the id


def _list_hosts(settings: Settings) -> list[str]:
    """Return the accepted Host headers: the setting, and the content origin's."""
    content_host = urlsplit(settings.content_url or "").hostname
    return [*settings.allowed_hosts, *([content_host] if content_host else [])]


def prepare_backends(app: FastAPI) -> None:
    """Check the database's schema and create the bucket if it is missing.

    Starts traces, too.

    Raises SchemaMismatch if a migration is missing, Unavailable if PostgreSQL or S3 is, and
    StartupError if traces are wanted and OpenTelemetry is missing, or the plans are not readable.
    """
    check_schema(app.state.database)
    app.state.database.check_replica()
    app.state.objects.ensure_bucket()
    if app.state.settings.plans_file is not None:
        apply_plans(app.state.database, app.state.settings.plans_file)
    app.state.stop_traces = _start_traces(app.state.settings)
    app.state.is_prepared = True


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    def begin_stop() -> None:
        app.state.forced_exit.begin()
        app.state.notifier.close()
        app.state.grpc.begin_stop()

    with on_shutdown_signal(begin_stop):  # also while it starts
        await _start(app)
        loop = asyncio.get_running_loop()
        starting = loop.call_later(_HANDLERS_START_SECONDS, app.state.handlers.start)
        try:
            yield
        finally:
            starting.cancel()
            await _stop(app)


async def _start(app: FastAPI) -> None:
    if not app.state.is_prepared:
        await run_in_threadpool(prepare_backends, app)
    app.state.compactor.start()
    app.state.summaries.start()
    app.state.eraser.start()
    app.state.sweeper.start()
    app.state.traffic.start()
    await app.state.grpc.start()


def _start_traces(settings: Settings) -> Callable[[], None]:
    """Send traces to the endpoint of the settings, if there is one; return what ends that.

    Raises StartupError if OpenTelemetry is not installed.
    """
    if settings.traces_endpoint is None:
        return lambda: None
    try:
        from tbservice.server.open_telemetry import OpenTelemetry  # noqa: PLC0415 - optional
    except ImportError as error:
        raise StartupError(
            "TBHUB_TRACES_ENDPOINT is set, but OpenTelemetry is not installed: "
            "pip install 'tbhub[traces]', or unset it"
        ) from error
    tracer = OpenTelemetry(settings.traces_endpoint)
    traces.start(tracer)

    def stop() -> None:
        traces.start(None)
        tracer.stop()

    return stop


async def _stop(app: FastAPI) -> None:
    app.state.notifier.close()
    await app.state.notifier.wait_closed()
    await app.state.grpc.stop()
    app.state.handlers.close()
    # In a thread: it waits for a compaction in progress, and would block the event loop.
    app.state.summaries.stop()
    await run_in_threadpool(app.state.compactor.stop)
    await run_in_threadpool(app.state.eraser.stop)
    await run_in_threadpool(app.state.sweeper.stop)
    await run_in_threadpool(app.state.traffic.stop)
    # Cancels what is left, so that closing does not wait for a long read.
    await run_in_threadpool(app.state.database.stop)
    app.state.database.close()
    app.state.objects.close()
    await run_in_threadpool(app.state.stop_traces)


def _add_error_handlers(app: FastAPI) -> None:
    for kind, render in {
        SignInRequired: _redirect_to_sign_in,
        ServiceError: _render,
        RequestValidationError: _render_invalid,
        HTTPException: _render_http,
        UnicodeEncodeError: _render_unencodable,
    }.items():
        app.add_exception_handler(kind, _forgetting(render))
    app.add_exception_handler(Exception, _render_unexpected)  # its traceback will be logged


def _forgetting(
    render: Callable[[Request, Exception], Coroutine[Any, Any, Response]],
) -> Callable[[Request, Exception], Coroutine[Any, Any, Response]]:
    """Return a handler that also drops the error's traceback: nobody reads it."""

    async def render_and_forget(request: Request, error: Exception) -> Response:
        response = await render(request, error)
        forget_frames(error)
        return response

    return render_and_forget


async def _redirect_to_sign_in(request: Request, _error: Exception) -> Response:
    return sign_in.redirect_to_sign_in(request)


async def _render(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)  # noqa: S101 - registered for these alone
    more: dict[str, int | str | list[int]] = {}
    headers = {}
    if isinstance(error, CursorConflict):
        more = {"segment": error.segment, "offset": error.offset, "checksum": error.checksum}
    if isinstance(error, RunDeleted) and error.segments:
        # The first one by itself, for uploaders that know no others.
        more = {"segment": error.segments[0], "segments": list(error.segments)}
    if isinstance(error, QuotaExceeded):
        more = {
            "quota": error.quota,
            "holder": error.holder,
            "used": error.used,
            "limit": error.limit,
            "remaining": max(0, error.limit - error.used),
            "needed": error.needed,
        }
        if error.resets is not None:
            more["resets_at"] = error.resets[0].isoformat()
            headers["Retry-After"] = str(error.resets[1])
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = _make_challenge(request)
    if isinstance(error, ObjectMissing):
        # It may be repaired, and caches may store a 410 (RFC 9110, 15.5.11).
        headers["Cache-Control"] = "no-store"
    if isinstance(error, TooManyRequests | Unavailable):
        headers["Retry-After"] = str(error.retry_after_seconds)
    if isinstance(error, Unavailable):
        _log.warning("unavailable: %s", error.__cause__)
    return _error_response(request, error.status, error.code, error.detail, headers, **more)


def _make_challenge(request: Request) -> str:
    """Return the value of `WWW-Authenticate`; the reason is for those who sent a token.

    RFC 6750, section 3.1: not for those who sent none, or used another scheme.
    """
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    is_token = scheme.lower() == "bearer" and bool(token.strip())
    return 'Bearer error="invalid_token"' if is_token else "Bearer"


async def _render_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for these alone
    problems = error.errors()[:_PROBLEMS_SHOWN]
    _forget_request(error)
    if any(problem["type"] == "json_invalid" for problem in problems):
        return _error_response(request, 400, "malformed", "the request body is not JSON")
    is_json = "json" in request.headers.get("content-type", "").lower()
    if not is_json and any(problem["type"] == _UNPARSED for problem in problems):
        return _error_response(request, 422, "invalid", _SEND_JSON)
    detail = "; ".join(
        f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems
    )
    return _error_response(request, 422, "invalid", detail)


def _forget_request(error: RequestValidationError) -> None:
    """Free what the client sent: the error stays in memory until a late garbage collection."""
    traceback.clear_frames(error.__traceback__)
    error.body = None
    for problem in error.errors():
        problem.pop("input", None)
        problem.pop("ctx", None)  # an error of ours; its traceback references the input too


async def _render_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for these alone
    if isinstance(error.__cause__, ServiceError):  # raised while the framework read the body
        return await _render(request, error.__cause__)
    codes = {404: "not_found", 405: "method_not_allowed"}
    code = codes.get(error.status_code, "malformed")
    headers = dict(error.headers or {})
    if "Allow" in headers:  # Starlette names the methods of only the first route with this path
        headers["Allow"] = ", ".join(allowed_methods(request.app.routes, request.scope))
    return _error_response(request, error.status_code, code, error.detail, headers)


async def _render_unencodable(request: Request, _error: Exception) -> Response:
    detail = "a string contains a lone surrogate (half of a character), which cannot be stored"
    return _error_response(request, 422, "invalid", detail)


async def _render_unexpected(request: Request, error: Exception) -> Response:
    """Log the error and respond with its id in the log."""
    error_id = log_failure(error)
    detail = (
        "the server failed to handle this request and stored nothing of it; "
        f"its log has the details under error id {error_id}"
    )
    own_id = {HEADER: REQUEST_ID.get()}  # this response passes no middleware
    return _error_response(request, 500, "internal", detail, own_id, id=error_id)


def _error_response(
    request: Request,
    status: int,
    code: str,
    detail: str,
    headers: Mapping[str, str] | None = None,
    **more: int | str | list[int],
) -> Response:
    set_error_code(request.scope, code)
    if error_pages.wants_page(request):
        return error_pages.show_error(request, status, detail, headers)
    # NOSNIFF, because the response to an unexpected error passes no middleware.
    return JSONResponse(
        {"code": code, "detail": detail, **more}, status, {**NOSNIFF, **(headers or {})}
    )
