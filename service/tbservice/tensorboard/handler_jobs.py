"""What handler processes do for a page: any of TensorBoard's data routes, and those of ours that meet hostile data."""

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
"""Status, headers and body."""


def answer_request(
    link: WorkerLink, environ: Mapping[str, Any], body: bytes, about: SourceDescription
) -> RawAnswer:
    """Answer a request with this WSGI environment, which lacks the streams."""
    markdown.start_time_budget()
    whole = wsgi_bridge.with_streams(environ, body)
    stock_application.bind_source(whole, open_remote_source(link, about))
    response = routes.dispatch(whole, is_process=True)
    return response.status_code, response.raw_headers, bytes(response.body)


JOBS: Final[dict[str, Callable[..., Any]]] = {"answer_request": answer_request}

# Once, before the processes are forked: what the first request of each would wait for.
stock_application.get_stock_application()
markdown.install()
plugin_util.markdown_to_safe_html("[a](b) | c")
