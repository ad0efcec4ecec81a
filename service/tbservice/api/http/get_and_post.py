"""Registration of read routes that accept their query in the URL (GET) or in a JSON body (POST)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, get_type_hints

from fastapi import APIRouter, Query
from pydantic import BaseModel, create_model

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


def get_and_post(
    router: APIRouter,
    path: str,
    *,
    post_for: str,
    url_model: type[BaseModel] | None = None,
    url_fields: Mapping[str, Any] | None = None,
    **options: Any,
) -> Callable[[_Endpoint], _Endpoint]:
    """Decorate an endpoint to register it for both GET and POST on the same path.

    The endpoint has a parameter `query`, annotated with the model of the JSON body. Every value in
    a URL is text, so the GET route has a subclass of the model that is not strict. The POST route
    has the endpoint's name and the suffix `_by_post`.

    Args:
        router: Router of both routes.
        path: Path of both routes, relative to the router's prefix.
        post_for: Reason for a POST; completes its description "As GET, for …".
        url_model: A base of the body's model, if its other fields are not accepted in a URL.
        url_fields: Fields that differ in a URL, by name.
        **options: Other options of both routes, as for `APIRouter.get`.
    """

    def register(endpoint: _Endpoint) -> _Endpoint:
        name, description = endpoint.__name__, inspect.getdoc(endpoint)
        model = url_model or get_type_hints(endpoint)["query"]
        in_url = _make_url_model(model, url_fields or {})
        get_endpoint = _replace_query_model(endpoint, Annotated[in_url, Query()])
        router.get(path, name=name, description=description, **options)(get_endpoint)

        name, description = f"{name}_by_post", f"As GET, for {post_for}."
        router.post(path, name=name, description=description, **options)(endpoint)
        return endpoint

    return register


def _make_url_model(model: type[BaseModel], fields: Mapping[str, Any]) -> type[BaseModel]:
    """Return a subclass that reads numbers and booleans from text, with these fields replaced."""
    types = get_type_hints(model)
    definitions: dict[str, Any] = {name: (types[name], field) for name, field in fields.items()}
    return create_model(
        f"{model.__name__}InUrl",
        __base__=model,
        __cls_kwargs__={"strict": False},
        **definitions,
    )


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
