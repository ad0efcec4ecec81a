"""A small log directory with everything an upload can meet: both formats, restarts, every kind of
data, small and large blobs.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from support import event_files

REAL_FILES = Path(__file__).parent.parent / "data"
RESTARTED = "restarted"
"""The run whose second and third file overlap the steps of the one before."""
REAL_RUNS = (
    "pytorch/hparams",
    "tensorflow2/train",
    "tensorflow2/graph",
    "tensorboard_plugins/pr_curves",
)


def write_complete_logdir(
    logdir: Path, seed: int = 0, host: str = "host", seconds_later: float = 0.0
) -> Path:
    """Fill the directory; other seeds give other values and blobs, other hosts other files of the
    same runs.
    """
    rng = np.random.default_rng(seed)
    for name in REAL_RUNS:
        shutil.copytree(REAL_FILES / name, logdir / name)
    for number, steps in enumerate((range(60), range(40, 90), range(85, 120))):
        start = event_files.WALL_TIME + 10_000 * number + seconds_later
        name = f"events.out.tfevents.{1_700_000_000 + number}.{host}"
        write_scalars(logdir / RESTARTED / name, steps, start, rng)
    name = f"events.out.tfevents.1700000000.{host}"
    for run in ("a", "a/b", "c"):
        write_scalars(
            logdir / run / name,
            range(90),
            event_files.WALL_TIME + seconds_later,
            rng,
            style="tensor",
        )
    write_media(logdir / "media" / name, event_files.WALL_TIME + seconds_later, rng)
    return logdir


def write_scalars(path: Path, steps: range, start: float, rng, style="simple") -> None:
    """Write an event file with two tags of scalars, from the wall time `start` on."""
    events = [event_files.version_event(start)]
    events += [
        event_files.scalar_event(tag, step, float(rng.random()), start + step, style)
        for step in steps
        for tag in ("loss", "accuracy")
    ]
    event_files.write_records(path, events)


def write_media(path: Path, start: float, rng) -> None:
    """Histograms of both styles, text, images small and large, and a graph."""
    events = [event_files.version_event(start), event_files.graph_event(b"\x22\x02\x08\x1a", start)]
    for step in range(4):
        at = start + step
        rows = np.column_stack([np.arange(5), np.arange(1, 6), rng.integers(1, 9, 5)])
        image = event_files.PNG + rng.bytes(3000 if step == 2 else 100)
        events += [
            event_files.histogram_event("weights", step, rows, at),
            event_files.histogram_event("legacy", step, rows, at, "legacy"),
            event_files.text_event("notes", step, [f"step {step}", str(rng.integers(1000))], at),
        ]
        if step in {1, 2}:
            events.append(event_files.image_event("image", step, [image, event_files.PNG], at))
    event_files.write_records(path, events)
