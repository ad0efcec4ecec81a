"""Static files of our own pages: style, script, icon. Their addresses change with their content."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from tbservice.errors import NotFound

_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
_DIGEST_CHARS: Final = 16

_ICON: Final = "icon.svg"

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class StaticFile:
    """A file, its gzip form and its digest."""

    content: bytes
    media_type: str
    digest: str

    @cached_property
    def compressed(self) -> bytes:
        """Return the gzip form, made at the first request: 2 MB of it is for the API page alone."""
        return gzip.compress(self.content, mtime=0)


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    return StaticFile(
        content,
        _MEDIA_TYPES[path.suffix],
        hashlib.sha256(content).hexdigest()[:_DIGEST_CHARS],
    )


_FILES: Final = {
    path.name: _read(path) for path in sorted((Path(__file__).parents[1] / "static").iterdir())
}


def static_url(name: str) -> str:
    """Return the path of a file in `static`. Raises KeyError if there is none."""
    return f"/static/{_FILES[name].digest}/{name}"


@router.get("/favicon.ico")
async def read_icon(request: Request) -> Response:
    """Answer with the icon: browsers ask for it here where a page names none, as JSON does not."""
    return await read_static(request, "", _ICON)


@router.get("/static/{digest}/{name}")
async def read_static(request: Request, digest: str, name: str) -> Response:
    """Answer with a static file; they are public.

    With another digest than its own it is not cached: while a new version is rolled out, a worker
    of the other version may be asked for the file of a page.
    """
    file = _FILES.get(name)
    if file is None:
        raise NotFound("there is no such file")
    # The style sheet names a font beside itself, and a font has its version in its name.
    is_current = digest == file.digest or name.endswith(".woff2")
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable" if is_current else "no-cache",
        "Vary": "Accept-Encoding",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(file.content, headers=headers, media_type=file.media_type)
    return Response(
        file.compressed,
        headers=headers | {"Content-Encoding": "gzip"},
        media_type=file.media_type,
    )
