"""Writes tests/data/guild: what `guild tensorboard` makes of Guild's runs, one for each status."""
# /// script
# requires-python = ">=3.11"
# dependencies = ["guildai==0.9.0"]
# ///

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from event_directories import make_empty, settle

SCRIPT = """
import sys, time
rate = 0.1
optimizer = "adam"
layers = 2
bias = True
after = "end"
for step in range(1, 4):
    print(f"step: {step}")
    print(f"loss: {rate / step}", flush=True)
if after == "wait":
    time.sleep(600)
sys.exit(after == "fail")
"""
RUNS = {
    "completed": ["rate=0.5", "layers=3"],
    "error": ["optimizer=sgd", "bias=no", "after=fail"],
    "running": ["optimizer=rmsprop", "after=wait"],
}


def run_all(work: Path) -> None:
    """Runs the script once per status, and copies the log directory that Guild makes of the runs."""
    (work / "train.py").write_text(SCRIPT.lstrip())
    (work / "home").mkdir()
    (work / "tmp").mkdir()
    environment = os.environ | {"GUILD_HOME": str(work / "home"), "TMPDIR": str(work / "tmp")}
    common = {"cwd": work, "env": environment}

    for status, flags in RUNS.items():
        command = ["guild", "run", "train.py", *flags, "--label", status, "--yes"]
        running = subprocess.Popen(command, **common)
        if status == "running":
            time.sleep(10)
        else:
            running.wait()
    for more in (["tensorboard", "--test-logdir"], ["stop", "--yes"]):
        subprocess.run(["guild", *more], check=True, **common)  # noqa: S607 - of this environment
    running.wait()


def copy_runs(work: Path, directory: Path) -> None:
    """Copies the files behind Guild's links; of a run's name, only its label."""
    (logdir,) = (work / "tmp").glob("guild-tensorboard-*")
    for run in logdir.iterdir():
        shutil.copytree(run, directory / run.name.rsplit(maxsplit=1)[1])


if __name__ == "__main__":
    directory = make_empty("guild")
    with tempfile.TemporaryDirectory() as work:
        run_all(Path(work))
        copy_runs(Path(work), directory)
    settle(directory)
