"""What `tbupload.follow()` costs a training script: start, training loop, end of the block, no server."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench import Bench, say
from machine import report
from upload import environment

TRAINING = Path(__file__).with_name("follow_training.py")
STEPS = 500
NO_SERVER = "http://127.0.0.1:9"
SHARE_MAX, SECONDS_MAX = 0.01, 0.3


def measure(bench: Bench) -> None:
    """Trains with and without an upload in turns, and then without a server."""
    steps = max(50, round(STEPS * bench.scale))
    with bench.new_service() as service:
        variables = environment(service) | {"OPENBLAS_NUM_THREADS": "1"}
        rounds: list[tuple[dict[str, float], dict[str, float]]] = []
        for number in range(bench.rounds):
            say(f"round {number + 1} of {bench.rounds}")
            alone = _train(bench.directory / f"alone_{number}", steps, variables)
            rounds.append(
                (alone, _train(bench.directory / f"follow_{number}", steps, variables, "follow"))
            )
        _report(rounds)
        assert all(followed["is_complete"] for _, followed in rounds)
        gone = _train(
            bench.directory / "gone", 50, variables | {"TBHUB_SERVER": NO_SERVER}, "follow"
        )
    report("without a server: start", f"{gone['start']:.3f} s", f"wanted: {SECONDS_MAX} s")
    report("without a server: end of the block", f"{gone['leave']:.3f} s")
    report("without a server: exit of the script", f"{gone['exit']:.3f} s", "the interpreter's too")


def _report(rounds: list[tuple[dict[str, float], dict[str, float]]]) -> None:
    def median(name: str) -> float:
        return statistics.median(followed[name] for _, followed in rounds)

    def more(name: str) -> float:
        return statistics.median(followed[name] / alone[name] - 1 for alone, followed in rounds)

    report("import", f"{median('import'):.3f} s")
    report("start", f"{median('start'):.3f} s", f"wanted: {SECONDS_MAX} s")
    loop = statistics.median(alone["loop"] for alone, _ in rounds)
    report(f"training loop of {loop:.1f} s", f"{more('loop'):+.1%}", f"wanted: {SHARE_MAX:.0%}")
    report("the same, CPU of the script", f"{more('cpu'):+.1%}")
    report("end of the block", f"{median('leave'):.3f} s")
    report("until all is proved", f"{median('wait'):.3f} s")


def _train(logdir: Path, steps: int, variables: dict[str, str], *more: str) -> dict[str, float]:
    """Run a training to its end; return its times, and `exit`: from its last line to its end."""
    command = [sys.executable, TRAINING, str(steps), str(logdir), *more]
    with subprocess.Popen(command, env=os.environ | variables, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        began = time.perf_counter()
    assert process.returncode == 0
    return json.loads(line) | {"exit": time.perf_counter() - began}
