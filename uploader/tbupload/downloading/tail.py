"""Follows an experiment: its new points as they come, through whatever happens to the connection and the server."""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tbupload.downloading.event_stream import ServerEvent, read_events
from tbupload.downloading.points import Kind
from tbupload.errors import Refused, Unreachable
from tbupload.sending.patience import Patience
from tbupload.sending.response_schema import Json
from tbupload.sending.transport import Transport

_STATUS_OF_END: Final = {"unauthenticated": 401, "forbidden": 403, "not_found": 404}


def follow_points(
    transport: Transport, patience: Patience, experiment_id: str, kind: Kind, query: Mapping[str, Any] | None = None
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
            with transport.stream("POST", path, body=json.dumps(asked).encode(), headers=headers) as pieces:
                for event in read_events(pieces):
                    portion = _portion(event)
                    asked["since"] = portion["cursor"]
                    broken_since, attempt = time.monotonic(), 0
                    yield portion
        except Unreachable as error:
            if not error.is_in_the_middle:
                raise
        if patience.wait_to_repeat(attempt, broken_since, None) is None:
            raise Unreachable(f"{transport.server}: the stream broke off")
        attempt += 1


def _portion(event: ServerEvent) -> Json:
    content: Json = json.loads(event.data)
    if event.name == "end":
        status = _STATUS_OF_END.get(content["code"], 0)
        raise Refused(f"the tail has ended: {content['detail']}", status=status, code=content["code"])
    return content
