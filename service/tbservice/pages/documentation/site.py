"""The pages of `docs/`: which there are, as HTML, and which sections have some words."""

from __future__ import annotations

import posixpath
import re
import struct
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

PATH: Final = "/docs"

FOUND_SECTIONS_ITEMS_MAX: Final = 40
"""Sections (items) that a search shows."""

_EXCERPT_CHARS: Final = 240

CHANGELOG: Final = "changelog"
"""The page of what each version changed: a file beside the directory of the others."""

GROUPS: Final = {
    "Begin": ("start", "lab", "comparison"),
    "Upload": ("uploading", "debugging", "integrations", "hparams", "katib"),
    "Look and share": ("page", "runs", "sweep", "sharing", "looks", "sign-in"),
    "Read": ("reading", "cookbook", "api", "sampling"),
    "Run a service": (
        "operations",
        "on-call",
        "backup",
        "audit",
        "deletion",
        "abuse",
        "scaling",
        "citus",
        "releasing",
    ),
    "How it works": (
        *("architecture", "storage", "wire", "compatibility", "decoding"),
        *("benchmarks", "glossary", "decisions/README", "changelog"),
    ),
}
"""Pages by what a reader wants."""

_NAME: Final = re.compile(r"(?:decisions/)?[A-Za-z0-9-]+")
_FENCE: Final = re.compile(r"^\s*(```|~~~)")
_HEADING: Final = re.compile(r"^(#{1,4}) (.+)$")

_TAGS: Final = {
    *("h1", "h2", "h3", "h4", "p", "br", "hr", "blockquote", "pre", "code", "em", "strong", "a"),
    *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "img", "div"),
}
_ATTRIBUTES: Final = {
    "a": {"href"},
    "img": {"src", "alt", "width", "height"},
    "ol": {"start"},
    **{f"h{level}": {"id"} for level in range(1, 5)},
    "div": {"class", "tabindex"},
    "pre": {"tabindex"},
}


class Section(NamedTuple):
    """The text below one heading, in Markdown; `anchor` is the heading's id."""

    page: str
    title: str
    heading: str
    anchor: str
    text: str


class Found(NamedTuple):
    """A section that a search found, and its text around the first word."""

    section: Section
    excerpt: str


def find_docs() -> Path:
    """Return the directory of the documentation: in the installed package, or beside `service/`."""
    package = Path(__file__).parents[2]
    packaged = package / "_docs"
    return packaged if packaged.is_dir() else package.parents[1] / "docs"


@cache
def render_page(name: str) -> Markup | None:
    """Return a page of `docs/`, named without its suffix, as HTML; None if there is none."""
    source = read_source(name)
    if source is None:
        return None
    parser = MarkdownIt("commonmark").enable("table")
    tokens = parser.parse(source)
    anchors = _Anchors()
    for token, following in pairwise(tokens):
        if token.type == "heading_open":
            token.attrSet("id", anchors.make(following.content))
    for token in tokens:
        for child in token.children or ():
            _resolve(child, name)
    rendered = parser.renderer.render(tokens, parser.options, {})
    # A block that scrolls sideways is reached by keyboard.
    rendered = rendered.replace("<th></th>", "<td></td>")  # a header without text names nothing
    rendered = rendered.replace("<pre>", '<pre tabindex="0">')
    rendered = rendered.replace("<table>", '<div class="table-scroll" tabindex="0"><table>')
    rendered = rendered.replace("</table>", "</table></div>")
    return Markup(nh3.clean(rendered, tags=_TAGS, attributes=_ATTRIBUTES, link_rel=None))  # noqa: S704 - our own files


@cache
def get_title(name: str) -> str:
    """Return the title of a page that there is."""
    return next(each.title for each in _list_sections() if each.page == name)


def search(words: str) -> list[Found]:
    """Return the sections that contain all words; those with all in their heading come first.

    No more than FOUND_SECTIONS_ITEMS_MAX, in the order of GROUPS.
    """
    wanted = words.casefold().split()
    if not wanted:
        return []
    found: list[tuple[int, Section]] = []
    for section in _list_sections():
        heading = f"{section.title} {section.heading}".casefold()
        if all(word in heading for word in wanted):
            found.append((0, section))
        elif all(word in heading or word in section.text.casefold() for word in wanted):
            found.append((1, section))
    found.sort(key=lambda each: each[0])
    return [
        Found(section, _cut_excerpt(section.text, wanted))
        for _, section in found[:FOUND_SECTIONS_ITEMS_MAX]
    ]


