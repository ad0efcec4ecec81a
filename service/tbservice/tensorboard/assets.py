"""The files of TensorBoard's front end, read from its wheel: page, scripts, fonts and icons."""

from __future__ import annotations

import functools
import gzip
import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import tensorboard
from markupsafe import escape

PREFIX: Final = "/static/tensorboard"
"""Path of the files, the same for all experiments, so that a browser downloads the 6 MB once."""

_WEBFILES: Final = Path(tensorboard.__file__).with_name("webfiles.zip")
_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
_ZSTD_LEVEL: Final = 9
"""The script takes 1.46 MB, 1.72 with gzip, in 0.2 s; level 19 saves 0.1 MB more, in 4 s."""

_TITLE: Final = "<title>TensorBoard</title>"
_WEB_APP: Final = "<tb-webapp>"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the front end, by content coding: zstd and gzip."""

    encoded: Mapping[str, bytes]
    content_type: str

    def decompressed(self) -> bytes:
        """Return the plain bytes, for the rare client that accepts neither."""
        return gzip.decompress(self.encoded["gzip"])


@functools.cache
def assets_digest() -> str:
    """Return 16 hexadecimal digits that change with the files.

    They are part of the files' address, which a browser may therefore cache indefinitely.
    """
    return hashlib.sha256(_WEBFILES.read_bytes()).hexdigest()[:16]


def find_asset(path: str) -> Asset | None:
    """Return the file at `path` ("index.js", "font-roboto/….woff2"), or None if there is none.

    A file is compressed on first use and then cached.
    """
    return _read_asset(path) if path in _asset_paths() else None


def render_page(title: str, bar: str, up: str = "") -> bytes:
    """Return TensorBoard's page as HTML, with this title (plain text) and this bar (HTML).

    Its address must be two levels deep, as `/experiment/<id>/`, or `up` leads to such a one. The
    page loads its data from below its own address (`tb-relative-root`), and its script and fonts
    from `PREFIX`.
    """
    before, head, body = _split_page(up)
    return f"{before}<title>{escape(title)}</title>{head}{bar}{body}".encode()


@functools.cache
def _split_page(up: str) -> tuple[str, str, str]:
    with zipfile.ZipFile(_WEBFILES) as files:
        page = files.read("index.html").decode()

    static = f"{up}../..{PREFIX}/{assets_digest()}"
    page = page.replace("url(/font-roboto/", f"url({static}/font-roboto/")
    script = '<script src="index.js'
    if any(page.count(marker) != 1 for marker in (script, _TITLE, _WEB_APP)):
        raise RuntimeError(
            "the index.html of the installed TensorBoard has changed: "
            "install the version that requirements.lock names"
        )

    # `async`: the script runs for most of a second before it renders anything, and would block the
    # parser, and with it the bar, for as long. The app finds its element whenever it starts.
    page = page.replace(script, f'<script async fetchpriority="high" src="{static}/index.js')

    before, after = page.split(_TITLE)
    head, body = after.split(_WEB_APP)
    return (
        f'<!doctype html><meta name="tb-relative-root" content="./">{before}',
        head,
        _WEB_APP + body,
    )


@functools.cache
def _asset_paths() -> frozenset[str]:
    with zipfile.ZipFile(_WEBFILES) as files:
        # `tf-imports/` is the code editor of Debugger V2, a plugin that we do not serve.
        return frozenset(
            name
            for name in files.namelist()
            if Path(name).suffix in _TYPES and not name.startswith("tf-imports/")
        )


@functools.cache
def _read_asset(path: str) -> Asset:
    with zipfile.ZipFile(_WEBFILES) as files:
        content = files.read(path)
    encoded = {
        "zstd": pa.Codec("zstd", compression_level=_ZSTD_LEVEL).compress(content, asbytes=True),
        "gzip": gzip.compress(content, compresslevel=6, mtime=0),
    }
    return Asset(encoded, _TYPES[Path(path).suffix])
