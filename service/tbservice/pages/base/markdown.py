"""Markdown that people write, as safe HTML: what an experiment's description and notes say.

Raw HTML is shown as text. An image becomes a link to it, so that opening a page tells no other
server; a card, which this service draws, is shown.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any, Final

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.ruler import StateBase
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup, escape

NOTES_MARKDOWN_CHARS_MAX: Final = 20_000
"""Characters of a description or of notes that our page renders as Markdown.

A longer one is shown as it is.
"""

NOTES_MARKDOWN_SECONDS_MAX: Final = 0.15
"""Seconds of CPU time to parse one; prose of that length takes 0.025. Else it is shown as it is."""

_HEADING_LEVELS_DOWN: Final = 2
"""The page has headings of levels 1 and 2."""

_TAGS: Final = {
    *("p", "br", "hr", "h3", "h4", "h5", "h6", "blockquote", "pre", "code", "em", "strong", "s"),
    *("ul", "ol", "li", "a", "table", "thead", "tbody", "tr", "th", "td", "img"),
}
_ATTRIBUTES: Final = {
    "a": {"href", "title"},
    "ol": {"start"},
    "img": {"src", "alt", "loading"},
}
_CARD: Final = re.compile(
    r"/(?:experiment/[0-9A-Za-z]{1,64}|compare/[^\s/?#]+)/card\.(?:svg|png)(?:\?[^\s#]*)?"
)
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
    if _CARD.fullmatch(str(image.attrGet("src"))):
        return f'<img src="{escape(image.attrGet("src"))}" alt="{escape(name)}" loading="lazy">'
    return f'<a href="{escape(image.attrGet("src") or "")}">{escape(name)}</a>'


class _ParserTimeout(Exception):
    """The time for one text has passed."""


def _check_time(state: StateBase, *_arguments: object) -> bool:
    """Raise _ParserTimeout if the time has passed; as a rule of the parser, match nothing."""
    if time.thread_time() > state.env[_ENDS_AT]:
        raise _ParserTimeout
    return False


def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.add_render_rule("image", _render_image)
    for rulers in (parser.block, parser.inline):
        rulers.ruler.before(rulers.ruler.get_active_rules()[0], _ENDS_AT, _check_time)
    return parser


_ENDS_AT: Final = "ends_at"
"""Key, in the environment of the parser, of the CPU time of the thread at which it gives up."""

_PARSER: Final = _make_parser()


def render_markdown(source: str) -> Markup:
    """Return a text in Markdown (CommonMark, tables, strikethrough) as HTML.

    A text of more than `NOTES_MARKDOWN_CHARS_MAX`, or that takes more CPU time than
    `NOTES_MARKDOWN_SECONDS_MAX`, is shown as it is.
    """
    plain = Markup("<pre>{}</pre>").format(source)
    if len(source) > NOTES_MARKDOWN_CHARS_MAX:
        return plain
    try:
        tokens = _PARSER.parse(source, {_ENDS_AT: time.thread_time() + NOTES_MARKDOWN_SECONDS_MAX})
    except _ParserTimeout:
        return plain
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
