"""The service's log: one line a record on standard error, which nobody outside can forge or flood.

What a record says may come from a stranger: a header, a body that a handler of TensorBoard's quotes, the message of an
exception. So its text is escaped and cut, and records of one origin are limited by the minute.
"""

from __future__ import annotations

import logging
import logging.config
import secrets
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TextIO

from tbservice import limits

_CONTINUATION_PREFIX: Final = "  | "
"""How each line of a traceback begins: no line but a record's first begins with a digit."""

_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# There is no access log: a share link's query holds a token, and logs outlive tokens.
LOGGING: Final[dict[str, Any]] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": f"{__name__}.LineFormatter"}},
    "handlers": {
        "stderr": {
            "()": f"{__name__}.RateLimitedHandler",
            "formatter": "line",
            "stream": "ext://sys.stderr",
        }
    },
    "root": {"handlers": ["stderr"], "level": "WARNING"},
}

_ERROR_ID: Final = "error id "
"""Begins the note at the end of a failure's traceback."""

_Origin = tuple[str, int, str, int, type[BaseException] | None, int]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Failure:
    """A failed request and the id that its answer will have, which `RateLimitedHandler` may change."""

    error_id: str


def configure() -> None:
    """Send every record of this process to standard error, and Python's warnings with them."""
    logging.config.dictConfig(LOGGING)
    logging.captureWarnings(capture=True)


def log_failure(error: Exception) -> str:
    """Log, with its traceback, what has made a request fail; return an id by which the log has it.

    The note `error id …` at the end of the traceback has the id. Where the record is suppressed, it is the id of the
    similar one that was written last, whose traceback is the same. What the server logs of the same error afterwards is
    not written.
    """
    failure = _Failure(secrets.token_hex(8))
    error.add_note(f"{_ERROR_ID}{failure.error_id}")
    _log.error("a request failed", exc_info=error, extra={"failure": failure})
    return failure.error_id


def escape(text: str) -> str:
    r"""Return the text on one line: what cannot be printed, line separators included, as `\n`, `\x1b`, `\u2028`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shorten(text: str, chars_max: int) -> str:
    """Return the text with its middle left out where it has over `chars_max` characters: both ends tell most."""
    if len(text) <= chars_max:
        return text
    return f"{text[: chars_max // 2]} [{len(text) - chars_max} characters left out] {text[len(text) - chars_max // 2 :]}"


class LineFormatter(logging.Formatter):
    """Formats a record as one escaped line, and its traceback as lines that are marked as such."""

    def __init__(self) -> None:
        super().__init__(_LINE)

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's lines; its message has at most `LOG_MESSAGE_CHARS_MAX` characters."""
        message = _bounded(record.getMessage().rstrip(), limits.LOG_MESSAGE_CHARS_MAX)
        # A copy, as other handlers see the record too; without the traceback that one of them may have left in it.
        own = {"msg": message, "args": None, "exc_text": None}
        return super().format(logging.makeLogRecord({**record.__dict__, **own}))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Return the traceback in at most `LOG_TRACEBACK_CHARS_MAX` characters, less the marks of its lines."""
        return _as_continuation(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        """Return the stack as `formatException` does."""
        return _as_continuation(stack_info)


@dataclass(slots=True)
class _RateWindow:
    """The records of one origin since `began_at` (seconds, monotonic)."""

    began_at: float
    written: int = 0
    suppressed: int = 0
    error_id: str = ""
    """Of the failure that was written last."""


class RateLimitedHandler(logging.StreamHandler[TextIO]):
    """Writes at most `LOG_REPEATS_MAX` records of one origin in `LOG_WINDOW_SECONDS`, then one that counts the others.

    An origin is a line of code and, of an exception, its type and the lines it came through: messages may differ in
    what a stranger wrote. The count is written before the next record of any origin after that time, or at the end of
    the process.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._windows: dict[_Origin, _RateWindow] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, or count it; a failure that is only counted gets the id of the last that was written."""
        failure: _Failure | None = getattr(record, "failure", None)
        if failure is None and _is_logged_failure(record):
            return
        now = self._clock()
        self._close_windows(now - limits.LOG_WINDOW_SECONDS)
        window = self._windows.setdefault(_origin_of(record), _RateWindow(now))
        if window.written < limits.LOG_REPEATS_MAX:
            window.written += 1
            window.error_id = failure.error_id if failure else ""
            super().emit(record)
            return
        window.suppressed += 1
        if failure is not None:
            failure.error_id = window.error_id

    def close(self) -> None:
        """Write what is still to be counted."""
        self._close_windows(self._clock())
        super().close()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Say that a record could not be written; what it holds is not shown, as it could not be escaped."""
        with suppress(OSError, ValueError):  # standard error is gone: there is nowhere to say it
            self.stream.write(
                f"a log record of {record.pathname}:{record.lineno} could not be written\n"
            )

    def _close_windows(self, began_until: float) -> None:
        ended = [
            (origin, window)
            for origin, window in self._windows.items()
            if window.began_at <= began_until
        ]
        for origin, window in ended:
            del self._windows[origin]
            if window.suppressed:
                super().emit(_count_record(origin, window))


def _origin_of(record: logging.LogRecord) -> _Origin:
    exception = record.exc_info[1] if record.exc_info else None
    places: set[tuple[str, int]] = (
        set()
    )  # a set, as a stranger may choose how deep a recursion goes
    if exception is not None:
        places.update(
            (frame.f_code.co_filename, line)
            for frame, line in traceback.walk_tb(exception.__traceback__)
        )
    kind = None if exception is None else type(exception)
    return (
        record.name,
        record.levelno,
        record.pathname,
        record.lineno,
        kind,
        hash(frozenset(places)),
    )


def _is_logged_failure(record: logging.LogRecord) -> bool:
    """Return whether the record's exception was logged by `log_failure`."""
    error = record.exc_info[1] if record.exc_info else None
    return any(note.startswith(_ERROR_ID) for note in getattr(error, "__notes__", ()))


def _count_record(origin: _Origin, window: _RateWindow) -> logging.LogRecord:
    name, level, path, line, exception, _ = origin
    kind = f" ({exception.__name__})" if exception else ""
    message = f"suppressed {window.suppressed} similar records of {path}:{line}{kind}"
    if window.error_id:
        message += f", answered with the {_ERROR_ID}{window.error_id}"
    return logging.LogRecord(name, level, path, line, message, None, None)


def _bounded(text: str, chars_max: int) -> str:
    """Return the text escaped and cut; cut before as well, so that a long one is not escaped for nothing."""
    return shorten(escape(shorten(text, chars_max)), chars_max)


def _as_continuation(text: str) -> str:
    lines = shorten(text, limits.LOG_TRACEBACK_CHARS_MAX).split("\n")
    escaped = shorten("\n".join(map(escape, lines)), limits.LOG_TRACEBACK_CHARS_MAX)
    return "\n".join(_CONTINUATION_PREFIX + line for line in escaped.split("\n"))
