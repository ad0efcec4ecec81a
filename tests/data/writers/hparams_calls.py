"""Writes tests/data/hparams_calls: `add_hparams` of PyTorch and of tensorboardX as most call it,
without a name for the session, whose run is then named by the time.
"""
# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "tensorboard==2.21.0", "tensorboardX==2.6.5", "numpy"]
# ///

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorboardX
import torch
from event_directories import make_empty, settle
from torch.utils import tensorboard as pytorch

VALUES = {
    "rate": 1e-3,
    "epochs": 3,
    "large": 2**53,
    "optimizer": "adam",
    "empty": "",
    "amp": True,
    "ratio": float("nan"),
    "ü/%s": "\N{SNOWMAN}",
}
METRICS = {"hparam/accuracy": 0.5, "hparam/loss": 0.25}


def write(directory: Path, writer: object, more: dict) -> None:
    """A run with scalars of its own, and the session below it, which is renamed."""
    with writer:
        writer.add_scalar("loss", 0.75, 1, 1_700_000_000.25)
        writer.add_hparams({**VALUES, **more}, METRICS)
    (session,) = (path for path in directory.iterdir() if path.is_dir())
    session.rename(directory / "1700000000.25")


if __name__ == "__main__":
    directory = make_empty("hparams_calls")
    tensors = {"tensor": torch.tensor([0.5])}
    write(directory / "pytorch", pytorch.SummaryWriter(directory / "pytorch"), tensors)
    numbers = {"none": None, "number": np.float32(0.5), "whole": np.int64(7)}
    path = directory / "tensorboardx"
    write(path, tensorboardX.SummaryWriter(str(path)), numbers)
    settle(directory)
