"""The Embedding Projector: TensorBoard's own page of it, over tensors, metadata and sprites that were uploaded.

Its stock back end reads files of the server, which here are none of a tenant's. An embedding is a blob sequence of the
plugin `projector`: a description in JSON, then the blobs it names in `parts`. It was written by whoever may upload, so
what is not as it should be counts as not there.
"""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tensorboard.plugins.projector
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from tbservice import limits
from tbservice.admission import admitted
from tbservice.api.http.dependencies import get_object_store
from tbservice.api.v1.blobs import blob_response
from tbservice.errors import MalformedRequest, NotFound
from tbservice.pages import page_auth
from tbservice.tensorboard import assets, page
from tbservice.tensorboard.plugins.projector_dashboard import PROJECTOR as PLUGIN
from tbservice.types import Blob, DataClass, Selection

TAG_PREFIX: Final = "_projector_/"

_PAGE_FILES: Final = Path(tensorboard.plugins.projector.__file__).with_name("tf_projector_plugin")
_PAGE_FILE_TYPES: Final = {
    "projector_binary.html": "text/html",
    "projector_binary.js": "text/javascript",
}
# It makes functions of text, for its linear algebra. No text of a tenant's is among it, and the page around it may not.
_POLICY: Final = page.PAGE_POLICY.replace("script-src 'self'", "script-src 'self' 'unsafe-eval'")
_FILE_KINDS: Final = frozenset({"tensor", "metadata", "sprite", "bookmarks"})
_RANK: Final = 2
_NUMBER_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class _Embedding:
    name: str
    shape: tuple[int, int]
    sprite_size: list[int]
    blobs: dict[str, Blob]


def routes(base: str) -> list[Route]:
    """What is answered below `base`, the path of an experiment's data."""
    return [
        Route(f"{base}/plugin_entry.html", _show_entry),
        Route(f"{base}/plugin/projector/runs", _list_runs),
        Route(f"{base}/plugin/projector/info", _show_config),
        Route(f"{base}/plugin/projector/tensor", _read_tensor),
        Route(f"{base}/plugin/projector/metadata", _read_metadata),
        Route(f"{base}/plugin/projector/bookmarks", _read_bookmarks),
        Route(f"{base}/plugin/projector/sprite_image", _read_sprite),
        Route(f"{base}/plugin/projector/{{file}}", _read_file),
    ]


def _show_entry(request: Request) -> Response:
    """The frame of a dashboard that is no part of the page: only the projector is."""
    page_auth.open_source(request)
    if request.query_params.get("name") != PLUGIN:
        raise NotFound("there is no such dashboard")
    return RedirectResponse("plugin/projector/projector_binary.html", 307)


def _read_file(request: Request) -> Response:
    page_auth.open_source(request)
    name = request.path_params["file"]
    if name not in _PAGE_FILE_TYPES:
        raise NotFound("the projector has no such file")
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "private, max-age=86400"}
    content = _read_packed(name)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(
            content,
            headers={**headers, "Content-Encoding": "gzip"},
            media_type=_PAGE_FILE_TYPES[name],
        )
    return Response(gzip.decompress(content), headers=headers, media_type=_PAGE_FILE_TYPES[name])


@functools.cache
def _read_packed(name: str) -> bytes:
    fonts = f"url(../../../../..{assets.PREFIX}/{assets.assets_digest()}/font-roboto/"
    content = (_PAGE_FILES / name).read_text(encoding="utf-8").replace("url(/font-roboto/", fonts)
    return gzip.compress(content.encode(), compresslevel=6, mtime=0)


def _list_runs(request: Request) -> Response:
    """The names of the runs that have embeddings."""
    series = page_auth.open_source(request).list_series(
        Selection(plugin=PLUGIN, data_class=DataClass.BLOB_SEQUENCE)
    )
    return JSONResponse(list(dict.fromkeys(one.run for one in series)))


def _show_config(request: Request) -> Response:
    """A run's embeddings as its ProjectorConfig; a path says no more than that there is such a thing."""
    described = [_describe(one) for one in _embeddings(request, None)]
    return JSONResponse({"embeddings": described, "modelCheckpointPath": ""})


def _describe(embedding: _Embedding) -> dict[str, object]:
    described: dict[str, object] = {"tensorName": embedding.name, "tensorShape": embedding.shape}
    if "metadata" in embedding.blobs:
        described["metadataPath"] = "metadata"
    if "bookmarks" in embedding.blobs:
        described["bookmarksPath"] = "bookmarks"
    if "sprite" in embedding.blobs:
        described["sprite"] = {"imagePath": "sprite", "singleImageDim": embedding.sprite_size}
    return described


