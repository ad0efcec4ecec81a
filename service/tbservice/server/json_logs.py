"""The service's log as JSON objects, one per line, for collectors such as Loki or Elasticsearch."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from tbservice import limits, traces
from tbservice.api.http.request_id import REQUEST_ID
from tbservice.server.logs import shorten


class JsonFormatter(logging.Formatter):
    """Formatter of a record as a JSON object in ASCII, which no text of a client can leave.

    Always: `time` (RFC 3339, UTC), `level`, `logger`, `message`. While a request is processed:
    `request_id`, and `trace_id` if traces are on. A failure also has `error_id` and `traceback`.
    Bounded as the lines of `LineFormatter`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the object, without a line break."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, Any] = {
            "time": time,
            "level": record.levelname,
            "logger": record.name,
            "message": shorten(record.getMessage().rstrip(), limits.LOG_MESSAGE_CHARS_MAX),
        }
        if request_id := REQUEST_ID.get():
            fields["request_id"] = request_id
        if trace_id := traces.current_id():
            fields["trace_id"] = trace_id
        if failure := getattr(record, "failure", None):
            fields["error_id"] = failure.error_id
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = self.formatStack(record.stack_info)
        return json.dumps(fields)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Return the traceback with at most `LOG_TRACEBACK_CHARS_MAX` characters."""
        return shorten(super().formatException(ei), limits.LOG_TRACEBACK_CHARS_MAX)

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        """Return the stack with at most `LOG_TRACEBACK_CHARS_MAX` characters."""
        return shorten(stack_info, limits.LOG_TRACEBACK_CHARS_MAX)
