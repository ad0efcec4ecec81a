"""Live tails below HTTP: which events a reader gets, when the tail ends, and the limits of a
worker.
"""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from support.admission import CALLER, STRANGER, come_in, used_up
from support.batches import scalars, segment, stream
from support.share_links import make_link
from support.tail_readers import events_of, following, reader_of, until
from tbservice import limits
from tbservice.admission import admitted
from tbservice.admission.answers import ABORT_KEY, ResponseSender
from tbservice.admission.worker_shares import LIVE_STREAMS_MAX
from tbservice.api.v1.points import tail
from tbservice.api.v1.points.changes import TailQuery
from tbservice.errors import TooManyRequests
from tbservice.experiments.tables.experiment_size import Size
from tbservice.ingest.observers import LiveTails, StoredPoints
from tbservice.server.app import create_app
from tbservice.types.grants import AppendGrant
from tbservice.types.identifiers import WorkspaceId

pytestmark = pytest.mark.anyio

GRANT_SECONDS, POLL_SECONDS = tail.LIVE_GRANT_SECONDS, limits.LIVE_POLL_SECONDS


@pytest.fixture
def experiment(api):
    return api.new_experiment(scalars("loss", [0, 1]))


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch):
    monkeypatch.setattr(limits, "LIVE_POLL_SECONDS", 0.02)
    monkeypatch.setattr(tail, "LIVE_GRANT_SECONDS", 0.1)
    monkeypatch.setattr(tail, "LIVE_KEEPALIVE_SECONDS", 0.05)


def steps_of(event):
    return event[1]["points"].get("train", {}).get("loss", {}).get("steps", [])


async def test_tail_sends_what_is_there_then_comments_then_what_comes(api, database, experiment):
    async with following(database) as followers:
        reader = reader_of(database, followers, experiment, api.headers["Authorization"].split()[1])
        events = events_of(reader)
        first, second = await anext(events), await anext(events)
        assert (steps_of(first), second) == ([0, 1], None)
        await asyncio.to_thread(
            api.write, experiment, segment(stream(), 9, 19, scalars("loss", [2]))
        )
        assert steps_of(await until(events, steps_of)) == [2]
        reader.notifier.close()
        assert await until(events, lambda _: True) is None


async def test_commit_of_this_worker_is_told_without_waiting_for_poll(
    api, database, experiment, monkeypatch
):
    monkeypatch.setattr(limits, "LIVE_POLL_SECONDS", 3_600.0)

    async with following(database) as followers:
        secret = api.headers["Authorization"].split()[1]
        events = events_of(reader_of(database, followers, experiment, secret))
        assert steps_of(await anext(events)) == [0, 1]
        assert await anext(events) is None  # nothing else is there; the next poll is far off
        sent = segment(stream(), 9, 19, scalars("loss", [2]))
        await asyncio.to_thread(api.write, experiment, sent)
        await asyncio.to_thread(LiveTails(followers.note_commit).after_commit, told(experiment))
        assert steps_of(await until(events, steps_of)) == [2]


def told(experiment):
    """Return points that were stored in an experiment, as the door tells its observers."""
    return StoredPoints(AppendGrant(WorkspaceId(1), experiment), Size(1, 24))


def test_application_tells_its_tails_of_commits(settings):
    state = create_app(settings).state
    observers = [each for each in state.ingest.door.observers if isinstance(each, LiveTails)]
    assert [each.note_commit for each in observers] == [state.notifier.note_commit]


@pytest.mark.parametrize("column", ["revoked_at", "expires_at"])
async def test_tail_ends_when_its_token_does(api, database, workspace_id, experiment, column):
    secret = api.new_token(experiment, "read")

    async with following(database) as followers:
        events = events_of(reader_of(database, followers, experiment, secret))
        await anext(events)
        with database.transaction(workspace_id) as db:
            statement = f"UPDATE tokens SET {column} = now() WHERE experiment_id IS NOT NULL"  # noqa: S608 - a column
            db.execute(text(statement))
        name, content = await until(events, lambda event: event[0] == "end")
        assert (name, content["code"]) == ("end", "unauthenticated")


def test_link_ends_within_five_seconds():
    assert GRANT_SECONDS + POLL_SECONDS <= 5


async def test_tail_of_slice_sends_what_matches(api, database, experiment):
    link = make_link(api, experiment, runs="train|later", tags="loss")

    async with following(database) as followers:
        events = events_of(reader_of(database, followers, experiment, link["token"]))
        assert steps_of(await anext(events)) == [0, 1]
        for number, run in enumerate(("hidden", "later")):
            sent = segment(stream(run), 0, 9, scalars("loss", [number]), scalars("other", [7]))
            await asyncio.to_thread(api.write, experiment, sent)
        changed = await until(events, lambda event: event[1]["points"])
        assert {run: list(tags) for run, tags in changed[1]["points"].items()} == {
            "later": ["loss"]
        }


async def test_readers_at_same_cursor_share_one_query(api, database, experiment, monkeypatch):
    seen = []
    find_news = tail.find_changes
    monkeypatch.setattr(
        tail, "find_changes", lambda *arguments: seen.append(arguments) or find_news(*arguments)
    )

    async with following(database) as followers:
        readers = [
            reader_of(database, followers, experiment, api.headers["Authorization"].split()[1])
        ] * 30
        answers = await asyncio.gather(*(tail._open_stream(reader, None) for reader in readers))
        assert len(seen) == 1
        for answer in answers:
            answer._close()
        assert not followers._followed


