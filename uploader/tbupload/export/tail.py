"""Follows an experiment: its new points as they come, through whatever happens to the connection and the server."""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tbupload.errors import Refused, Unreachable
from tbupload.export.remote_series import DataClass
from tbupload.http.response_schema import (
    INTEGER_MAX,
    Json,
    array,
    integer,
    mapping,
    number,
    parse,
    plain,
    record,
    string,
    unreadable_answer,
)
from tbupload.http.retry import RetryPolicy
from tbupload.http.sse import ServerEvent, read_events
from tbupload.http.transport import Transport
from tbupload.limits import ERROR_DETAIL_CHARS_MAX

_END_STATUSES: Final = {"unauthenticated": 401, "forbidden": 403, "not_found": 404}

_TRANSIENT_ENDS: Final = frozenset({"too_many_requests", "unavailable", "busy"})
"""Ends of a stream after which it is asked for again."""

_END: Final = record({"code": string, "detail": string})
_SERIES: Final = record(
    {
        "plugin": string,
        "steps": array(integer(-INTEGER_MAX - 1)),
        "wall_times": array(number),
        "values": array(plain),
    }
)
_CHANGES: Final = record({"cursor": string, "points": mapping(mapping(_SERIES))})


def follow_points(
    transport: Transport,
    retry_policy: RetryPolicy,
    experiment_id: str,
    kind: DataClass,
    query: Mapping[str, Any] | None = None,
) -> Iterator[Json]:
    """Each portion of new points as the server sends it: `{cursor, more, removed, points}`, every point once.

    `query` has the fields of `POST …/{kind}/tail`: run, tag, plugin, `since` and `start`. When the stream breaks off,
    it goes on behind the last portion that came whole. Never ends by itself. Raises Refused when the reader may not
    read (any more) or the experiment is gone; Unreachable when the server stays away for longer than the patience.
    """
    path = f"/api/v1/experiments/{urllib.parse.quote(experiment_id, safe='')}/{kind}/tail"
    asked = dict(query or {})
    broken_since, attempt = time.monotonic(), 0
    while True:
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        try:
            with transport.stream(
                "POST", path, body=json.dumps(asked).encode(), headers=headers
            ) as pieces:
                for event in read_events(pieces):
                    portion = _parse_changes(event)
                    asked["since"] = portion["cursor"]
                    broken_since, attempt = time.monotonic(), 0
                    yield portion
        except Unreachable as error:
            if not error.is_mid_response:
                raise
        except ValueError as error:
            raise unreadable_answer(str(error)) from error
        if retry_policy.wait_before_retry(attempt, broken_since, None) is None:
            raise Unreachable(f"{transport.server}: the stream broke off")
        attempt += 1


def _parse_changes(event: ServerEvent) -> Json:
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
