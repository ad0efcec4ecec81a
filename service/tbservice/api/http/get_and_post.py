"""Registration of read routes that accept their query in the URL (GET) or in a JSON body (POST)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query
from pydantic import BaseModel

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


def get_and_post(
    router: APIRouter, path: str, url_model: type[BaseModel], *, post_for: str, **options: Any
) -> Callable[[_Endpoint], _Endpoint]:
    """Decorate an endpoint to register it for both GET and POST on the same path.

    The endpoint has a parameter `query`, annotated with the model of the JSON body. The POST route
    has the endpoint's name and the suffix `_by_post`.

    Args:
        router: Router of both routes.
        path: Path of both routes, relative to the router's prefix.
        url_model: Model of `query` in the GET route. In a URL every value is text, so that this
            model is usually a lax (not strict) subclass of the body's.
        post_for: What needs a POST; completes its description "As GET, for …".
        **options: Other options of both routes, as for `APIRouter.get`.
    """

    def register(endpoint: _Endpoint) -> _Endpoint:
        name, description = endpoint.__name__, inspect.getdoc(endpoint)
        get_endpoint = _replace_query_model(endpoint, Annotated[url_model, Query()])
        router.get(path, name=name, description=description, **options)(get_endpoint)

        name, description = f"{name}_by_post", f"As GET, for {post_for}."
        router.post(path, name=name, description=description, **options)(endpoint)
        return endpoint

    return register


def _replace_query_model(endpoint: Callable[..., Any], annotation: Any) -> Callable[..., Any]:
    """Return a copy of the endpoint with this annotation of its parameter `query`.

    FastAPI reads parameters from the signature. The copy is a partial object, and no wrapper
    function, so that FastAPI still sees whether the endpoint is a coroutine function.
    """
    signature = inspect.signature(endpoint, eval_str=True)
    parameters = dict(signature.parameters)
    parameters["query"] = parameters["query"].replace(annotation=annotation)

    copy = functools.partial(endpoint)
    # The attribute is unknown to type stubs; `inspect.signature` returns it.
    copy.__signature__ = signature.replace(parameters=list(parameters.values()))  # type: ignore[attr-defined]
    return copy
