"""Answer ASGI requests with a WSGI application (PEP 3333), in a thread or in a handler process.

The application gets the complete body and returns the complete response. Bridges such as a2wsgi
read the body and send the response inside the thread, so that a few slow clients block them all.
"""

from __future__ import annotations

import io
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication

from google.protobuf.json_format import Error as JsonFormatError
from google.protobuf.message import Error as MessageError
from starlette.requests import Request
from starlette.responses import Response

from tbservice.errors import MalformedRequest

_log = logging.getLogger(__name__)
_ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]

# Errors of TensorBoard's handlers, not caught there, for missing or wrong parameters, and for
# logged messages that cannot be parsed.
_BAD_INPUT_ERRORS: Final = (
    ArithmeticError,
    AttributeError,
    IndexError,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
    re.error,
    JsonFormatError,
    MessageError,
)

_LOGGED_CHARS_MAX: Final = 200
"""Characters of a path or error in a log line: TensorBoard's errors can contain the whole body."""

# Secrets, and headers about the connection: the application needs neither.
_WITHHELD_HEADERS: Final = frozenset(
    {"authorization", "cookie", "connection", "content-length", "transfer-encoding"}
)


def wsgi_environ(request: Request, script_name: str, path: str, body: bytes) -> dict[str, Any]:
    """Return the WSGI environment (PEP 3333) of a request, without secrets and without streams.

    The result can be sent to a handler process, where `with_streams` adds the streams.

    Args:
        request: The ASGI request.
        script_name: Path of the page, without a slash at its end.
        path: Path of the data route below `script_name`, beginning with a slash.
        body: The complete body.
    """
    host, port = request.scope.get("server") or ("localhost", 80)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": _as_wsgi(script_name),
        "PATH_INFO": _as_wsgi(path),
        "QUERY_STRING": request.scope["query_string"].decode("latin-1"),
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_TYPE": request.headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": request.url.scheme,
        # Werkzeug's own key: it may read to the end without a Content-Length.
        "wsgi.input_terminated": True,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, value in request.headers.items():
        # `X_Y` and `X-Y` map to the same key: drop the former, or a client could forge the latter.
        if name not in _WITHHELD_HEADERS and "_" not in name:
            key = "HTTP_" + name.upper().replace("-", "_")
            environ[key] = f"{environ[key]},{value}" if key in environ else value
    return environ


def with_streams(environ: Mapping[str, Any], body: bytes) -> dict[str, Any]:
    """Return a copy of the environment with `wsgi.input` over `body`, and `wsgi.errors`."""
    return {**environ, "wsgi.input": io.BytesIO(body), "wsgi.errors": sys.stderr}


def call_wsgi(application: WSGIApplication, environ: dict[str, Any]) -> Response:
    """Run the application and return its complete response.

    Raises MalformedRequest when TensorBoard's code fails with one of the errors that bad requests
    cause; an error of the same type from our code is raised as it is.
    """
    start: list[tuple[str, list[tuple[str, str]]]] = []
    chunks: list[bytes] = []

    def start_response(
        status: str, headers: list[tuple[str, str]], _exc_info: _ExceptionInfo | None = None, /
    ) -> Callable[[bytes], object]:
        # Replaced: PEP 3333 permits a second call, with exc_info, before anything is sent.
        start[:] = [(status, headers)]
        return chunks.append

    try:
        _collect(application, environ, start_response, chunks)
    except _BAD_INPUT_ERRORS as error:
        if _is_raised_by_us(error):
            raise
        # Do not log the query: it may contain a token.
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        _log.warning(
            "TensorBoard refused %s %s: %s", method, _escape_for_log(path), _escape_for_log(error)
        )
        raise MalformedRequest(
            "TensorBoard cannot process this request: check its parameters"
        ) from error
    return _as_response(*start[0], b"".join(chunks))


def _escape_for_log(value: object) -> str:
    """Return the value for a log line: one line of ASCII without control characters, bounded."""
    text = repr(value)
    shown = text[:_LOGGED_CHARS_MAX].encode("unicode_escape").decode("ascii")
    return shown if len(text) <= _LOGGED_CHARS_MAX else f"{shown}… ({len(text)} characters)"


def _collect(
    application: WSGIApplication,
    environ: dict[str, Any],
    start_response: StartResponse,
    chunks: list[bytes],
) -> None:
    body: Iterable[bytes] = application(environ, start_response)
    try:
        chunks.extend(body)
    finally:
        # PEP 3333: "If the iterable returned by the application has a close() method, the server …
        # must call that method".
        close = getattr(body, "close", None)
        if close is not None:
            close()


def _is_raised_by_us(error: BaseException) -> bool:
    """Return whether our code raised the error, as the data provider may: then it is our bug.

    The innermost frame of ours or TensorBoard's decides: our code may call TensorBoard's again.
    """
    modules: list[str] = [
        frame.f_globals.get("__name__", "")
        for frame, _line in traceback.walk_tb(error.__traceback__)
    ]
    relevant = [name for name in modules if name.startswith(("tbservice.", "tensorboard."))]
    innermost = relevant[-1]
    return innermost.startswith("tbservice.") and innermost != __name__


def _as_response(status: str, headers: list[tuple[str, str]], body: bytes) -> Response:
    response = Response(body, int(status.split(" ", 1)[0]))
    # Replace all headers: for HEAD, the application's Content-Length is not that of the empty body.
    response.raw_headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers
    ]
    return response


def _as_wsgi(text: str) -> str:
    """Return the text as a PEP 3333 "native string": one character for each byte of its UTF-8."""
    return text.encode().decode("latin-1")
