"""The API reference as one HTML page, rendered from the OpenAPI document, without scripts.

The page has the same origin as the pages with cookies for experiments. So it has no field for
a token, no script and nothing from other origins, unlike FastAPI's Swagger UI.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from string import Template
from typing import Any, Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tbservice.api.http.dependencies import get_settings
from tbservice.api.http.security_headers import content_hash
from tbservice.types.identifiers import Json

PATH: Final = "/api/v1/docs"

_PAGE: Final = Path(__file__).with_name("api_docs.html").read_text(encoding="utf-8")
_HEADERS: Final = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src {content_hash(_PAGE, 'style')}; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}
_BOUNDS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "pattern": "matches {}",
    "default": "default {}",
}


def add_docs(app: FastAPI) -> None:
    """Serve the page for the application's own OpenAPI document at `PATH`."""

    def show_docs(request: Request) -> Response:
        return HTMLResponse(
            render(app.openapi(), get_settings(request).public_url.rstrip("/")), headers=_HEADERS
        )

    app.add_route(PATH, show_docs, include_in_schema=False)


def render(document: Json, server: str) -> str:
    """Return the page; `server` is the URL in its example."""
    return Template(_PAGE).substitute(
        title=html.escape(document["info"]["title"]),
        version=html.escape(document["info"]["version"]),
        description=_paragraphs(document["info"]["description"]),
        server=html.escape(server),
        content=_sections(document["paths"]) + _schemas(document["components"]["schemas"]),
    )


def _sections(paths: Json) -> str:
    """Return a section per tag, in the order of the document."""
    sections: dict[str, list[str]] = {}
    for path, operations in paths.items():
        for method, operation in operations.items():
            sections.setdefault(operation["tags"][0], []).append(
                _operation(method, path, operation)
            )
    return "".join(
        f'<section aria-label="{html.escape(tag)}"><h2>{html.escape(tag)}</h2>'
        f"{''.join(operations)}</section>"
        for tag, operations in sections.items()
    )


def _operation(method: str, path: str, operation: Json) -> str:
    rows = [
        _row(
            parameter["name"],
            f"{parameter['in']}, {'required' if parameter['required'] else 'optional'}",
            parameter["schema"],
            parameter.get("description", ""),
        )
        for parameter in operation.get("parameters", [])
    ]

    bodies = operation.get("requestBody", {}).get("content", {})
    responses = [_response(status, each) for status, each in operation["responses"].items()]
    return (
        f"<details><summary><b>{method.upper()}</b> <h3><code>{html.escape(path)}</code></h3> "
        f'<span class="hint">{html.escape(operation["summary"])}</span></summary><div>'
        + _paragraphs(operation.get("description", ""))
        + (f"<h4>Parameters</h4>{_table(rows)}" if rows else "")
        + "".join(
            f"<h4>Body, {html.escape(media_type)}</h4><p>{_type(body['schema'])}</p>"
            for media_type, body in bodies.items()
        )
        + f"<h4>Responses</h4>{_table(responses)}</div></details>"
    )


def _response(status: str, response: Json) -> str:
    contents = response.get("content", {}).items()
    types = ", ".join(
        f"{html.escape(media_type)}: {_type(content.get('schema', {}))}"
        for media_type, content in contents
    )
    return (
        f"<tr><th scope=row>{html.escape(status)}</th><td>{_text(response['description'])}</td>"
        f"<td>{types}</td></tr>"
    )


def _schemas(schemas: Json) -> str:
    sections = []
    for name, schema in schemas.items():
        required = schema.get("required", ())
        rows = [
            _row(
                key,
                "required" if key in required else "optional",
                field,
                field.get("description", ""),
            )
            for key, field in schema.get("properties", {}).items()
        ]
        sections.append(
            f'<details id="{html.escape(name)}"><summary><h3><code>{html.escape(name)}</code></h3>'
            f"</summary><div>{_paragraphs(schema.get('description', ''))}"
            f"{_table(rows) if rows else f'<p>{_type(schema)}</p>'}</div></details>"
        )

    return f'<section aria-label="schemas"><h2>Schemas</h2>{"".join(sections)}</section>'


def _row(name: str, hint: str, schema: Json, description: str) -> str:
    return (
        f"<tr><th scope=row><code>{html.escape(name)}</code>"
        f'<br><span class="hint">{html.escape(hint)}</span></th>'
        f"<td>{_text(description)}</td><td>{_type(schema)}</td></tr>"
    )


def _table(rows: list[str]) -> str:
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def _type(schema: Json) -> str:
    """Return type and bounds of a schema in words; for a named schema, a link to it."""
    bounds = [
        text.format(html.escape(_value(schema[key])))
        for key, text in _BOUNDS.items()
        if key in schema
    ]
    return ", ".join([_kind(schema), *bounds])


def _kind(schema: Json) -> str:
    if "$ref" in schema:
        name = html.escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(f"<code>{html.escape(str(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"array of {_type(schema.get('items', {}))}"
    kind = html.escape(schema.get("type", "any"))
    return f"{kind} ({html.escape(schema['format'])})" if "format" in schema else kind


def _value(value: Any) -> str:
    """Return a bound or default as text; pydantic writes integer bounds as floats."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _paragraphs(text: str) -> str:
    return "".join(
        f"<p>{_text(paragraph)}</p>" for paragraph in text.strip().split("\n\n") if paragraph
    )


def _text(text: str) -> str:
    """Return the text as HTML, with code between backticks, which is its only markup."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))
