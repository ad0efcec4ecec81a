"""The data routes with a native handler; the stock application answers all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.responses import Response
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request

from tbservice.reading.comparison import Source
from tbservice.tensorboard import stock_application, wsgi_bridge
from tbservice.tensorboard.native import (
    hparams,
    page_state,
    plugins_listing,
    scalars,
    tags,
    time_series,
)
from tbservice.tensorboard.native.confinement import IS_PROCESS_KEY
from tbservice.tensorboard.provider import READER_KEY

HANDLERS: Final[dict[str, Callable[[Source, Request], Response]]] = {
    "/data/tbhub_state": page_state.read_state,
    "/data/plugins_listing": plugins_listing.list_plugins,
    "/data/plugin/hparams/download_data": hparams.download,
    "/data/plugin/hparams/experiment": hparams.get_experiment,
    "/data/plugin/hparams/metric_evals": hparams.list_metric_evals,
    "/data/plugin/hparams/session_groups": hparams.list_session_groups,
    "/data/plugin/scalars/scalars": scalars.read_run,
    "/data/plugin/scalars/scalars_multirun": scalars.read_runs,
    "/data/plugin/scalars/tags": tags.list_scalars,
    "/data/plugin/timeseries/tags": tags.list_metrics,
    "/data/plugin/timeseries/timeSeries": time_series.read_cards,
}


def is_native(environ: Mapping[str, Any]) -> bool:
    """Return whether the request's path has a native handler."""
    return environ["PATH_INFO"].rstrip("/") in HANDLERS


def dispatch(environ: dict[str, Any], *, is_process: bool) -> Response:
    """Answer a request whose environment is bound to its source (`bind_source`).

    `is_process` says whether this is a handler process; elsewhere, NeedsProcess is raised for data
    that only a handler process may work on. werkzeug's HTTP errors become responses.
    """
    handler = HANDLERS.get(environ["PATH_INFO"].rstrip("/"))
    if handler is None:
        return wsgi_bridge.call_wsgi(stock_application.get_stock_application(), environ)
    environ[IS_PROCESS_KEY] = is_process
    try:
        return handler(environ[READER_KEY], Request(environ))
    except HTTPException as error:  # as MethodNotAllowed: it is a WSGI application itself
        return wsgi_bridge.call_wsgi(error, environ)
