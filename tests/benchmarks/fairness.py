"""Another workspace's page, reads and writes while one does its worst: p95 against the same without
an attacker.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from attacking.catalog import CONTROLS, FLOODS, KNOWN, SIBLINGS
from attacking.victim import Latencies
from attacking.world import MIB, Attacker, Serving, World, new_world
from bench import Bench, say
from machine import cpu_seconds

WARM_SECONDS = 3
IDLE_SECONDS = 15
ATTACK_SECONDS = 30
LEAD_SECONDS = 3
"""From the attackers' start to the first request that counts."""

KINDS = ("page", "link page", "sign-in", "read", "write", "tail", "stream")
TARGET, TARGET_TOGETHER = 3.0, 10.0
DATA_SCALE = 0.25
"""Share of the sizes in `attacking/experiments.py`: 5 million points, 25,000 tags, a graph of 14 MiB."""

CALLERS = (False, True)
"""Attackers come without a token, and with the owner's."""

MEMORY_BYTES_MAX = 4 * 2**30
"""Resident bytes of the worker at which attackers are ended: it has shown what they do."""

TOGETHER, FLOODS_TOGETHER = "all together", "floods together"


@dataclass(frozen=True)
class Phase:
    """Latencies of the victim while a set of attackers was at work, and what these used."""

    latencies: dict[str, Latencies]
    attacker_cores: float = 0.0
    worker_cores: float = 0.0
    peak_bytes: int = 0


def measure(bench: Bench) -> None:
    """Measure idle, attack, idle for each attack, on a worker of its own; print a Markdown table."""
    names = [name for name in KNOWN if bench.is_chosen(name)]
    cases = {name: [name] for name in names}
    if bench.is_chosen(TOGETHER):
        cases[TOGETHER] = [name for name in KNOWN if name not in {*CONTROLS, *SIBLINGS}]
    if bench.is_chosen(FLOODS_TOGETHER):
        cases[FLOODS_TOGETHER] = [name for name in FLOODS if name not in SIBLINGS]
    worst = {TARGET: dict.fromkeys(KINDS, 0.0), TARGET_TOGETHER: dict.fromkeys(KINDS, 0.0)}
    with new_world(bench, bench.scale * DATA_SCALE) as world:
        _print_head()
        for case, attacks in cases.items():
            try:
                ratios = _measure(world, case, attacks, bench.scale)
            except Exception as error:  # noqa: BLE001 - an attack may break anything; the other rows are wanted
                print(f"| {case} | {type(error).__name__}: {str(error)[:300]} |", flush=True)
                continue
            if case not in CONTROLS:
                of_all = worst[TARGET if len(attacks) == 1 else TARGET_TOGETHER]
                of_all.update({kind: max(of_all[kind], ratios[kind]) for kind in KINDS})
    for target, ratios in worst.items():
        told = ", ".join(f"{kind} {ratio:.1f} x" for kind, ratio in ratios.items())
        count = "one attack" if target == TARGET else "all at once"
        print(f"  the greatest p95 under {count} : idle: {told}   at most {target:g} x")


def _measure(world: World, case: str, attacks: Sequence[str], scale: float) -> dict[str, float]:
    """Run the three phases of a case and print their rows; the ratios of p95 to idle by kind."""
    world.prepare(*(name for attack in attacks for name in KNOWN[attack].experiments))
    with world.serving() as serving:
        with world.victim_of(serving).at_work(KINDS):
            time.sleep(WARM_SECONDS)
        before = _phase(world, serving, IDLE_SECONDS)
        _print_row(f"idle before {case}", before, before)
        attackers = _start(world, serving, attacks, scale)
        try:
            time.sleep(LEAD_SECONDS)
            during = _phase(world, serving, ATTACK_SECONDS, attackers)
        finally:
            outcomes = _stop(attackers)
        _print_row(case, during, before)
        say(f"{case}: answers to the attackers: {_told(outcomes)}")
        time.sleep(LEAD_SECONDS)
        _print_row(f"idle after {case}", _phase(world, serving, IDLE_SECONDS), before)
    return {kind: _ratio(during, before, kind) for kind in KINDS}


def _start(world: World, serving: Serving, attacks: Sequence[str], scale: float) -> list[Attacker]:
    """Start each attack by a caller of each sort, which share its connections; a flood only once."""
    seconds = 2 * (LEAD_SECONDS + ATTACK_SECONDS) + 120
    started = []
    for name in attacks:
        callers = CALLERS[:1] if KNOWN[name].is_flood else CALLERS
        for is_owner in callers:
            target = world.target(serving, scale / len(callers), is_owner=is_owner)
            started.append(Attacker(name, target, seconds))
    return started


def _stop(attackers: Sequence[Attacker]) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for attacker in attackers:
        attacker.begin_stop()
    for attacker in attackers:
        said = attacker.stop()
        outcomes.update(json.loads(said) if said else {"killed": 1})
    return outcomes


def _phase(
    world: World, serving: Serving, seconds: float, attackers: Sequence[Attacker] = ()
) -> Phase:
    """Let the victim work for so long."""
    pids = [attacker.pid for attacker in attackers]
    peak, began = 0, time.monotonic()
    attacker_before, worker_before = cpu_seconds(*pids), cpu_seconds(serving.pid)
    with world.victim_of(serving).at_work(KINDS) as latencies:
        while (passed := time.monotonic() - began) < seconds:
            time.sleep(0.5)
            peak = max(peak, sum(serving.memory()))
            if peak > MEMORY_BYTES_MAX:
                say(f"the worker has {peak / MIB:.0f} MiB: the attackers are ended")
                _stop(attackers)
                break
        attacker_used, worker_used = (
            cpu_seconds(*pids) - attacker_before,
            cpu_seconds(serving.pid) - worker_before,
        )
    return Phase(latencies, attacker_used / passed, worker_used / passed, peak)


def _ratio(phase: Phase, idle: Phase, kind: str) -> float:
    return phase.latencies[kind].quantile(0.95) / idle.latencies[kind].quantile(0.95)


def _print_head() -> None:
    cells = ["phase", *(f"{kind}: p50, p95 ms (p95 : idle)" for kind in KINDS)]
    cells += ["failed", "worker MiB", "CPU of worker, attackers (cores)"]
    print(f"| {' | '.join(cells)} |\n|{' --- |' * len(cells)}", flush=True)


def _print_row(name: str, phase: Phase, idle: Phase) -> None:
    cells = [name]
    for kind in KINDS:
        half, most = (phase.latencies[kind].quantile(share) * 1000 for share in (0.5, 0.95))
        cells.append(f"{half:.0f}, {most:.0f} ({_ratio(phase, idle, kind):.1f} x)")
    failures = Counter(
        {
            f"{kind} {reason}": count
            for kind in KINDS
            for reason, count in phase.latencies[kind].failures.items()
        }
    )
    requests = sum(len(phase.latencies[kind].seconds) for kind in KINDS) + failures.total()
    cells += [f"{failures.total()} of {requests}" + (f": {_told(failures)}" if failures else "")]
    cells += [
        f"{phase.peak_bytes / MIB:.0f}",
        f"{phase.worker_cores:.2f}, {phase.attacker_cores:.2f}",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} x {name}" for name, count in sorted(counts.items()))
