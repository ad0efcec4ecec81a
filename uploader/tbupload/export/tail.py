"""Live tail: the new points of an experiment, across lost connections and server restarts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from tbupload.errors import Refused, Unreachable
from tbupload.http.json_calls import experiment_path
from tbupload.http.response_schema import (
    INTEGER_MAX,
    Json,
    array,
    by_run_and_tag,
    integer,
    nullable,
    number,
    parse,
    plain,
    record,
    string,
    unreadable_answer,
)
from tbupload.http.transport import Transport
from tbupload.limits import ERROR_DETAIL_CHARS_MAX, RESPONSE_BYTES_MAX
from tbwire.points import DataClassName

_END_STATUSES: Final = {"unauthenticated": 401, "forbidden": 403, "not_found": 404}

_TRANSIENT_ENDS: Final = frozenset({"too_many_requests", "unavailable", "busy"})
"""Codes of an `end` event after which the stream is requested again."""

_END: Final = record({"code": string, "detail": string})
_STATUS: Final = record({"status": nullable(string)})
_POINTS: Final = by_run_and_tag(
    {
        "plugin": string,
        "steps": array(integer(-INTEGER_MAX - 1)),
        "wall_times": array(number),
        "values": array(plain),
    }
)
_CHANGES: Final = record({"cursor": string, "points": _POINTS})


def follow_points(
    transport: Transport,
    experiment_id: str,
    kind: DataClassName,
    query: Mapping[str, Any] | None = None,
) -> Iterator[Json]:
    """Yield the changes that the server sends: `{cursor, more, removed, points}`; never return.

    With the field `status`, also yield `{status}`, first and when it changes.

    Every point is yielded once: after a lost connection, the stream resumes at the change cursor of
    the last event that was received completely.

    Args:
        transport: the connection to the server; its retry policy is that of the tail.
        experiment_id: the experiment.
        kind: the data class.
        query: fields of `POST …/{kind}/tail`: run, tag, plugin, `since`, `start` and `status`.

    Raises:
        Refused: the token is not (or no longer) valid, or the experiment was deleted.
        Unreachable: the server did not respond for longer than the retry timeout.
    """
    path = experiment_path(experiment_id, kind, "tail")
    fields = dict(query or {})
    broken_since, attempt = time.monotonic(), 0

    while True:
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        try:
            with transport.stream(
                "POST", path, body=json.dumps(fields).encode(), headers=headers
            ) as chunks:
                for event in read_events(chunks):
                    changes = _parse_changes(event)
                    if "cursor" in changes:
                        fields["since"] = changes["cursor"]
                    broken_since, attempt = time.monotonic(), 0
                    yield changes
        except Unreachable as error:
            if not error.is_mid_response:
                raise
        except ValueError as error:
            raise unreadable_answer(str(error)) from error

        if transport.retry_policy.wait_before_retry(attempt, broken_since, None) is None:
            raise Unreachable(f"{transport.server}: the stream broke off")
        attempt += 1


def _parse_changes(event: ServerEvent) -> Json:
    """Return the changes of an event; raise Refused or Unreachable for an `end` event."""
    if event.name == "status":
        return parse(event.data, _STATUS)
    if event.name != "end":
        content = parse(event.data, _CHANGES)
        for tags in content["points"].values():
            for new in tags.values():
                if not len(new["steps"]) == len(new["wall_times"]) == len(new["values"]):
                    raise unreadable_answer("points: columns of different lengths")
        return content

    end = parse(event.data, _END)
    code, explanation = end["code"], f"the tail has ended: {end['detail'][:ERROR_DETAIL_CHARS_MAX]}"
    if code in _TRANSIENT_ENDS:
        raise Unreachable(explanation, is_mid_response=True)
    raise Refused(explanation, status=_END_STATUSES.get(code, 0), code=code)


class ServerEvent(NamedTuple):
    """An event of the server."""

    name: str
    data: bytes


def read_events(chunks: Iterable[bytes]) -> Iterator[ServerEvent]:
    """Yield the complete events of a body in chunks of any size; drop an incomplete one at its end.

    Parses what our server sends: lines end with a line feed, and data is one line.

    Raises:
        ValueError: An event is longer than RESPONSE_BYTES_MAX, or a name is not UTF-8.
    """
    fields: dict[str, bytes] = {}
    size = 0
    for line in _lines(chunks):
        size = size + len(line) + 1 if line else 0
        if size > RESPONSE_BYTES_MAX:
            raise ValueError(f"an event is over the limit of {RESPONSE_BYTES_MAX:,} bytes")
        if line:
            name, _, value = line.partition(b":")
            fields[name.decode()] = value.removeprefix(b" ")
            continue

        if "data" in fields:
            yield ServerEvent(fields.get("event", b"message").decode(), fields["data"])
        fields = {}


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest: list[bytes] = []
    size = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        rest.append(first)
        size += len(first)
        if size > RESPONSE_BYTES_MAX:
            raise ValueError(f"a line is over the limit of {RESPONSE_BYTES_MAX:,} bytes")
        for line in others:
            yield b"".join(rest)
            rest, size = [line], len(line)
