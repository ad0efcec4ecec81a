"""Routes for live tails: new points as server-sent events, while the client may read them.

The format of the events is that of the HTML Living Standard, section "Server-sent events".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

import orjson
from fastapi import Header, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tbservice import limits
from tbservice.api.http.change_notifier import ChangeNotifier, ExperimentState
from tbservice.api.http.dependencies import MayRead, Secret, UsesDatabase, UsesObjects, from_state
from tbservice.api.http.get_and_post import get_and_post
from tbservice.api.http.openapi_errors import OBJECT_MISSING
from tbservice.api.http.routers import make_router
from tbservice.api.http.streaming import refuse_unread
from tbservice.api.v1.points.changes import (
    POST_FOR,
    SINCE_IN_URL,
    TailQuery,
    changes_as_json,
    find_changes,
)
from tbservice.auth import grants
from tbservice.db.database import Database
from tbservice.errors import ServiceError, TooManyRequests, Unavailable
from tbservice.experiment_values import UploadStatus
from tbservice.objects.object_store import ObjectStore
from tbservice.types.grants import ReadGrant
from tbwire.points import DATA_CLASSES, DataClassName

LIVE_EVENT_POINTS_MAX: Final = 10_000
"""Points in one event of a live tail: the buffer of each slow reader."""

router = make_router(prefix="/api/v1/experiments/{experiment_id}", tags=["reading"])

LIVE_GRANT_SECONDS: Final = 4.0
"""Seconds after which a live tail checks again that its reader may read."""

LIVE_KEEPALIVE_SECONDS: Final = 15.0
"""Seconds without data after which a live tail sends a comment, so that proxies keep it open."""

MEDIA_TYPE: Final = "text/event-stream"

_RETRY: Final = b"retry: 1000\n\n"  # milliseconds until the client reconnects
_KEEPALIVE: Final = b":\n\n"  # a comment
# nginx would buffer a proxied response without the second header.
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_EVENT: Final = {
    "type": "object",
    "properties": {
        "event": {"type": "string", "enum": ["points", "end"]},
        "id": {"type": "string", "description": "The change cursor after the event's points"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["event", "data"],
    "description": "The fields of each event",
}
# Described here and not by `response_class=EventStream`: FastAPI would give its media type to the
# error responses too, and they are JSON.
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {MEDIA_TYPE: {"schema": _EVENT}}, "description": "A stream of events"},
    **OBJECT_MISSING,
}


class EventStream(StreamingResponse):
    """A response that streams events; `close` is called when it ends, however it ends."""

    media_type = MEDIA_TYPE

    def __init__(self, events: AsyncIterator[bytes], close: Callable[[], None]) -> None:
        super().__init__(events, headers=_HEADERS)
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()


@dataclass(frozen=True, slots=True)
class _PointsEvent:
    """A change set encoded as an event, with its change cursor."""

    cursor: str
    has_more: bool
    is_empty: bool
    event: bytes


@dataclass(frozen=True, slots=True)
class _TailReader:
    """A client of a live tail: the series it follows, and its right to read them."""

    database: Database
    objects: ObjectStore
    notifier: ChangeNotifier
    grant: ReadGrant
    secret: str | None
    kind: DataClassName
    query: TailQuery

    @property
    def status(self) -> UploadStatus | None:
        """Return how the experiment's upload is, as of the last poll; None if it is not told."""
        if not self.query.status or self.grant.is_stranger or self.grant.link is not None:
            return None
        state = self.notifier.state(self.grant)
        return None if state is None else state.status

    async def read_next(self, since: str | None) -> _PointsEvent:
        """Return the changes after `since` as an event; raises as `find_changes`.

        Readers with the same grant, series and cursor share one read.
        """
        key = (
            self.grant,
            self.query.to_selection(DATA_CLASSES[self.kind]),
            self.query.start,
            since,
        )
        return await self.notifier.single_flight(key, lambda: self._read_next(since))

    async def poll(self, since: str) -> tuple[bytes, str, bool]:
        """Return (event, its change cursor, whether there is more); the event is b"" if no changes.

        Raises as `find_changes`, and TooManyRequests if the caller's share of memory is used up by
        other responses.
        """
        points_event = await self.read_next(since)
        event = b"" if points_event.is_empty else points_event.event
        refuse_unread(len(event))
        return event, points_event.cursor, points_event.has_more

    def _read_next(self, since: str | None) -> _PointsEvent:
        change_set = find_changes(
            self.database,
            self.objects,
            self.grant,
            self.query,
            self.kind,
            since,
            LIVE_EVENT_POINTS_MAX,
        )
        event = _encode_event("points", changes_as_json(change_set), change_set.cursor)
        return _PointsEvent(
            change_set.cursor,
            change_set.has_more,
            not change_set.series and not change_set.removed,
            event,
        )

    @property
    def check_due_at(self) -> float:
        """Time of the monotonic clock at which a tail with this secret must check it again."""
        return self.notifier.checked_at(self.grant, self.secret) + LIVE_GRANT_SECONDS

    async def check(self) -> None:
        """Raise the error of `grants.grant_read` if the client may no longer read.

        One check is enough for all tails with the same secret.
        """
        await self.notifier.single_flight((self.grant, self.secret), self._check)
        self.notifier.note_check(self.grant, self.secret)

    def _check(self) -> None:
        with self.database.transaction() as db:
            grants.grant_read(db, self.grant.experiment_id, self.secret)


