"""The demo's logdir: for each session a run with what describes it, and the runs of its training and validation."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from tbservice.local.demo import graphs, hyperparameters, values
from tbservice.local.demo.event_file import STEP_SECONDS, EventFileWriter
from tbservice.local.demo.hyperparameters import SESSIONS, SessionHparams
from tbservice.local.demo.training import STEPS, Training
from tbservice.local.demo.validation import layout

SESSION_SECONDS: Final = STEPS * STEP_SECONDS
"""How long a session pretends to have taken; they follow one another, and the last ends now."""


def write_demo_logdir(logdir: Path) -> None:
    """Trains the demo's networks and writes their event files under `logdir`, in about two seconds.

    The values are the same each time; only wall times, and the timings of a graph's nodes, are not.
    """
    first = time.time() - len(SESSIONS) * SESSION_SECONDS
    for index, choice in enumerate(SESSIONS):
        _write_session(logdir / choice.run, choice, first + index * SESSION_SECONDS)


def _write_session(directory: Path, choice: SessionHparams, started: float) -> None:
    training = Training(choice)
    with EventFileWriter(directory, started) as file:
        file.add(0, *hyperparameters.session_start(choice, started))
        file.add(
            0,
            values.text("about", _describe_session(choice)),
            values.keras_model("keras", graphs.keras_json(training.network)),
        )
        file.add(0, layout())
        file.add_graph(graphs.graph_def(training.network, choice.optimizer))
        file.add_run_metadata(
            "forward pass", 0, graphs.run_metadata(training.network, training.points)
        )
        with (
            EventFileWriter(directory / "train", started) as train,
            EventFileWriter(directory / "validation", started) as validation,
        ):
            training.run(train, validation)
        file.add(STEPS, hyperparameters.session_end(started + SESSION_SECONDS))


def _describe_session(choice: SessionHparams) -> str:
    return f"""
### Two spirals

A small network learns to tell **two spirals** apart, in a second, while the demo is made. Its points are in the
*Mesh* and *Images* tabs; this session is one of {len(SESSIONS)} in the *HParams* tab.

| hyperparameter | value |
|---|---|
| optimizer | `{choice.optimizer}` |
| learning rate | {choice.rate:g}{", falling to 0 along a cosine" if choice.is_annealed else ""} |
| width of the hidden layers | {choice.width} |
| steps | {STEPS} |
"""