def list_contents() -> str:
    """Return all pages as an index in Markdown for programs that read: see llmstxt.org."""
    about = (
        f"> A hosted, multi-tenant service for TensorBoard data. Pages of tbhub {version('tbhub')}."
    )
    lines = ["# tbhub", "", about]
    for group, names in GROUPS.items():
        lines += ["", f"## {group}", ""]
        lines += [f"- [{get_title(name)}]({PATH}/{name}.md)" for name in names]
    lines += ["", "## HTTP API", "", "- [OpenAPI document](/api/v1/openapi.json)", ""]
    return "\n".join(lines)


def find_image(name: str) -> Path | None:
    """Return the file of a picture; None if there is none."""
    if re.fullmatch(r"[a-z0-9-]+\.png", name) is None:
        return None
    file = find_docs() / "images" / name
    return file if file.is_file() else None


def read_source(name: str) -> str | None:
    """Return a page in Markdown; None if there is none."""
    if _NAME.fullmatch(name) is None:
        return None
    docs = find_docs()
    try:
        file = docs.parent / "CHANGELOG.md" if name == CHANGELOG else docs / f"{name}.md"
        return file.read_text()
    except FileNotFoundError:
        return None


@cache
def _list_sections() -> list[Section]:
    """Return the sections of all pages, the decisions last."""
    grouped = [name for names in GROUPS.values() for name in names]
    decisions = (f"decisions/{file.stem}" for file in sorted(find_docs().glob("decisions/0*.md")))
    return [section for name in (*grouped, *decisions) for section in _split(name)]


def _split(name: str) -> Iterator[Section]:
    """Yield the sections of a page."""
    source = read_source(name) or ""
    anchors = _Anchors()
    title = heading = anchor = ""
    lines: list[str] = []
    is_code = False
    for line in source.splitlines():
        is_code ^= _FENCE.match(line) is not None
        match = None if is_code else _HEADING.match(line)
        if match is None:
            lines.append(line)
            continue
        if title:
            yield Section(name, title, heading, anchor, "\n".join(lines))
        heading = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", match[2])
        anchor = anchors.make(match[2])
        title, lines = title or heading, []
    yield Section(name, title, heading, anchor, "\n".join(lines))


class _Anchors:
    """The ids of a page's headings, as GitHub makes them."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def make(self, heading: str) -> str:
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        count = self._counts.get(anchor, 0)
        self._counts[anchor] = count + 1
        return f"{anchor}-{count}" if count else anchor


def _resolve(token: Token, page: str) -> None:
    """Let a link or a picture lead to this site; one to a file of the repository leads nowhere."""
    attribute = {"link_open": "href", "image": "src"}.get(token.type)
    if attribute is None:
        return
    target = urlsplit(str(token.attrGet(attribute)))
    if target.scheme or target.netloc or not target.path:
        return
    directory = ".." if page == CHANGELOG else posixpath.dirname(page)
    path = posixpath.normpath(posixpath.join(directory, target.path)).removeprefix("../docs/")
    if path.startswith("../"):
        del token.attrs[attribute]
        return
    anchor = f"#{target.fragment}" if target.fragment else ""
    token.attrSet(attribute, f"{PATH}/{path.removesuffix('.md')}{anchor}")
    if token.type == "image" and (file := find_image(posixpath.basename(path))) is not None:
        # So that a browser leaves the space for it, and text does not move under a reader's eyes.
        for side, pixels in zip(("width", "height"), _read_size(file), strict=True):
            token.attrSet(side, str(pixels))


def _read_size(file: Path) -> tuple[int, int]:
    """Return width and height of a PNG file in pixels: of its header (PNG, section 11.2.2)."""
    with file.open("rb") as opened:
        width, height = struct.unpack(">II", opened.read(24)[16:])
    return width, height


def _cut_excerpt(text: str, words: list[str]) -> str:
    """Return the text around the first of the words."""
    plain = re.sub(
        r"[`*|]|\[([^\]]*)\]\([^)]*\)|^\s*(```|~~~).*$|:?-{3,}:?", r"\1", text, flags=re.MULTILINE
    )
    plain = " ".join(plain.split())
    places = [place for word in words if (place := plain.casefold().find(word)) >= 0]
    start = max(0, min(places, default=0) - _EXCERPT_CHARS // 4)
    start = plain.rfind(" ", 0, start) + 1 if start else 0
    cut = plain[start : start + _EXCERPT_CHARS]
    return f"{'… ' if start else ''}{cut}{' …' if start + len(cut) < len(plain) else ''}"
