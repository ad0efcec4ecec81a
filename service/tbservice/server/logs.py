"""The service's log: one line per record on standard error, which clients cannot forge or flood.

The text of a record may come from a client: a header, a body that TensorBoard's code quotes, the
message of an exception. So it is escaped and shortened, and the records of one origin are limited
per minute.
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
from tbservice.settings import LogFormat

LOG_REPEATS_MAX: Final = 20
"""Log records written per origin (line of code, exception type) and `LOG_WINDOW_SECONDS`."""

LOG_WINDOW_SECONDS: Final = 60.0
"""Seconds after which the suppressed log records of an origin are summed up in one line."""

_CONTINUATION_PREFIX: Final = "  | "
"""Prefix of each line of a traceback: only the first line of a record starts with a digit."""

_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# No access log: the query of a share link contains a token, and logs outlive tokens.
LOGGING: Final[dict[str, Any]] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "text": {"()": f"{__name__}.LineFormatter"},
        "json": {"()": "tbservice.server.json_logs.JsonFormatter"},
    },
    "handlers": {
        "stderr": {
            "()": f"{__name__}.RateLimitedHandler",
            "formatter": "text",
            "stream": "ext://sys.stderr",
        }
    },
    "root": {"handlers": ["stderr"], "level": "WARNING"},
}

_ERROR_ID: Final = "error id "
"""Start of the note at the end of a failure's traceback."""

_Origin = tuple[str, int, str, int, type[BaseException] | None, int]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Failure:
    """A failed request's error id for the response, which `RateLimitedHandler` may change."""

    error_id: str


def configure(log_format: LogFormat = "text") -> None:
    """Write every record of this process, and Python's warnings, to standard error."""
    handlers = {"stderr": {**LOGGING["handlers"]["stderr"], "formatter": log_format}}
    logging.config.dictConfig({**LOGGING, "handlers": handlers})
    logging.captureWarnings(capture=True)


def log_failure(error: Exception) -> str:
    """Log the error of a failed request with its traceback; return the id by which to find it.

    The note `error id …` at the end of the traceback has the id. If the record is suppressed, the
    id is that of the last similar record written, which has the same traceback. Later records of
    the same error, such as uvicorn's, are not written.
    """
    failure = _Failure(secrets.token_hex(8))
    error.add_note(f"{_ERROR_ID}{failure.error_id}")
    _log.error("a request failed", exc_info=error, extra={"failure": failure})
    return failure.error_id


def escape(text: str) -> str:
    r"""Return the text on one line, with unprintable characters as `\n`, `\x1b`, `\u2028`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shorten(text: str, chars_max: int) -> str:
    """Return the text with its middle left out if it has more than `chars_max` characters.

    Both ends remain, as they usually matter most; the note about the middle comes on top.
    """
    if len(text) <= chars_max:
        return text
    start, end = text[: chars_max // 2], text[len(text) - chars_max // 2 :]
    return f"{start} [{len(text) - chars_max} characters left out] {end}"


class LineFormatter(logging.Formatter):
    """Formatter of a record as one escaped line, and of its traceback as prefixed lines."""

    def __init__(self) -> None:
        super().__init__(_LINE)

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's lines; its message has at most `LOG_MESSAGE_CHARS_MAX` characters."""
        message = _bounded(record.getMessage().rstrip(), limits.LOG_MESSAGE_CHARS_MAX)
        # A copy, because other handlers get the record too, without the traceback that one of
        # them may have cached in it.
        own = {"msg": message, "args": None, "exc_text": None}
        return super().format(logging.makeLogRecord({**record.__dict__, **own}))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Return the traceback: at most `LOG_TRACEBACK_CHARS_MAX` characters without prefixes."""
        return _as_continuation(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        """Return the stack in the same format as `formatException`."""
        return _as_continuation(stack_info)


@dataclass(slots=True)
class _RateWindow:
    """The records of one origin since `began_at` (seconds, monotonic)."""

    began_at: float
    written: int = 0
    suppressed: int = 0
    error_id: str = ""
    """Id of the failure written last; empty if the last record was no failure."""


class RateLimitedHandler(logging.StreamHandler[TextIO]):
    """Handler that writes at most `LOG_REPEATS_MAX` records per origin and `LOG_WINDOW_SECONDS`.

    An origin is a line of code and, for an exception, its type and the lines of its traceback, but
    not the message, which clients may vary. When a window has ended, one record with the number of
    suppressed records is written: before the next record of any origin, or at the process's end.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._windows: dict[_Origin, _RateWindow] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record or count it as suppressed.

        A suppressed failure gets the id of the last one written of its origin.
        """
        failure: _Failure | None = getattr(record, "failure", None)
        if failure is None and _is_logged_failure(record):
            return

        now = self._clock()
        self._close_windows(now - LOG_WINDOW_SECONDS)
        window = self._windows.setdefault(_origin_of(record), _RateWindow(now))
        if window.written < LOG_REPEATS_MAX:
            window.written += 1
            window.error_id = failure.error_id if failure else ""
            super().emit(record)
            return

        window.suppressed += 1
        if failure is not None:
            failure.error_id = window.error_id

    def close(self) -> None:
        """Write the numbers of suppressed records, then close the handler."""
        self._close_windows(self._clock())
        super().close()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Write that formatting a record failed, without its text, which could not be escaped."""
        with suppress(OSError, ValueError):  # standard error is closed
            self.stream.write(
                f"a log record of {record.pathname}:{record.lineno} could not be written\n"
            )

    def _close_windows(self, began_until: float) -> None:
        """End the windows that began until then, and write what they suppressed."""
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
    # A set, because a client may determine the depth of a recursion.
    lines: set[tuple[str, int]] = set()
    if exception is not None:
        lines.update(
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
        hash(frozenset(lines)),
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
        message += f", reported to clients with {_ERROR_ID}{window.error_id}"
    return logging.LogRecord(name, level, path, line, message, None, None)


def _bounded(text: str, chars_max: int) -> str:
    """Return the text escaped and shortened; it is shortened first to limit the work."""
    return shorten(escape(shorten(text, chars_max)), chars_max)


def _as_continuation(text: str) -> str:
    lines = shorten(text, limits.LOG_TRACEBACK_CHARS_MAX).split("\n")
    escaped = shorten("\n".join(map(escape, lines)), limits.LOG_TRACEBACK_CHARS_MAX)
    return "\n".join(_CONTINUATION_PREFIX + line for line in escaped.split("\n"))
