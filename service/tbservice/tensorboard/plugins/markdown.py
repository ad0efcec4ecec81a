"""Markdown as TensorBoard shows it, within a size and a time: Python-Markdown is worse than quadratic in hostile texts.

In a handler process only: the time limit is a signal, which interrupts the main thread, and matches of `re` too.
"""

from __future__ import annotations

import html
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from tensorboard import plugin_util

from tbservice import limits

_TOO_LONG: Final = (
    f"Longer than {limits.MARKDOWN_CHARS_MAX} characters, and so shown as plain text:"
)
_TOO_SLOW: Final = "Takes too long to show as Markdown, and so shown as plain text:"

_convert: Final = plugin_util.markdowns_to_safe_html
_clean: Final = plugin_util.safe_html

_Text = str | bytes


class _TakesTooLong(BaseException):
    """The time of a text has passed; no parser is meant to catch this."""


class _TimeBudget:
    """Seconds that are left of an answer's for its texts."""

    seconds_left = limits.MARKDOWN_TOTAL_SECONDS_MAX


def install() -> None:
    """Give TensorBoard's handlers these functions in place of their own, for this process."""
    plugin_util.markdowns_to_safe_html = convert_all
    plugin_util.safe_html = clean
    signal.signal(signal.SIGALRM, _raise)


def start_time_budget() -> None:
    """Give the texts that follow the time of one answer."""
    _TimeBudget.seconds_left = limits.MARKDOWN_TOTAL_SECONDS_MAX


def convert_all(texts: Sequence[_Text], combine: Callable[[list[str]], str]) -> str:
    """Return safe HTML of Markdown texts, combined; those over a limit as plain text below a note that says so."""
    if all(len(text) <= limits.MARKDOWN_CHARS_MAX for text in texts):
        whole = _within_time(lambda: str(_convert(texts, combine)))
        if whole is not None:
            return whole
        if len(texts) == 1:
            return combine([_as_plain_text(texts[0], _TOO_SLOW)])
    return combine(
        [_convert_one(text) for text in texts]
    )  # each is clean already; around them are table cells alone


def clean(text: _Text) -> str:
    """Return the HTML without what could run, or, where that takes too long, as plain text below a note."""
    cleaned = _within_time(lambda: str(_clean(text)))
    return _as_plain_text(text, _TOO_SLOW) if cleaned is None else cleaned


def _convert_one(text: _Text) -> str:
    if len(text) > limits.MARKDOWN_CHARS_MAX:
        return _as_plain_text(text, _TOO_LONG)
    converted = _within_time(lambda: str(_convert([text], lambda htmls: htmls[0])))
    return _as_plain_text(text, _TOO_SLOW) if converted is None else converted


def _within_time(work: Callable[[], str]) -> str | None:
    """Return what the work returns, or None when the time of a text or of the answer has passed."""
    seconds = min(limits.MARKDOWN_SECONDS_MAX, _TimeBudget.seconds_left)
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
    """Have a new one made: an interrupted one may be left in the middle of a text."""
    stores: list[Any] = [plugin_util._MARKDOWN_STORE, plugin_util._CLEANER_STORE]  # noqa: SLF001 - no public way
    for store in stores:
        store.__dict__.clear()
        store.__init__()


def _as_plain_text(text: _Text, note: str) -> str:
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    return f"<p><em>{note}</em></p>\n<pre><code>{html.escape(shown)}</code></pre>"
