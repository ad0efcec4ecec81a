"""Sites that may show TensorBoard's pages in a frame: none, or those that the operator names.

Pages of people (accounts, links, tokens) and the token form are in no frame, whatever is named.
"""

from __future__ import annotations

from starlette.requests import Request

from tbservice.api.http.dependencies import get_settings


def frame_ancestors(request: Request, *others: str) -> str:
    """Return the directive `frame-ancestors` with the operator's origins and `others`."""
    sources = [*others, *get_settings(request).frame_ancestors] or ["'none'"]
    return f"frame-ancestors {' '.join(sources)}"
