"""Writes tests/data/hparams_again: hyperparameters that one run logs more than once, in the calls
of Lightning's `TensorBoardLogger.log_hyperparams` (`lightning/fabric/loggers/tensorboard.py`).
"""
# /// script
# requires-python = ">=3.11"
# dependencies = ["tensorboardX==2.6.5", "numpy"]
# ///

from __future__ import annotations

from pathlib import Path

from event_directories import make_empty, settle
from tensorboardX import SummaryWriter
from tensorboardX.summary import hparams

WALL_TIME = 1_700_000_000.25


def log_hyperparams(writer: SummaryWriter, values: dict, wall_time: float) -> None:
    """The experiment, the session's start and its end, with the values of one call only."""
    for summary in hparams(values, {}):
        writer._get_file_writer().add_summary(summary, None, wall_time)


def write_run(directory: Path) -> None:
    """Two files, as of a job that was restarted; each logs twice."""
    for restart in range(2):
        with SummaryWriter(str(directory), filename_suffix=f".{restart}") as writer:
            time = WALL_TIME + 100 * restart
            log_hyperparams(writer, {"rate": 0.1 + restart, "optimizer": "adam"}, time)
            writer.add_scalar("loss", 1.0, restart, time)
            log_hyperparams(writer, {"extra": 1 + restart, f"only_{restart}": True}, time + 10)


if __name__ == "__main__":
    directory = make_empty("hparams_again")
    write_run(directory / "lightning")
    settle(directory)
