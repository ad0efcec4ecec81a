"""Admission control on plain values: shares, queues in rotation, and bodies and answers of hostile
clients.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import Counter
from dataclasses import replace

import pytest
from starlette.datastructures import Headers

from support.admission import CALLER, OTHER, STRANGER, come_in
from support.clock import Clock
from tbservice import limits
from tbservice.admission.admitted import admit, current, turn
from tbservice.admission.answers import ABORT_KEY, RESPONSE_CHUNK_BYTES, ResponseSender
from tbservice.admission.bodies import SMALL_BODY_BYTES_MAX, RequestBody
from tbservice.admission.callers import _token, address_caller
from tbservice.admission.contention import CALLER_BODY_BYTES_PER_SECOND, Activity, BodyRate
from tbservice.admission.fair_queue import FairQueue
from tbservice.admission.shares import Caller, Shares
from tbservice.admission.turns import Turn, Turns
from tbservice.admission.worker_shares import WorkerShares
from tbservice.api.http.streaming import refuse_unread
from tbservice.errors import RequestTimeout, TooLarge, TooManyRequests, forget_frames
from tbservice.reading.comparison import ComparisonReader
from tbservice.waits import count_in, waiting

pytestmark = pytest.mark.anyio

JSON_PATH = "/api/v1/experiments/x/scalars/data"
BATCH_PATH = "/api/v1/experiments/x/batches"


def scope_of(path=JSON_PATH, client="192.0.2.1", query=b"", **headers):
    listed = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "client": (client, 1),
        "query_string": query,
        "headers": listed,
    }


def strangers_of(line, count):
    return [
        Caller(f"address {line} {number}", True, line, f"address {line} {number}")
        for number in range(count)
    ]


def test_shares_bound_one_caller_and_all():
    shares = Shares("things", 4, 3)
    assert [shares.try_acquire(CALLER) for _ in range(4)] == [True, True, True, False]
    assert [shares.try_acquire(OTHER) for _ in range(2)] == [True, False]
    shares.release(CALLER)
    assert shares.try_acquire(OTHER)
    with pytest.raises(TooManyRequests, match="3 of 4 things"):
        shares.acquire(CALLER)


def test_shares_leave_most_to_callers_with_token():
    shares = Shares("things", 8, 4)
    strangers = strangers_of("experiment", 2)
    assert [shares.try_acquire(STRANGER) for _ in range(2)] == [True, False]
    assert [shares.try_acquire(stranger) for stranger in strangers] == [True, False]
    assert [shares.try_acquire(CALLER) for _ in range(4)] == [True] * 4


def test_shares_of_workspace_and_its_readers_are_one():
    shares = Shares("things", 8, 4)
    readers = replace(CALLER, is_reader=True)
    assert [shares.try_acquire(readers) for _ in range(3)] == [True, True, False]
    assert [shares.try_acquire(CALLER) for _ in range(3)] == [True, True, False]
    assert [shares.try_acquire(OTHER) for _ in range(4)] == [True] * 4
    for _ in range(2):
        shares.release(readers)
    assert not shares.try_acquire(OTHER)
    for _ in range(4):
        shares.release(OTHER)
    assert [shares.try_acquire(CALLER) for _ in range(3)] == [True, True, False]


def test_shares_let_one_use_be_larger_than_share():
    shares = Shares("bytes", 100, 10)
    assert shares.try_acquire(CALLER, 1_000)
    assert not shares.try_acquire(CALLER, 1)
    shares.release(CALLER, 1_000)
    assert shares.try_acquire(CALLER, 10)
    assert not shares._by_caller[OTHER]


def test_turns_are_one_at_time_while_others_work():
    clock = Clock()
    turns = Turns(8, 2, Activity(clock), clock)
    turns.waits.add("others", 8)  # none of them computes
    assert [turns.try_acquire(CALLER) for _ in range(3)] == [True, True, False]
    turns.release(CALLER)
    assert turns.try_acquire(OTHER)
    assert not turns.try_acquire(CALLER)
    assert not turns.try_acquire(OTHER)
    turns.release(CALLER)
    clock.now += limits.CONTENTION_SECONDS * 1.01
    assert [turns.try_acquire(CALLER) for _ in range(3)] == [True, True, False]


def test_turn_held_for_long_lets_another_of_workspace_begin():
    clock = Clock()
    turns = Turns(8, 2, Activity(clock), clock)
    turns.waits.add("others", 8)  # none of them computes
    assert turns.try_acquire(CALLER)
    clock.now += limits.CONTENTION_SECONDS / 2
    assert turns.try_acquire(OTHER)
    assert not turns.try_acquire(CALLER)
    clock.now += limits.CONTENTION_SECONDS
    turns.release(OTHER)
    assert turns.try_acquire(OTHER)
    assert [turns.try_acquire(CALLER) for _ in range(2)] == [True, False]


async def test_turn_is_served_when_its_limit_ends(monkeypatch):
    monkeypatch.setattr(limits, "CONTENTION_SECONDS", 0.05)

    turns = Turns(8, 2, Activity())
    await turns.wait(CALLER)
    await turns.wait(OTHER)
    await turns.wait(CALLER)  # without any release
    turns.release(OTHER)
    turns.release(CALLER)
    turns.release(CALLER)
    assert not turns._used
    assert not turns._acquired_at


def test_turn_that_waits_lets_another_of_its_account_begin():
    clock = Clock()
    turns = Turns(8, 2, Activity(clock), clock)
    assert turns.try_acquire(CALLER)
    assert not turns.try_acquire(OTHER)  # which makes the caller one of several
    turns.waits.add(CALLER.key, 1)
    assert [turns.try_acquire(CALLER) for _ in range(2)] == [True, False]


async def test_turn_is_served_when_another_begins_to_wait():
    turns = Turns(8, 2, Activity())
    await turns.wait(CALLER)
    waiting = asyncio.create_task(turns.wait(OTHER))
    await asyncio.sleep(0)
    turns.waits.add(CALLER.key, 1)  # no turn is released
    await waiting


def test_cost_of_turn_leaves_out_what_it_waited():
    clock = Clock()
    turns = Turns(8, 2, Activity(clock), clock)

    def use(caller, seconds, waited):
        count_in(turns.waits, caller.key, lambda: None, lambda: None)
        assert turns.try_acquire(caller)
        clock.now += seconds
        if waited:
            with waiting():
                time.sleep(waited)
        turns.release(caller)
        return turns._places.places[caller.path[0]].cost

    holder = person_of("holder")
    turns.waits.add("others", 8)
    assert turns.try_acquire(holder)  # so that costs are kept
    assert contextvars.copy_context().run(use, CALLER, 0.5, 0) == 0.5
    assert contextvars.copy_context().run(use, OTHER, 0.5, 0.01) < 0.495


def test_turn_of_overlapping_requests_ends_shorter_first():
    clock = Clock()
    turns = Turns(8, 2, Activity(clock), clock)
    assert turns.try_acquire(CALLER)  # for long
    clock.now += 2 * limits.CONTENTION_SECONDS
    assert turns.try_acquire(CALLER)  # for a moment
    turns.release(CALLER)
    assert turns.try_acquire(OTHER)  # the long one is still known as such


def person_of(name, *sponsors):
    """Return a person who was invited by the last one of these."""
    families = tuple(f"family of {each}" for each in (*sponsors, name))
    return Caller(f"person {name}", False, "", f"person {name}", families=families)


def test_families_leave_quarter_to_siblings():
    shares = Shares("things", 16, 2)
    accounts = [person_of(f"account {number}", "owner", "member") for number in range(20)]
    for account in accounts:
        shares.try_acquire(account)
    assert shares._used == 8
    siblings = [person_of(f"sibling {number}", "owner") for number in range(20)]
    for sibling in siblings:
        shares.try_acquire(sibling)
    assert shares._used == 12
    assert shares.try_acquire(STRANGER)
    assert shares.try_acquire(OTHER)


def test_turns_are_few_while_several_callers_compute():
    turns = Turns(8, 2, Activity(clock := Clock()), clock)
    callers = [person_of(f"{number}") for number in range(4)]
    assert [turns.try_acquire(caller) for caller in callers] == [True, False, False, False]
    turns.waits.add("others", 1)  # it waits for PostgreSQL
    assert [turns.try_acquire(caller) for caller in callers[1:]] == [True, False, False]
    turns.waits.add("others", -1)
    assert not turns.try_acquire(callers[2])
    clock.now += limits.CONTENTION_SECONDS * 1.01
    assert [turns.try_acquire(caller) for caller in callers[2:]] == [True, False]


async def serve_in_turn(turns, clock, seconds, count):
    """Work on `count` requests, one at a time, of callers who never stop asking; return whose.

    `seconds` says how long a request of each takes.
    """
    served, tasks = [], set()

    async def work(caller):
        async with turns.turn(caller):
            served.append(caller)
            clock.now += seconds[caller]
            await asyncio.sleep(0)

    while len(served) < count:
        for caller in seconds:
            while sum(task.get_name() == caller.key for task in tasks) < 9:
                tasks.add(asyncio.create_task(work(caller), name=caller.key))
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        tasks = {task for task in tasks if not task.done()}
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return served


async def test_queue_divides_time_and_not_requests():
    clock = Clock()
    turns = Turns(8, 2, Activity(clock), clock)
    light, heavy = person_of("light"), person_of("heavy")
    served = await serve_in_turn(turns, clock, {light: 0.01, heavy: 0.1}, 220)
    assert 15 <= served.count(heavy) <= 25
    # No starvation: between two requests of the heavy one, the light one has as much time.
    gaps = "".join("h" if caller is heavy else "l" for caller in served).split("h")
    assert max(map(len, gaps)) <= 12


async def test_queue_divides_time_by_level_of_invitations():
    clock = Clock()
    turns = Turns(8, 2, Activity(clock), clock)
    owner, member = person_of("owner"), person_of("member", "owner")
    accounts = [person_of(f"account {number}", "owner", "crowding") for number in range(30)]
    # Invitations of invitations lead to no other line.
    accounts += [
        person_of(f"deep {number}", "owner", "crowding", f"account {number}")
        for number in range(30)
    ]
    seconds = dict.fromkeys((owner, member, *accounts), 0.1)
    served = await serve_in_turn(turns, clock, seconds, 300)
    counts = Counter(served)
    assert 90 <= counts[owner] <= 110
    assert 90 <= counts[member] <= 110
    assert len(set(served)) == 62
    assert not turns._places.places


def test_body_rate_bounds_caller_beside_others():
    clock = Clock()
    activity = Activity(clock)
    rate = BodyRate(activity, clock)
    second = CALLER_BODY_BYTES_PER_SECOND
    activity.note(CALLER.key)
    assert rate.delay_seconds(CALLER, 10 * second) == 0
    activity.note(OTHER.key)
    assert rate.delay_seconds(CALLER, second) == 1
    assert rate.delay_seconds(CALLER, second) == 2
    assert rate.delay_seconds(STRANGER, second) == 2  # half the rate
    assert rate.delay_seconds(OTHER, second // 2) == 0.5
    clock.now += 3
    activity.note(OTHER.key)
    assert rate.delay_seconds(CALLER, second) == 1


async def test_queue_serves_callers_in_rotation():
    served = []

    async def work(queue, caller, number):
        async with queue.turn(caller):
            served.append((caller.key, number))
            await asyncio.sleep(0)

    queue = FairQueue("turns", 1, 1)
    async with queue.turn(STRANGER):
        tasks = [asyncio.create_task(work(queue, CALLER, number)) for number in range(5)]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(work(queue, OTHER, number)) for number in range(2)]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert not queue._used
    assert not queue._places.places
    assert served == [(CALLER.key, 0), (OTHER.key, 0), (CALLER.key, 1), (OTHER.key, 1)] + [
        (CALLER.key, number) for number in (2, 3, 4)
    ]


async def test_turn_that_gives_way_comes_before_own_requests():
    served = []

    async def work(turn, name):
        await turn.wait()
        served.append(name)
        if name == "long":
            await turn.give_way()
            served.append("long again")
        turn.release()

    turns = Turns(8, 2, Activity())
    names = {"long": CALLER, "own": CALLER, "other": OTHER}
    holder = Turn(turns, STRANGER)
    await holder.wait()
    tasks = []
    for name, caller in names.items():
        tasks.append(asyncio.create_task(work(Turn(turns, caller), name)))
        await asyncio.sleep(0)
    holder.release()
    await asyncio.gather(*tasks)
    assert not turns._used
    assert not turns.has_waiting
    assert served == ["long", "other", "long again", "own"]


async def test_turn_that_pauses_lets_only_another_account_begin():
    served = []

    async def work(turn, name):
        await turn.wait()
        served.append(name)

    turns = Turns(8, 2, Activity())
    holder, long = Turn(turns, OTHER), Turn(turns, CALLER)
    await holder.wait()  # two accounts work from here on
    waiting_turns = {"long": long, "own": Turn(turns, CALLER), "other": Turn(turns, OTHER)}
    tasks = []
    for name, turn_ in waiting_turns.items():
        tasks.append(asyncio.create_task(work(turn_, name)))
        await asyncio.sleep(0)
    holder.release()
    await tasks[0]
    await asyncio.sleep(0)
    assert served == ["long"]
    await long.pause()
    assert served == ["long", "other"]
    assert turns.waits.count == 0
    await long.pause()  # only its own request waits
    assert served == ["long", "other"]
    for turn_ in waiting_turns.values():
        turn_.release()
    await asyncio.gather(*tasks)


async def test_turn_gives_way_only_while_it_is_held():
    turn = Turn(Turns(8, 2, Activity()), CALLER)
    await turn.give_way()
    assert turn.try_acquire()
    await turn.give_way()  # nobody waits
    turn.release()
    assert turn.try_acquire()


async def test_turn_of_client_that_leaves_while_it_gives_way_is_free():
    turns = Turns(8, 2, Activity())
    leaving, other = Turn(turns, CALLER), Turn(turns, OTHER)
    await leaving.wait()
    others = asyncio.create_task(other.wait())
    await asyncio.sleep(0)
    giving = asyncio.create_task(leaving.give_way())
    await others
    leaving.finish()
    other.release()
    await giving
    assert not turns._used


async def test_comparison_lets_others_go_between_its_experiments():
    class Empty:
        list_runs = staticmethod(list)

    comparison = ComparisonReader("id", {"a": Empty, "b": Empty})

    turns = come_in().turns
    await current().turn.wait()
    other = Turn(turns, OTHER)

    async def go():
        await other.wait()
        other.release()

    others = asyncio.create_task(go())
    await asyncio.sleep(0)
    assert turns.has_waiting
    await asyncio.to_thread(comparison.list_runs)
    assert others.done()
    current().turn.release()


async def test_queue_serves_lines_of_callers_in_rotation():
    served = []

    async def work(queue, caller):
        async with queue.turn(caller):
            served.append(caller.key)

    queue = FairQueue("turns", 1, 1)
    crowd, reader = strangers_of("hot", 5), strangers_of("other", 1)[0]
    async with queue.turn(CALLER):
        tasks = []
        for caller in (*crowd, *crowd, reader, reader):
            tasks.append(asyncio.create_task(work(queue, caller)))
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert not queue._places.places
    assert [served.index("address other 0"), served.count("address other 0")] == [1, 2]
    assert served[3] == "address other 0"
    assert len(set(served[4:8])) == 4


async def test_queue_release_tries_few_of_many_lines(monkeypatch):
    tried = []

    queue = FairQueue("turns", 8, 2)
    crowd = [address_caller(f"192.0.2.{number}") for number in range(200)]
    for caller in crowd[:2]:  # as much as all addresses may have
        await queue.wait(caller)
    waiting = [asyncio.create_task(queue.wait(caller)) for caller in crowd]
    await asyncio.sleep(0)

    try_acquire = queue.try_acquire
    monkeypatch.setattr(queue, "try_acquire", lambda *a: tried.append(a) or try_acquire(*a))
    assert queue.try_acquire_now(CALLER)
    queue.release(CALLER)
    assert len(tried) < 20
    queue.release(crowd[0])
    await waiting[0]
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert not queue._places.waiting
    assert not queue._waiting_counts


async def test_queue_counts_waiting_of_address_in_all_lines():
    queue = FairQueue("turns", 1, 1, waiting_max=2)
    reader = replace(CALLER, is_reader=True, client="address", network="address")
    await queue.wait(OTHER)
    waiting = [
        asyncio.create_task(queue.wait(replace(reader, line=f"experiment {number}")))
        for number in range(2)
    ]
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests):
        queue.wait(replace(reader, line="experiment 2")).send(None)  # at once
    subnets = [address_caller(f"2001:db8:0:{number}::1") for number in range(5)]
    waiting += [asyncio.create_task(queue.wait(caller)) for caller in subnets[:4]]
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests):
        queue.wait(subnets[4]).send(None)  # at once
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert not queue._waiting_counts


async def test_queue_line_keeps_its_place_when_clients_leave():
    served = []

    async def work(queue, caller):
        async with queue.turn(caller):
            served.append(caller.client)

    queue = FairQueue("turns", 1, 1)
    leaving, staying, other = (
        replace(STRANGER, key=name, client=name, line=name.split()[0])
        for name in ("hot leaving", "hot staying", "other")
    )
    async with queue.turn(CALLER):
        left = asyncio.create_task(work(queue, leaving))
        await asyncio.sleep(0)
        tasks = []
        for caller in (staying, other):
            tasks.append(asyncio.create_task(work(queue, caller)))
            await asyncio.sleep(0)
        left.cancel()
        await asyncio.wait([left])
    await asyncio.gather(*tasks)
    assert served == ["hot staying", "other"]


def test_shares_bound_ipv6_site_beside_its_subnets():
    shares = Shares("things", 160, 100)
    subnets = [address_caller(f"2001:db8:0:{number}::1") for number in range(4)]
    for subnet in subnets:
        while shares.try_acquire(subnet):
            pass
    assert [shares._by_caller[subnet] for subnet in subnets] == [20, 10, 0, 0]
    assert shares.try_acquire(address_caller("2001:db8:1::1"), 10)


def test_shares_for_sign_in_are_apart():
    shares = Shares("things", 8, 4)
    strangers = strangers_of("experiment", 2)
    assert [shares.try_acquire(stranger) for stranger in strangers] == [True, True]
    assert not shares.try_acquire(STRANGER)
    assert shares.try_acquire(replace(STRANGER, is_signing_in=True))


async def test_queue_refuses_too_many_and_too_long_waits(monkeypatch):
    monkeypatch.setattr(limits, "QUEUE_WAIT_SECONDS_MAX", 0.01)

    queue = FairQueue("turns", 1, 1, waiting_max=1)
    async with queue.turn(CALLER):
        waiting = asyncio.create_task(queue.wait(CALLER))
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests):
            await queue.wait(CALLER)
        with pytest.raises(TooManyRequests):
            await waiting
        left = asyncio.create_task(queue.wait(CALLER))
        await asyncio.sleep(0)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
    assert not queue._places.places
    assert queue.try_acquire_now(CALLER)


async def test_queue_gives_back_turn_whose_waiter_left():
    queue = FairQueue("turns", 1, 1)
    await queue.wait(CALLER)
    waiting = asyncio.create_task(queue.wait(OTHER))
    await asyncio.sleep(0)
    queue.release(CALLER)  # the turn is the other's now, who leaves before it knows
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert queue.try_acquire_now(CALLER)


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("192.0.2.1", "address 192.0.2.1"),
        ("::ffff:192.0.2.1", "address 192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "address 2001:db8:1:2::/64"),
        ("testclient", "address testclient"),
    ],
)
def test_caller_address_is_one_per_customer(host, key):
    caller = address_caller(host)
    site = "address 2001:db8:1::/48" if caller.key.endswith("/64") else key
    assert (caller.key, caller.client, caller.line, caller.network) == (key, key, site, site)


@pytest.mark.parametrize(
    ("scope", "token"),
    [
        (scope_of(), None),
        (scope_of(authorization="Bearer abc"), "abc"),
        (scope_of(authorization="Basic abc", cookie="tbhub_read=x"), None),
        (scope_of(cookie="a=b; tbhub_read=.two.three"), "two"),
        (scope_of(cookie="tbhub_read=" + "\\1" * 30_000), None),
        (scope_of(query=b"a=b&token=abc&token=d"), "abc"),
        (scope_of(query=b"%ff=%ff&token="), None),
    ],
)
def test_caller_token_is_first_shown(scope, token):
    assert _token(scope, Headers(scope=scope)) == token


def body_of(*messages, path=JSON_PATH, check=None, caller=CALLER, shares=None, **headers):
    """Return the body of these messages, after which the client disconnects; and the admitted
    request.
    """
    waiting = list(messages)

    async def receive():
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def allow():
        return

    admitted = admit(caller, shares or WorkerShares(10))
    return (
        RequestBody(scope_of(path, **headers), receive, admitted, check or allow),
        admitted,
        admitted.turn,
    )


def part(content, *, more_body=True):
    return {"type": "http.request", "body": content, "more_body": more_body}


async def test_body_of_json_comes_whole_and_gives_its_bytes_back():
    size = SMALL_BODY_BYTES_MAX + 1
    messages = part(b"a" * (size - 1)), part(b"b", more_body=False)
    body, admitted, turn = body_of(*messages, content_length=str(size))
    await turn.wait()
    assert len((await body.receive())["body"]) == size
    assert (await body.receive())["type"] == "http.disconnect"
    assert turn._is_held
    assert admitted.shares.body_bytes._used == size
    body.close()
    assert not admitted.shares.body_bytes._used


async def test_body_that_breaks_off_or_grows_is_refused(monkeypatch):
    monkeypatch.setattr(limits, "JSON_BODY_BYTES_MAX", 4)

    with pytest.raises(RequestTimeout):
        await body_of(part(b"ab"), content_length="3")[0].receive()
    with pytest.raises(TooLarge):
        await body_of(part(b"abcde"), content_length="5")[0].receive()
    with pytest.raises(TooLarge):
        await body_of(part(b"abc"), part(b"de"), transfer_encoding="chunked")[0].receive()


async def test_body_that_is_large_is_read_after_check():
    async def refuse():
        raise TooManyRequests("checked")

    size = SMALL_BODY_BYTES_MAX
    for headers in ({"content_length": str(size + 1)}, {"transfer_encoding": "chunked"}):
        with pytest.raises(TooManyRequests, match="checked"):
            await body_of(part(b"ab", more_body=False), check=refuse, **headers)[0].receive()
    small = body_of(part(b"a" * size, more_body=False), check=refuse, content_length=str(size))[0]
    assert len((await small.receive())["body"]) == size


async def test_body_is_checked_during_turn():
    shares = WorkerShares(10)
    held = []

    async def check():
        held.append(shares.turns._used)

    size = SMALL_BODY_BYTES_MAX + 1
    part_of_it = part(b"a" * size, more_body=False)
    await body_of(part_of_it, check=check, shares=shares, content_length=str(size))[0].receive()
    assert held == [1]


async def test_body_under_way_holds_bytes_and_no_turn(monkeypatch):
    monkeypatch.setattr(limits, "QUEUE_WAIT_SECONDS_MAX", 0.01)

    shares = WorkerShares(10)
    bodies = []
    for _ in range(limits.CALLER_REQUEST_BODIES_BYTES_MAX // limits.BATCH_BYTES_MAX):
        body, _admitted, turn = body_of(
            part(b"x"),
            path=BATCH_PATH,
            shares=shares,
            content_length=str(limits.BATCH_BYTES_MAX),
        )
        await turn.wait()
        await body.receive()
        assert not turn._is_held
        bodies.append(body)
    assert await body_of(part(b"x"), path=BATCH_PATH, shares=shares, content_length="9")[
        0
    ].receive() == part(b"x")
    options = {
        "path": BATCH_PATH,
        "shares": shares,
        "content_length": str(limits.BATCH_BYTES_MAX),
    }
    with pytest.raises(TooManyRequests, match="bytes of request bodies"):
        await body_of(part(b"x"), **options)[0].receive()
    assert await body_of(part(b"x"), caller=OTHER, **options)[0].receive() == part(b"x")
    bodies[0].close()
    assert await body_of(part(b"x"), **options)[0].receive() == part(b"x")


def start_of(status=200):
    return {"type": "http.response.start", "status": status, "headers": []}


def answer_of(send, shares=None, **scope):
    admitted = admit(CALLER, shares or WorkerShares(10))
    return ResponseSender({**scope_of(), **scope}, send, admitted), admitted, admitted.turn


def whole(content, *, more_body=False):
    return {"type": "http.response.body", "body": content, "more_body": more_body}


async def test_answer_is_sent_in_pieces_and_ends_turn():
    sent = []

    async def send(message):
        sent.append(message)

    answer, admitted, turn = answer_of(send)
    await turn.wait()
    content = bytes(range(256)) * (RESPONSE_CHUNK_BYTES // 100)
    await answer.send(start_of())
    assert not turn._is_held
    assert not sent
    await answer.send(whole(content))
    assert b"".join(message.get("body", b"") for message in sent) == content
    assert [message.get("more_body") for message in sent] == [None, True, True, False]
    assert not admitted.shares.unread_bytes._used


async def test_answer_over_unread_share_is_429_instead():
    sent = []

    async def send(message):
        sent.append(message)

    shares = WorkerShares(10)
    shares.unread_bytes.acquire_unchecked(CALLER, limits.CALLER_UNSENT_RESPONSE_BYTES_MAX)
    answer, *_ = answer_of(send, shares)
    for message in (start_of(), whole(b"x" * 99, more_body=True), whole(b"y")):
        await answer.send(message)
    assert [message.get("status") for message in sent] == [429, None]
    assert (b"retry-after", b"2") in sent[0]["headers"]


async def test_response_that_cannot_be_sent_is_not_encoded():
    shares = WorkerShares(10)
    admit(CALLER, shares)
    refuse_unread(2 * limits.CALLER_UNSENT_RESPONSE_BYTES_MAX)  # nothing else is unread
    shares.unread_bytes.acquire_unchecked(CALLER, limits.CALLER_UNSENT_RESPONSE_BYTES_MAX - 9)
    refuse_unread(9)
    with pytest.raises(TooManyRequests, match="bytes of unread answers"):
        refuse_unread(10)


async def test_answer_that_nobody_takes_is_aborted(monkeypatch):
    monkeypatch.setattr(limits, "RESPONSE_STALL_SECONDS_MAX", 0.01)
    aborted = []

    async def send(message):
        if message["type"] == "http.response.body":
            await asyncio.sleep(60)

    answer, admitted, _turn = answer_of(send, **{ABORT_KEY: lambda: aborted.append(True)})
    await answer.send(start_of())
    await answer.send(whole(b"x", more_body=True))
    await answer.send(whole(b"y"))
    assert not admitted.shares.unread_bytes._used
    assert aborted == [True]


async def test_turn_of_work_beside_request_ends_its_own(monkeypatch):
    monkeypatch.setattr(limits, "QUEUE_WAIT_SECONDS_MAX", 0.01)

    async def look(shares):
        admitted = admit(STRANGER, shares)  # who has one turn at most
        await admitted.turn.wait()
        async with turn():
            await asyncio.sleep(0)
        assert not admitted.turn._is_held

    shares = WorkerShares(10)
    await asyncio.gather(*(look(shares) for _ in range(3)))
    assert not shares.turns._used


def test_error_that_is_its_own_cause_forgets_its_frames():
    error, context = ValueError("own cause"), KeyError("before")
    try:
        try:
            raise context
        except KeyError:
            raise error from error
    except ValueError:
        forget_frames(error)
    assert error.__traceback__ is None
