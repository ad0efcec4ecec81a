"""The documentation of this version at `/docs`: pages, pictures and a search; they are public."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, PlainTextResponse
from starlette.responses import Response

from tbservice.errors import NotFound
from tbservice.pages.base.frame import render
from tbservice.pages.base.signed_in import MaybeSignedIn
from tbservice.pages.documentation import site

DOCS_SEARCH_CHARS_MAX: Final = 200
"""Characters of a search in the documentation; further ones are ignored."""

router = APIRouter(include_in_schema=False)


@router.get(site.PATH)
def show_contents(
    request: Request, _session: MaybeSignedIn, q: Annotated[str, Query()] = ""
) -> Response:
    """Show which pages there are, or what a search finds in them."""
    words = q[:DOCS_SEARCH_CHARS_MAX].strip()
    return _render(request, "", words=words, found=site.search(words))


@router.get(f"{site.PATH}/images/{{name}}")
def read_image(name: str) -> Response:
    """Answer with a picture of a page."""
    file = site.find_image(name)
    if file is None:
        raise NotFound("the documentation has no such picture")
    headers = {"Cache-Control": "public, max-age=3600", "Content-Security-Policy": "sandbox"}
    return FileResponse(file, media_type="image/png", headers=headers)


@router.get("/llms.txt")
def show_index() -> Response:
    """Answer with an index of the pages in Markdown, for programs that read."""
    return PlainTextResponse(site.list_contents())


@router.get(f"{site.PATH}/{{name:path}}.md")
def read_page(name: str) -> Response:
    """Answer with a page in Markdown."""
    source = site.read_source(name)
    if source is None:
        raise NotFound("the documentation has no such page")
    return Response(source, media_type="text/markdown; charset=utf-8")


@router.get(f"{site.PATH}/{{name:path}}")
def show_page(request: Request, _session: MaybeSignedIn, name: str) -> Response:
    """Show a page."""
    content = site.render_page(name)
    if content is None:
        raise NotFound("the documentation has no such page")
    return _render(request, name, content=content)


def _render(request: Request, name: str, **context: Any) -> Response:
    groups = {
        group: [(each, site.get_title(each)) for each in names]
        for group, names in site.GROUPS.items()
    }
    title = site.get_title(name) if name else "Documentation"
    return render(
        request, "documentation.html", name=name, page_title=title, groups=groups, **context
    )
