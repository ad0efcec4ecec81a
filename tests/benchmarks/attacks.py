"""What each attack of the security findings does to the worker and to another workspace, before and
after a fix.
"""

from __future__ import annotations

import json
import time

from attacking.catalog import ATTACKS, Attack
from attacking.victim import Latencies
from attacking.world import MIB, Attacker, Serving, World, new_world
from bench import Bench, say

ATTACK_SECONDS_MAX = 240
QUIET_SECONDS = 10
"""From the attacker's end to the second look at the worker's memory."""

LOOK_SECONDS = 0.2
MEMORY_BYTES_MAX = 4 * 2**30
"""Resident bytes of the worker at which an attack is ended: it has shown what it does."""

KINDS = ("page", "read", "write", "tail", "stream")
HEAD = (
    "finding",
    "attack",
    "s",
    "answers to the attacker",
    "worker MiB before, peak, 10 s after",
    "its children",
    "held",
    "log kB",
    "victim, worst s",
    "stop s",
)


def measure(bench: Bench) -> None:
    """Run each attack against a worker of its own; print rows of a Markdown table."""
    selected = {name: attack for name, attack in ATTACKS.items() if bench.is_chosen(name)}
    with new_world(bench, bench.scale) as world:
        print(_row(HEAD), _row(["---"] * len(HEAD)), sep="\n", flush=True)
        for name, attack in selected.items():
            try:
                world.prepare(*attack.experiments)
                print(_row(_measure(world, name, attack)), flush=True)
            except Exception as error:  # noqa: BLE001 - an attack may break anything; the other rows are wanted
                print(
                    _row([attack.finding, attack.what, f"{type(error).__name__}: {error}"[:300]]),
                    flush=True,
                )


def _measure(world: World, name: str, attack: Attack) -> list[str]:
    """Attack, and return the row's cells."""
    with world.serving(attack.open_files_max) as serving:
        victim = world.victim_of(serving)
        with victim.at_work(KINDS):
            time.sleep(2)  # what only the first requests do
        before, log_before = serving.memory()[0], serving.log_bytes()
        began = time.monotonic()
        attacker = Attacker(name, world.target(serving, world.scale), ATTACK_SECONDS_MAX)
        try:
            with victim.at_work(KINDS) as latencies:
                children, held, is_over = _watch(serving, attacker)
                seconds = time.monotonic() - began
                said = attacker.stop()
        finally:
            attacker.stop()
        say(f"{name}: over; looking again after {QUIET_SECONDS} s")
        time.sleep(QUIET_SECONDS)
        after = serving.memory()[0]
        logged, forged = serving.log_bytes() - log_before, serving.forged_lines()
        peak = serving.peak_memory()
        stopped = serving.stop()
    return [
        *(
            attack.finding,
            attack.what,
            f"{seconds:.0f}",
            _answers(said) + (", then ended" if is_over else ""),
        ),
        f"{before / MIB:.0f}, {peak / MIB:.0f}, {after / MIB:.0f}",
        f"{children / MIB:.0f}",
        f"{held}",
        f"{logged / 1000:,.1f}" + (f", {forged} forged lines" if forged else ""),
        _worst(latencies),
        f"{stopped:.1f}",
    ]


def _watch(serving: Serving, attacker: Attacker) -> tuple[int, int, bool]:
    """Wait for the attacker's end.

    Returns the most bytes of the worker's children, the last count of its connections, and whether
    the attack is to be ended because the worker has MEMORY_BYTES_MAX.
    """
    children = held = 0
    while attacker.is_running():
        worker, of_children = serving.memory()
        children, held = max(children, of_children), serving.connections()
        if worker > MEMORY_BYTES_MAX:
            return children, held, True
        time.sleep(LOOK_SECONDS)
    return children, held, False


def _answers(said: str) -> str:
    if not said:
        return "the attacker was killed"
    tally = json.loads(said)
    counts = [f"{count:,} x {outcome}" for outcome, count in sorted(tally["outcomes"].items())]
    slowest = [f"slowest {tally['slowest_seconds']:.1f} s"] if tally["slowest_seconds"] else []
    return ", ".join(counts + slowest)


def _worst(latencies_by_kind: dict[str, Latencies]) -> str:
    """The slowest of each kind, and what failed."""
    cells = []
    for kind, latencies in latencies_by_kind.items():
        failures = "".join(
            f" + {count} x {reason}" for reason, count in sorted(latencies.failures.items())
        )
        slowest = f"{max(latencies.seconds):.2f}" if latencies.seconds else "none"
        cells.append(f"{kind} {slowest}{failures}")
    return ", ".join(cells)


def _row(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
