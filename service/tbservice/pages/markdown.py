"""Markdown that people write, as safe HTML: what an experiment's description and notes say.

Raw HTML is shown as text. An image becomes a link to it, so that opening a page tells no other
server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup, escape

from tbservice import limits

_HEADING_LEVELS_DOWN: Final = 2
"""The page has headings of levels 1 and 2."""

_TAGS: Final = {
    *("p", "br", "hr", "h3", "h4", "h5", "h6", "blockquote", "pre", "code", "em", "strong", "s"),
    *("ul", "ol", "li", "a", "table", "thead", "tbody", "tr", "th", "td"),
}
_ATTRIBUTES: Final = {"a": {"href", "title"}, "ol": {"start"}}
_SCHEMES: Final = {"http", "https", "mailto"}


def _render_image(
    _renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    _options: OptionsDict,
    _env: Any,
) -> str:
    image = tokens[index]
    name = image.content or "image"
    return f'<a href="{escape(image.attrGet("src") or "")}">{escape(name)}</a>'


def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.add_render_rule("image", _render_image)
    return parser


_PARSER: Final = _make_parser()


def render_markdown(source: str) -> Markup:
    """Return a text in Markdown (CommonMark, tables, strikethrough) as HTML.

    A text of more than `NOTES_MARKDOWN_CHARS_MAX` is shown as it is.
    """
    if len(source) > limits.NOTES_MARKDOWN_CHARS_MAX:
        return Markup("<pre>{}</pre>").format(source)
    tokens = _PARSER.parse(source)
    for token in tokens:
        if token.type in {"heading_open", "heading_close"}:
            level = min(int(token.tag[1]) + _HEADING_LEVELS_DOWN, 6)
            token.tag = f"h{level}"
    rendered = _PARSER.renderer.render(tokens, _PARSER.options, {})
    return Markup(  # noqa: S704 - cleaned: of the allowed tags and attributes alone
        nh3.clean(
            rendered,
            tags=_TAGS,
            attributes=_ATTRIBUTES,
            url_schemes=_SCHEMES,
            link_rel="nofollow noopener noreferrer ugc",
        )
    )