async def test_tails_of_one_token_share_its_checks(api, database, experiment, monkeypatch):
    checks, done = [], asyncio.Event()
    secret = api.headers["Authorization"].split()[1]
    check = tail._TailReader._check

    def count(reader):
        check(reader)
        checks.append(reader.secret)

    monkeypatch.setattr(tail._TailReader, "_check", count)

    async with following(database) as followers:
        tails = [events_of(reader_of(database, followers, experiment, secret)) for _ in range(9)]
        for events in tails:
            await anext(events)
        comments = [0] * len(tails)

        async def count_comments(number):
            async for _ in tails[number]:
                comments[number] += 1
                if min(comments) >= 10:
                    done.set()

        reading = [asyncio.create_task(count_comments(number)) for number in range(len(tails))]
        await done.wait()
        # A comment comes twice as often as a check: each of them would check five times.
        assert 2 <= len(checks) <= max(comments)
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


async def test_worker_limits_its_number_of_tails(api, client, database, experiment, monkeypatch):
    with used_up(client.app.state.shares.tails, LIVE_STREAMS_MAX):
        refused = api.request("GET", f"/experiments/{experiment}/scalars/tail")
    assert (refused.status_code, refused.headers["Retry-After"].isdigit()) == (429, True)
    monkeypatch.setattr("tbservice.admission.worker_shares.CALLER_LIVE_STREAMS_MAX", 1)

    async with following(database) as followers:
        reader = reader_of(database, followers, experiment, api.headers["Authorization"].split()[1])
        answer = await tail._open_stream(reader, None)
        with pytest.raises(TooManyRequests):
            await tail._open_stream(reader, None)
        answer._close()
        (await tail._open_stream(reader, None))._close()


async def test_tail_reader_who_takes_nothing_is_cut_off(api, database, experiment, monkeypatch):
    monkeypatch.setattr(limits, "RESPONSE_STALL_SECONDS_MAX", 0.2)

    async with following(database) as followers:
        reader = reader_of(database, followers, experiment, api.headers["Authorization"].split()[1])
        stream = await tail._open_stream(reader, None)
        taken = asyncio.Event()

        async def send(message):
            if message["type"] == "http.response.body":
                while database.engine.pool.checkedout():  # noqa: ASYNC110 - the look for what changed, which ends
                    await asyncio.sleep(0.001)
                taken.set()
                await asyncio.sleep(60)

        is_closed = asyncio.Event()

        async def receive():
            await is_closed.wait()
            return {"type": "http.disconnect"}

        scope = {"type": "http", "asgi": {"spec_version": "2.3"}, ABORT_KEY: is_closed.set}
        answer = ResponseSender(scope, send, admitted.current())
        async with asyncio.timeout(60):
            await stream(scope, receive, answer.send)
        assert taken.is_set()
        assert not reader.notifier._followed


async def test_tail_event_waits_for_room_among_unread_answers(api, database, experiment):
    async with following(database) as followers:
        events = events_of(
            reader_of(database, followers, experiment, api.headers["Authorization"].split()[1])
        )
        await anext(events)
        unread = admitted.current().shares.unread_bytes
        unread.acquire_unchecked(CALLER, limits.CALLER_UNSENT_RESPONSE_BYTES_MAX)
        api.write(experiment, segment(stream(), 9, 18, scalars("loss", [2])))
        comments = [await anext(events) for _ in range(5)]
        assert comments == [None] * 5
        unread.release(CALLER, limits.CALLER_UNSENT_RESPONSE_BYTES_MAX)
        assert steps_of(await until(events, steps_of)) == [2]


async def test_tail_keeps_no_event_that_was_sent(api, database, experiment):
    async with following(database) as followers:
        answer = await tail._open_stream(
            reader_of(database, followers, experiment, api.headers["Authorization"].split()[1]),
            None,
        )
        events = answer.body_iterator
        while await anext(events) != tail._KEEPALIVE:
            pass
        assert not any(
            isinstance(value, bytes | tail._PointsEvent) and value
            for value in events.ag_frame.f_locals.values()
        )
        await events.aclose()
        answer._close()


async def test_tails_of_one_stranger_begin_with_one_turn(api, database, monkeypatch):
    experiment = api.new_experiment(scalars("loss", [0, 1]), visibility="link")
    monkeypatch.setattr(limits, "QUEUE_WAIT_SECONDS_MAX", 60)

    async def begin(followers, shares, start):
        request = admitted.admit(STRANGER, shares)
        await request.turn.wait()
        reader = reader_of(database, followers, experiment, None, TailQuery(start=start))
        answer = await tail._open_stream(reader, None)
        answer._close()

    async with following(database) as followers:
        shares = come_in()
        starts = ["beginning", "beginning", "now"]
        await asyncio.gather(
            *(asyncio.create_task(begin(followers, shares, start)) for start in starts)
        )
        assert not shares.turns._used
        assert not shares.tails._used


async def test_tail_sends_status_of_upload_when_it_changes(api, database, experiment):
    path = f"/experiments/{experiment}/uploads/{'a' * 16}"
    begun = {"started_at": "2026-01-01T00:00:00Z", "status_of": "training"}
    assert api.request("PUT", path, json=begun).status_code == 204

    def is_status(event):
        return event[0] == "status"

    async with following(database) as followers:
        secret = api.headers["Authorization"].split()[1]
        query = TailQuery(status=True)
        reader = reader_of(database, followers, experiment, secret, query)
        events = events_of(reader)
        statuses = [(await until(events, is_status))[1]]
        await asyncio.to_thread(api.request, "PATCH", path, json={"status": "finished"})
        statuses.append((await until(events, is_status))[1])
        assert statuses == [{"status": "running"}, {"status": "finished"}]
