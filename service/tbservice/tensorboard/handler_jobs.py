"""Jobs of handler processes: TensorBoard's data routes, and the native ones on untrusted data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tensorboard import plugin_util

from tbservice.handlers.job_loop import WorkerLink
from tbservice.tensorboard import stock_application, wsgi_bridge
from tbservice.tensorboard.native import routes
from tbservice.tensorboard.plugins import markdown
from tbservice.tensorboard.remote_reader import SourceDescription, open_remote_source

RawAnswer = tuple[int, list[tuple[bytes, bytes]], bytes]
"""Status, headers (as in ASGI: lower-case names, Latin-1) and body of a response."""


def answer_request(
    link: WorkerLink, environ: Mapping[str, Any], body: bytes, about: SourceDescription
) -> RawAnswer:
    """Answer one data route in this handler process.

    Args:
        link: The connection by which the worker reads for this process.
        environ: The WSGI environment of the request, without its streams.
        body: The complete body of the request.
        about: The source that the request was granted.
    """
    markdown.start_time_budget()
    full_environ = wsgi_bridge.with_streams(environ, body)
    stock_application.bind_source(full_environ, open_remote_source(link, about))
    response = routes.dispatch(full_environ, is_process=True)
    return response.status_code, response.raw_headers, bytes(response.body)


JOBS: Final[dict[str, Callable[..., Any]]] = {"answer_request": answer_request}

# At import, which is before the processes are forked: otherwise the first request of each process
# would wait for TensorBoard's plugins and for the Markdown converter to load.
stock_application.get_stock_application()
markdown.install()
plugin_util.markdown_to_safe_html("[a](b) | c")
