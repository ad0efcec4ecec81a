"""The Embedding Projector: TensorBoard's page for it, over uploaded tensors, metadata and sprites.

It replaces the stock back end (`tensorboard/plugins/projector/projector_plugin.py`), which reads
local files. An embedding is a blob sequence of the plugin `projector`: a description in JSON, then
the blobs whose kinds its field `parts` lists. The description is untrusted: an embedding with an
invalid one is not listed.
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
from tbservice.api.http.blob_response import blob_response
from tbservice.api.http.dependencies import get_object_store
from tbservice.errors import MalformedRequest, NotFound
from tbservice.pages.stock_page import page_auth
from tbservice.tensorboard import assets
from tbservice.tensorboard.page_policy import make_projector_policy
from tbservice.tensorboard.plugins.dashboards import PROJECTOR as PLUGIN
from tbservice.types.sampling import Selection
from tbservice.types.series import Blob
from tbwire.points import DataClass

TAG_PREFIX: Final = "_projector_/"

_PAGE_FILES: Final = Path(tensorboard.plugins.projector.__file__).with_name("tf_projector_plugin")
_PAGE_FILE_TYPES: Final = {
    "projector_binary.html": "text/html",
    "projector_binary.js": "text/javascript",
}
_FILE_KINDS: Final = frozenset({"tensor", "metadata", "sprite", "bookmarks"})
_SPRITE_DIMENSIONS: Final = 2  # width and height of one image
_FLOAT32_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class _Embedding:
    """An embedding: `shape` is (rows, columns), `sprite_size` in pixels, `blobs` by file kind."""

    name: str
    shape: tuple[int, int]
    sprite_size: list[int]
    blobs: dict[str, Blob]


def routes(base: str) -> list[Route]:
    """Return the projector's routes below `base`, the path of a page's data."""
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
    """Redirect to the frame of a dashboard that is not part of the page: only the projector."""
    page_auth.open_source(request)
    if request.query_params.get("name") != PLUGIN:
        raise NotFound("there is no such dashboard")
    return RedirectResponse("plugin/projector/projector_binary.html", 307)


def _read_file(request: Request) -> Response:
    page_auth.open_source(request)
    name = request.path_params["file"]
    if name not in _PAGE_FILE_TYPES:
        raise NotFound("the projector has no such file")
    headers = {
        "Content-Security-Policy": make_projector_policy(request),
        "Cache-Control": "private, max-age=86400",
    }
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
    """Answer with the names of the runs that have embeddings."""
    listed = page_auth.open_source(request).list_series(
        Selection(plugin=PLUGIN, data_class=DataClass.BLOB_SEQUENCE)
    )
    return JSONResponse(list(dict.fromkeys(series.run for series in listed)))


def _show_config(request: Request) -> Response:
    """Answer with a run's embeddings as a ProjectorConfig in JSON.

    The message is in `tensorboard/plugins/projector/projector_config.proto`. The paths in it are
    constants: the page only checks whether there is one.
    """
    embeddings = [_describe(embedding) for embedding in _read_embeddings(request, None)]
    return JSONResponse({"embeddings": embeddings, "modelCheckpointPath": ""})


def _describe(embedding: _Embedding) -> dict[str, object]:
    info: dict[str, object] = {"tensorName": embedding.name, "tensorShape": embedding.shape}
    if "metadata" in embedding.blobs:
        info["metadataPath"] = "metadata"
    if "bookmarks" in embedding.blobs:
        info["bookmarksPath"] = "bookmarks"
    if "sprite" in embedding.blobs:
        info["sprite"] = {"imagePath": "sprite", "singleImageDim": embedding.sprite_size}
    return info


def _read_tensor(request: Request) -> Response:
    """Answer with at most `num_rows` rows of little-endian float32, row by row."""
    embedding = _get_embedding(request)
    rows, columns = embedding.shape
    blob = embedding.blobs["tensor"]
    size = min(_parse_row_limit(request, rows), rows) * columns * _FLOAT32_BYTES
    chunks = get_object_store(request).read(blob.object_key, 0, min(size, blob.size))
    return StreamingResponse(
        admitted.iterate_in_turns(chunks), media_type="application/octet-stream"
    )


def _read_metadata(request: Request) -> Response:
    """Answer with at most `num_rows` lines of metadata, not counting a header line."""
    embedding = _get_embedding(request)
    blob = _get_blob(embedding, "metadata")
    chunks = get_object_store(request).read(blob.object_key, 0, blob.size)
    lines = _take_lines(chunks, _parse_row_limit(request, embedding.shape[0]))
    return StreamingResponse(admitted.iterate_in_turns(lines), media_type="text/plain")


def _take_lines(chunks: Iterable[bytes], rows: int) -> Iterator[bytes]:
    """Yield the first `rows` lines in chunks, and a header line before them.

    As in `projector_plugin.py`, the first line is a header if it contains a tab: metadata of a
    single column have none.
    """
    lines_left, is_first = rows, True
    for chunk in chunks:
        lines = chunk.splitlines(keepends=True)
        if is_first and lines:
            lines_left, is_first = lines_left + (b"\t" in lines[0]), False
        selected = lines[:lines_left]
        # The last line of a chunk may continue in the next one: count it where it ends.
        lines_left -= sum(line.endswith(b"\n") for line in selected)
        yield b"".join(selected)
        if lines_left <= 0:
            return


def _read_bookmarks(request: Request) -> Response:
    """Answer with the saved views, in the JSON that was uploaded."""
    blob = _get_blob(_get_embedding(request), "bookmarks")
    chunks = get_object_store(request).read(blob.object_key, 0, blob.size)
    return StreamingResponse(admitted.iterate_in_turns(chunks), media_type="application/json")


def _read_sprite(request: Request) -> Response:
    """Answer with the sprite: one image that contains a small image of each row."""
    blob = _get_blob(_get_embedding(request), "sprite")
    return blob_response(get_object_store(request), blob, request)


def _get_embedding(request: Request) -> _Embedding:
    """Return the embedding of the request's `run` and `name`; raises NotFound."""
    name = request.query_params.get("name")
    if name is None:
        raise MalformedRequest("the parameter 'name' is missing: it names the tensor")
    embeddings = _read_embeddings(request, name)
    if not embeddings:
        raise NotFound("the run has no tensor with this name")
    return embeddings[0]