def _read_tensor(request: Request) -> Response:
    """At most `num_rows` rows of little-endian float32."""
    embedding = _embedding(request)
    rows, columns = embedding.shape
    blob = embedding.blobs["tensor"]
    size = min(_rows_wanted(request, rows), rows) * columns * _NUMBER_BYTES
    pieces = get_object_store(request).read(blob.object_key, 0, min(size, blob.size))
    return StreamingResponse(
        admitted.iterate_in_turns(pieces), media_type="application/octet-stream"
    )


def _read_metadata(request: Request) -> Response:
    """At most `num_rows` lines, besides the heading that a table of several columns has."""
    embedding = _embedding(request)
    blob = _part(embedding, "metadata")
    pieces = get_object_store(request).read(blob.object_key, 0, blob.size)
    lines = _lines(pieces, _rows_wanted(request, embedding.shape[0]))
    return StreamingResponse(admitted.iterate_in_turns(lines), media_type="text/plain")


def _lines(pieces: Iterable[bytes], rows: int) -> Iterator[bytes]:
    """The first so many lines; one more where the first has tabs, and so is a heading."""
    left, is_first = rows, True
    for piece in pieces:
        lines = piece.splitlines(keepends=True)
        if is_first and lines:
            left, is_first = left + (b"\t" in lines[0]), False
        kept = lines[:left]
        left -= sum(line.endswith(b"\n") for line in kept)
        yield b"".join(kept)
        if left <= 0:
            return


def _read_bookmarks(request: Request) -> Response:
    """The views that were saved, as they were written."""
    blob = _part(_embedding(request), "bookmarks")
    pieces = get_object_store(request).read(blob.object_key, 0, blob.size)
    return StreamingResponse(admitted.iterate_in_turns(pieces), media_type="application/json")


def _read_sprite(request: Request) -> Response:
    """The picture that holds a small picture of each row."""
    return blob_response(get_object_store(request), _part(_embedding(request), "sprite"), request)


def _embedding(request: Request) -> _Embedding:
    """The embedding of the request's `run` and `name`."""
    name = request.query_params.get("name")
    if name is None:
        raise MalformedRequest("the address names no tensor: give 'name'")
    found = _embeddings(request, name)
    if not found:
        raise NotFound("the run has no such tensor")
    return found[0]


def _part(embedding: _Embedding, part: str) -> Blob:
    if part not in embedding.blobs:
        raise NotFound(f"this tensor has no {part}")
    return embedding.blobs[part]


def _embeddings(request: Request, name: str | None) -> list[_Embedding]:
    """The embeddings of the request's run that can be shown: all of them, or the one of this name."""
    run = request.query_params.get("run")
    if run is None:
        raise MalformedRequest("the address names no run: give 'run'")
    source = page_auth.open_source(request)
    tags = None if name is None else frozenset({TAG_PREFIX + name})
    selection = Selection(
        plugin=PLUGIN, runs=frozenset({run}), tags=tags, data_class=DataClass.BLOB_SEQUENCE
    )
    samples = source.read_blob_sequences(selection, 1).get(run, {})
    sequences = [
        (tag.removeprefix(TAG_PREFIX), [source.find_blob(key) for key in sample.sequences[-1]])
        for tag, sample in samples.items()
        if len(sample.sequences)
    ]
    read = [
        _as_embedding(
            tag, found, b"".join(source.objects.read(found[0].object_key, 0, found[0].size))
        )
        for tag, found in sequences
        if found and found[0].size <= limits.JSON_BODY_BYTES_MAX
    ]
    return [one for one in read if one is not None]


def _as_embedding(name: str, found: list[Blob], description: bytes) -> _Embedding | None:
    """What the description says, if it is one."""
    try:
        about = json.loads(description)
        rows, columns = map(int, about["shape"])
        parts = dict(zip(about["parts"], found[1:], strict=True))
        sprite_size = [int(pixels) for pixels in about["sprite_size"]]
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
    is_whole = "tensor" in parts and parts["tensor"].size == rows * columns * _NUMBER_BYTES
    if rows < 1 or columns < 1 or not is_whole or not parts.keys() <= _FILE_KINDS:
        return None
    if "sprite" in parts and len(sprite_size) != _RANK:
        del parts["sprite"]
    return _Embedding(name, (rows, columns), sprite_size, parts)


def _rows_wanted(request: Request, rows: int) -> int:
    text = request.query_params.get("num_rows")
    if text is None:
        return rows
    if not (text.isascii() and text.isdigit() and int(text[:19]) > 0):
        raise MalformedRequest("num_rows is a number over 0")
    return int(text[:19])
