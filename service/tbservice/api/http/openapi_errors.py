"""Descriptions of error responses, and of 304, for the OpenAPI document, and its examples."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from tbservice.errors import (
    Conflict,
    Forbidden,
    MalformedRequest,
    NotAcceptable,
    NotFound,
    ObjectMissing,
    QuotaExceeded,
    RequestTimeout,
    ServiceError,
    Suspended,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)
from tbservice.types.identifiers import Json

Responses = dict[int | str, dict[str, Any]]

_EXAMPLES: Final = Path(__file__).with_name("openapi_examples.json")
"""Examples of the operations that are used most."""


class ErrorResponse(BaseModel):
    """Body of every error response."""

    model_config = ConfigDict(extra="allow")  # a cursor conflict includes the upload cursor

    code: str = Field(description="What happened, for programs")
    detail: str = Field(description="What happened and what to do, for people")


class InternalErrorResponse(ErrorResponse):
    """Body of the response when the server fails."""

    id: str = Field(description="Identifies the failure, or an identical one, in the service's log")


def _describe(model: type[BaseModel], description: str | None) -> dict[str, Any]:
    """Describe a response by a reference to its schema.

    FastAPI would make a validator of a `model` for each route and status, which nothing uses: a
    thousand of them, and a quarter of a second at the first request.
    """
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _describe_errors(*errors: type[ServiceError]) -> Responses:
    return {error.status: _describe(ErrorResponse, inspect.getdoc(error)) for error in errors}


ERROR_RESPONSES: Final[Responses] = _describe_errors(
    MalformedRequest,
    Unauthenticated,
    Forbidden,
    NotFound,
    RequestTimeout,
    Conflict,
    TooLarge,
    TooManyRequests,
    Suspended,
    Unavailable,
    QuotaExceeded,
) | {
    422: _describe(ErrorResponse, "A parameter or a field of the body is invalid or out of range."),
    500: _describe(InternalErrorResponse, "The server failed; nothing of the request was stored."),
}
"""Error responses of every route."""

NOT_ACCEPTABLE: Final = _describe_errors(NotAcceptable)

OBJECT_MISSING: Final = _describe_errors(ObjectMissing)
"""Error responses of routes that read objects."""

NOT_MODIFIED: Final[Responses] = {
    304: {"description": "`If-None-Match` has the current ETag: nothing has changed."}
}


def _summarize(operation: Json) -> str:
    """Return the first clause of an operation's description; FastAPI has the function's name."""
    text = " ".join(operation["description"].partition("\n\n")[0].split())
    return re.split(r"[.;:] |\.$", text, maxsplit=1)[0]


def _add_examples(operations: dict[str, Json]) -> None:
    """Add the hand-written examples of parameters, body and answer to operations, by their ids."""
    for name, example in json.loads(_EXAMPLES.read_text()).items():
        operation = operations[name]
        values = example.get("parameters", {})
        for parameter in operation.get("parameters", ()):
            if parameter["name"] in values:
                parameter["example"] = values[parameter["name"]]
        if "request" in example:
            operation["requestBody"]["content"]["application/json"]["example"] = example["request"]
        if "response" in example:
            success = min(operation["responses"])
            answers = operation["responses"][success]["content"]
            answers["application/json"]["example"] = example["response"]


def _add_integer_sizes(node: Any) -> None:
    """Say of each integer that it may take 64 bits: generators of Go and Java take 32 otherwise."""
    if isinstance(node, dict):
        if node.get("type") == "integer":
            node.setdefault("format", "int64")
        for child in node.values():
            _add_integer_sizes(child)
    elif isinstance(node, list):
        for child in node:
            _add_integer_sizes(child)


class Application(FastAPI):
    """FastAPI's, whose document has the schemas that `ERROR_RESPONSES` refer to."""

    def openapi(self) -> Json:
        """Return the OpenAPI document, made at the first call."""
        if self.openapi_schema is None:
            document = super().openapi()
            described: dict[str, Json] = {}
            for operations in document["paths"].values():
                for operation in operations.values():
                    operation.setdefault("security", [])  # said, and not only left out
                    operation["summary"] = _summarize(operation)
                    described[operation["operationId"]] = operation
            _add_examples(described)
            components = document["components"]
            own = {
                model.__name__: model.model_json_schema(mode="serialization")
                for model in (ErrorResponse, InternalErrorResponse)
            }
            components["schemas"] = dict(sorted((components["schemas"] | own).items()))
            _add_integer_sizes(document)
        return super().openapi()
