"""Readers of live tails below HTTP: the events that one gets."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, asynccontextmanager

from support.admission import come_in
from tbservice.api.http.change_notifier import ChangeNotifier
from tbservice.api.v1.points import tail
from tbservice.api.v1.points.changes import TailQuery
from tbservice.auth import grants
from tbupload.export.tail import read_events


@asynccontextmanager
async def following(database):
    """Run a worker's change notifier; its last query has ended with the block."""
    come_in()
    followers = ChangeNotifier(database)
    yield followers
    followers.close()
    await followers.wait_closed()
    assert database.engine.pool.checkedout() == 0


def reader_of(database, followers, experiment, secret, query=None):
    """Return a tail reader with this token."""
    with database.transaction() as db:
        grant = grants.grant_read(db, experiment, secret)
    objects = None  # scalars have none
    return tail._TailReader(
        database, objects, followers, grant, secret, "scalars", query or TailQuery()
    )


async def events_of(reader, since=None):
    """Yield the events of a reader's tail: (name, data), and None for a comment."""
    answer = await tail._open_stream(reader, since)
    async with aclosing(answer.body_iterator) as pieces:
        async for piece in pieces:
            events = [(event.name, json.loads(event.data)) for event in read_events([piece])]
            for event in events or [None]:
                yield event
    answer._close()


async def until(events, wanted):
    """Return the first event that satisfies the condition."""
    async with asyncio.timeout(60):
        async for event in events:
            if event is not None and wanted(event):
                return event
    return None