UsesChangeNotifier = Annotated[ChangeNotifier, from_state("notifier")]
LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=limits.CURSOR_IN_URL_CHARS_MAX)
]


@get_and_post(
    router,
    "/{kind}/tail",
    post_for=POST_FOR,
    url_fields=SINCE_IN_URL,
    response_class=Response,
    responses=_ANSWERS,
)
async def tail(
    grant: MayRead,
    kind: DataClassName,
    query: TailQuery,
    secret: Secret,
    database: UsesDatabase,
    objects: UsesObjects,
    notifier: UsesChangeNotifier,
    last_event_id: LastEventId = None,
) -> EventStream:
    """Send new points as server-sent events, as they are uploaded.

    Existing points are sent first, unless `start=now`. The data of an event `points` are a response
    of `/new`, and its id is the change cursor: reconnect with it in `Last-Event-ID` or `since`, and
    no point is missed or repeated. The first event may contain no points.

    With `status=true`, an event `status` with `{status}` is sent first, and when the upload
    changes. An event `end` with `{code, detail}` is sent when the token expires or is revoked, or
    the experiment is deleted. If the stream ends without it, reconnect. Comments are sent while
    there are no new points.
    """
    return await _open_stream(
        _TailReader(database, objects, notifier, grant, secret, kind, query),
        last_event_id or query.since,
    )


async def _open_stream(reader: _TailReader, since: str | None) -> EventStream:
    """Read the first event and return the stream; so errors in the request still have a status."""
    reader.notifier.subscribe(reader.grant)
    try:
        first = await reader.read_next(since)
    except BaseException:
        reader.notifier.unsubscribe(reader.grant)
        raise
    return EventStream(
        _stream_events(reader, first), lambda: reader.notifier.unsubscribe(reader.grant)
    )


async def _stream_events(reader: _TailReader, points_event: _PointsEvent) -> AsyncIterator[bytes]:
    """Yield events until the grant ends or the server stops, beginning with `points_event`."""
    event = _RETRY + points_event.event
    cursor, has_more = points_event.cursor, points_event.has_more
    del points_event
    yield event

    version: ExperimentState | None = None
    status: UploadStatus | None = None
    sent_at = time.monotonic()
    while not reader.notifier.is_closed:
        event = b""  # free the last event: it can have megabytes, and the wait can take hours
        is_behind = has_more or reader.notifier.state(reader.grant) != version
        if not is_behind:
            due_at = min(reader.check_due_at, sent_at + LIVE_KEEPALIVE_SECONDS)
            await reader.notifier.wait(reader.grant, version, max(0.0, due_at - time.monotonic()))

        try:
            if time.monotonic() >= reader.check_due_at:
                await reader.check()
            if is_behind:
                # Before the read: a change during it then causes another read.
                version_before = reader.notifier.state(reader.grant)
                event, cursor, has_more = await reader.poll(cursor)
                version = version_before
        except (TooManyRequests, Unavailable):
            # The database is unavailable or busy: retry, and keep the connection open.
            await asyncio.sleep(limits.LIVE_POLL_SECONDS)
        except ServiceError as error:
            yield _encode_event("end", {"code": error.code, "detail": error.detail})
            return

        if reader.status != status:
            status = reader.status
            yield _encode_event("status", {"status": status})
        if event:
            yield event
            sent_at = time.monotonic()
        elif time.monotonic() - sent_at >= LIVE_KEEPALIVE_SECONDS:
            yield _KEEPALIVE
            sent_at = time.monotonic()


def _encode_event(name: str, content: Any, cursor: str | None = None) -> bytes:
    head = f"event: {name}\n" + (f"id: {cursor}\n" if cursor is not None else "")
    return (
        head.encode()
        + b"data: "
        + orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
        + b"\n\n"
    )