def _get_blob(embedding: _Embedding, kind: str) -> Blob:
    if kind not in embedding.blobs:
        raise NotFound(f"this tensor has no {kind}")
    return embedding.blobs[kind]


def _read_embeddings(request: Request, name: str | None) -> list[_Embedding]:
    """Return the valid embeddings of the request's run: all of them, or the one with this name."""
    run = request.query_params.get("run")
    if run is None:
        raise MalformedRequest("the parameter 'run' is missing")

    source = page_auth.open_source(request)
    tags = None if name is None else frozenset({TAG_PREFIX + name})
    selection = Selection(
        plugin=PLUGIN, runs=frozenset({run}), tags=tags, data_class=DataClass.BLOB_SEQUENCE
    )
    sequences = [
        (
            series.tag.removeprefix(TAG_PREFIX),
            [source.find_blob(key) for key in sample.sequences[-1]],
        )
        for series, sample in source.read_blob_sequences(selection, 1)
        if len(sample.sequences)
    ]

    embeddings = [
        _parse_embedding(
            tag, blobs, b"".join(source.objects.read(blobs[0].object_key, 0, blobs[0].size))
        )
        for tag, blobs in sequences
        if blobs and blobs[0].size <= limits.JSON_BODY_BYTES_MAX
    ]
    return [embedding for embedding in embeddings if embedding is not None]


def _parse_embedding(name: str, blobs: list[Blob], description: bytes) -> _Embedding | None:
    """Return the described embedding, or None if the description or the tensor is invalid.

    `blobs` is the complete sequence, with the description's own blob first.
    """
    try:
        about = json.loads(description)
        rows, columns = map(int, about["shape"])
        files = dict(zip(about["parts"], blobs[1:], strict=True))
        sprite_size = [int(pixels) for pixels in about["sprite_size"]]
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None

    is_complete = "tensor" in files and files["tensor"].size == rows * columns * _FLOAT32_BYTES
    if rows < 1 or columns < 1 or not is_complete or not files.keys() <= _FILE_KINDS:
        return None
    if "sprite" in files and len(sprite_size) != _SPRITE_DIMENSIONS:
        del files["sprite"]
    return _Embedding(name, (rows, columns), sprite_size, files)


def _parse_row_limit(request: Request, rows: int) -> int:
    """Return the request's `num_rows`, or `rows` without it; raises MalformedRequest."""
    text = request.query_params.get("num_rows")
    if text is None:
        return rows
    if not (text.isascii() and text.isdigit() and int(text[:19]) > 0):
        raise MalformedRequest("'num_rows' must be an integer greater than 0")
    return int(text[:19])
