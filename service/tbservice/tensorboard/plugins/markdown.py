"""TensorBoard's Markdown conversion with limits on size and time.

On hostile texts, Python-Markdown takes more than quadratic time. The time limit is SIGALRM, which
also interrupts a match of `re`, but works in a main thread only: use this in handler processes.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from markupsafe import escape
from tensorboard import plugin_util

from tbservice import limits

MARKDOWN_CHARS_MAX: Final = 64 * limits.KIB
"""Characters of a text or description rendered as Markdown; longer ones are shown as plain text."""

MARKDOWN_SECONDS_MAX: Final = 1.0
"""Seconds to render one text as HTML; it is shown as plain text after that."""

MARKDOWN_TOTAL_SECONDS_MAX: Final = 5.0
"""Seconds to render all texts of one response; the remaining ones are shown as plain text."""

_TOO_LONG: Final = f"Shown as plain text, because it has more than {MARKDOWN_CHARS_MAX} characters:"
_TOO_SLOW: Final = "Shown as plain text, because it takes too long to convert from Markdown:"

_convert: Final = plugin_util.markdowns_to_safe_html
_clean: Final = plugin_util.safe_html

_Text = str | bytes


class _TakesTooLong(BaseException):
    """The time limit has passed; a BaseException, so that no parser catches it."""


class _TimeBudget:
    """Seconds left for the Markdown of the current response."""

    seconds_left = MARKDOWN_TOTAL_SECONDS_MAX


def install() -> None:
    """Replace the functions of `tensorboard/plugin_util.py` by these, in this process."""
    plugin_util.markdowns_to_safe_html = convert_all
    plugin_util.safe_html = clean
    signal.signal(signal.SIGALRM, _raise)


def start_time_budget() -> None:
    """Reset the time budget; call this before each response."""
    _TimeBudget.seconds_left = MARKDOWN_TOTAL_SECONDS_MAX


def convert_all(values: Sequence[object], combine: Callable[[list[str]], str]) -> str:
    """Return safe HTML of the Markdown texts, joined by `combine`.

    Numbers, which the text plugin may have too, are shown as they are.
    A text over a limit becomes plain text below a note that says so. All texts are converted at
    once first, and one by one only if that fails, so that the others are still shown as Markdown.
    """
    texts = [value if isinstance(value, _Text) else str(value) for value in values]
    if all(len(text) <= MARKDOWN_CHARS_MAX for text in texts):
        combined = _within_time(lambda: str(_convert(texts, combine)))
        if combined is not None:
            return combined
        if len(texts) == 1:
            return combine([_as_plain_text(texts[0], _TOO_SLOW)])
    # Not cleaned again after `combine`: each is clean already, and it only adds table cells.
    return combine([_convert_single(text) for text in texts])


def clean(text: _Text) -> str:
    """Return the HTML without scripts and similar, or as plain text if that takes too long."""
    cleaned = _within_time(lambda: str(_clean(text)))
    return _as_plain_text(text, _TOO_SLOW) if cleaned is None else cleaned


def _convert_single(text: _Text) -> str:
    if len(text) > MARKDOWN_CHARS_MAX:
        return _as_plain_text(text, _TOO_LONG)
    converted = _within_time(lambda: str(_convert([text], lambda htmls: htmls[0])))
    return _as_plain_text(text, _TOO_SLOW) if converted is None else converted


def _within_time(work: Callable[[], str]) -> str | None:
    """Return the result of `work`, or None after the time of a text or of the response."""
    seconds = min(MARKDOWN_SECONDS_MAX, _TimeBudget.seconds_left)
    if seconds <= 0:
        return None
    begin = time.monotonic()
    try:
        with _time_limit(seconds):
            return work()
    except _TakesTooLong:
        _reset_converter()
        return None
    finally:
        _TimeBudget.seconds_left -= time.monotonic() - begin


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _raise(_number: int, _frame: FrameType | None) -> None:
    raise _TakesTooLong


def _reset_converter() -> None:
    """Drop TensorBoard's cached converters: an interrupted one may have the state of a text."""
    stores: list[Any] = [plugin_util._MARKDOWN_STORE, plugin_util._CLEANER_STORE]  # noqa: SLF001 - no public way
    for store in stores:
        store.__dict__.clear()
        store.__init__()


def _as_plain_text(text: _Text, note: str) -> str:
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    return f"<p><em>{note}</em></p>\n<pre><code>{escape(shown)}</code></pre>"
