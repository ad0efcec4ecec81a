"""Answers an ASGI request with a WSGI application, which runs in a thread or in a handler process.

Bridges that read the body or wait for a slow reader inside that thread can be blocked by a dozen slow clients. Here a
thread or a process is only ever held by work: it gets the whole body and gives back the whole answer.
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

# What TensorBoard's handlers raise, uncaught, when a parameter is absent or wrong, or a logged message is garbage.
_BAD_INPUT_ERRORS: Final = (
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
"""Characters of a path or an error in a log line: TensorBoard's errors hold all of a request's body."""

# Neither secrets nor connection management are the application's business.
_WITHHELD_HEADERS: Final = frozenset(
    {"authorization", "cookie", "connection", "content-length", "transfer-encoding"}
)


def wsgi_environ(request: Request, script_name: str, path: str, body: bytes) -> dict[str, Any]:
    """Return the WSGI environment of a request for `path` below `script_name`.

    Without the headers that carry secrets, and without the streams, which no other process could be given.
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
        "wsgi.input_terminated": True,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, value in request.headers.items():
        # An underscore would let a header pass for another one: both map to the same key.
        if name not in _WITHHELD_HEADERS and "_" not in name:
            key = "HTTP_" + name.upper().replace("-", "_")
            environ[key] = f"{environ[key]},{value}" if key in environ else value
    return environ


def with_streams(environ: Mapping[str, Any], body: bytes) -> dict[str, Any]:
    """Return the environment with the streams that a WSGI application reads and writes."""
    return {**environ, "wsgi.input": io.BytesIO(body), "wsgi.errors": sys.stderr}


def call_wsgi(application: WSGIApplication, environ: dict[str, Any]) -> Response:
    """Runs the application to its end and gives its whole answer; MalformedRequest when it chokes on the request."""
    start: list[tuple[str, list[tuple[str, str]]]] = []
    chunks: list[bytes] = []

    def start_response(
        status: str, headers: list[tuple[str, str]], _exc_info: _ExceptionInfo | None = None, /
    ) -> Callable[[bytes], object]:
        start[:] = [(status, headers)]
        return chunks.append

    try:
        _collect(application, environ, start_response, chunks)
    except _BAD_INPUT_ERRORS as error:
        if _is_raised_by_us(error):
            raise
        # The query stays out of the log: it may hold a token.
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        _log.warning(
            "TensorBoard refused %s %s: %s", method, _escape_for_log(path), _escape_for_log(error)
        )
        raise MalformedRequest("TensorBoard can make no sense of this request") from error
    return _as_response(*start[0], b"".join(chunks))


def _escape_for_log(value: object) -> str:
    """What a log line says of it: bounded, on one line and without control characters, whatever a client sent."""
    text = repr(value)
    shown = text[:_LOGGED_CHARS_MAX].encode("unicode_escape").decode("ascii")
    return shown if len(text) <= _LOGGED_CHARS_MAX else f"{shown}… ({len(text)} characters)"


def _collect(
    application: WSGIApplication,
    environ: dict[str, Any],
    start_response: StartResponse,
    chunks: list[bytes],
) -> None:
    answer: Iterable[bytes] = application(environ, start_response)
    try:
        chunks.extend(answer)
    finally:
        close = getattr(answer, "close", None)
        if close is not None:
            close()


def _is_raised_by_us(error: BaseException) -> bool:
    """Whether it came from our code, as the data provider: that is our failure, not the client's.

    Where our code has called TensorBoard's again, it is that which raised it.
    """
    modules: list[str] = [
        frame.f_globals.get("__name__", "")
        for frame, _line in traceback.walk_tb(error.__traceback__)
    ]
    innermost = [module for module in modules if module.startswith(("tbservice.", "tensorboard."))][
        -1
    ]
    return innermost.startswith("tbservice.") and innermost != __name__


def _as_response(status: str, headers: list[tuple[str, str]], body: bytes) -> Response:
    response = Response(body, int(status.split(" ", 1)[0]))
    # All of the application's own: Content-Length too, which for HEAD is not the length of the body.
    response.raw_headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers
    ]
    return response


def _as_wsgi(text: str) -> str:
    """A text as PEP 3333 wants it: the bytes of its UTF-8, one character each."""
    return text.encode().decode("latin-1")
