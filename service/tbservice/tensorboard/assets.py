"""The stock front end's files, out of TensorBoard's wheel: its page, and the scripts, fonts and icons it loads."""

from __future__ import annotations

import functools
import gzip
import hashlib
import html
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tensorboard

PREFIX: Final = "/static/tensorboard"
"""Where the files are served, once for all experiments: stock TensorBoard serves 6 MB anew under every one."""

_WEBFILES: Final = Path(tensorboard.__file__).with_name("webfiles.zip")
_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
_TITLE: Final = "<title>TensorBoard</title>"
_WEB_APP: Final = "<tb-webapp>"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the front end, compressed with gzip."""

    compressed: bytes
    content_type: str

    def decompressed(self) -> bytes:
        """The file as it is, for the rare client that does not take gzip."""
        return gzip.decompress(self.compressed)


@functools.cache
def assets_digest() -> str:
    """16 hexadecimal digits that change with the files: part of their address, so a browser may keep them for ever."""
    return hashlib.sha256(_WEBFILES.read_bytes()).hexdigest()[:16]


def find_asset(path: str) -> Asset | None:
    """The file at `path` ("index.js", "font-roboto/….woff2"), or None; compressed when first asked for, then kept."""
    return _read_asset(path) if path in _asset_paths() else None


def render_page(title: str, bar: str) -> bytes:
    """TensorBoard's page under this title and below this bar (HTML), for an address that ends in `/<one>/<two>/`.

    The page finds its data below its own address (`tb-relative-root`), and its script and fonts at `PREFIX`.
    """
    before, head, body = _split_page()
    return f"{before}<title>{html.escape(title)}</title>{head}{bar}{body}".encode()


@functools.cache
def _split_page() -> tuple[str, str, str]:
    with zipfile.ZipFile(_WEBFILES) as files:
        page = files.read("index.html").decode()
    static = f"../..{PREFIX}/{assets_digest()}"
    page = page.replace("url(/font-roboto/", f"url({static}/font-roboto/")
    script = '<script src="index.js'
    if any(page.count(part) != 1 for part in (script, _TITLE, _WEB_APP)):
        raise RuntimeError(
            "TensorBoard's index.html is not the one this service knows how to serve"
        )
    # The app keeps the browser busy for most of a second before it shows anything: as long as it stood in the parser's
    # way, so long was the bar not to be seen. It finds its element whenever it runs.
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
        # tf-imports/ is the code editor of Debugger V2, which is not served.
        return frozenset(
            name
            for name in files.namelist()
            if Path(name).suffix in _TYPES and not name.startswith("tf-imports/")
        )


@functools.cache
def _read_asset(path: str) -> Asset:
    with zipfile.ZipFile(_WEBFILES) as files:
        return Asset(
            gzip.compress(files.read(path), compresslevel=6, mtime=0), _TYPES[Path(path).suffix]
        )
