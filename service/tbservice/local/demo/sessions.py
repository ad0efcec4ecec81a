"""The demo's sessions: their hyperparameters, and their summaries for the HParams dashboard.

The summaries are those of `tensorboard/plugins/hparams/summary_v2.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import metadata, plugin_data_pb2
from tensorboard.plugins.hparams.api_pb2 import STATUS_SUCCESS
from tensorboard.plugins.hparams.summary_v2 import (
    Discrete,
    HParam,
    IntInterval,
    Metric,
    RealInterval,
    hparams_config_pb,
    hparams_pb,
)

STEPS: Final = 600


@dataclass(frozen=True, slots=True)
class Session:
    """The hyperparameters of one session; `rate` is the learning rate at step 0.

    `quality` and `tau_steps` shape the curves: progress = quality · (1 - exp(-step / tau_steps)).
    """

    optimizer: str
    rate: float
    width: int
    is_annealed: bool
    quality: float
    tau_steps: int

    @property
    def run(self) -> str:
        """Return the name of the session's run."""
        return f"{self.optimizer}-{self.rate:g}-width-{self.width}"

    def progress(self, step: int) -> float:
        """Return how far the classifier has learned at a step, from 0 to 1."""
        return self.quality * (1 - math.exp(-step / self.tau_steps))

    def learning_rate(self, step: int) -> float:
        """Return the learning rate at a step: constant, or falling to 0 along a cosine."""
        return self.rate * ((1 + math.cos(math.pi * step / STEPS)) / 2 if self.is_annealed else 1)


SESSIONS: Final = (
    Session("adam", 0.01, 32, is_annealed=True, quality=0.95, tau_steps=60),
    Session("adam", 0.01, 8, is_annealed=False, quality=0.7, tau_steps=90),
    Session("sgd", 0.2, 32, is_annealed=True, quality=0.85, tau_steps=120),
    Session("sgd", 0.02, 32, is_annealed=False, quality=0.8, tau_steps=240),
)

_HPARAMS: Final = [
    HParam("optimizer", Discrete(["adam", "sgd"]), "Optimizer"),
    HParam("rate", RealInterval(0.01, 0.2), "Learning rate", "At step 0."),
    HParam("width", IntInterval(8, 32), "Width", "Neurons of a hidden layer."),
    HParam("is_annealed", Discrete([False, True]), "Annealed", "The rate falls along a cosine."),
]

_METRICS: Final = [
    Metric("accuracy", "validation", "Accuracy", "Of the validation set.", Metric.VALIDATION),
    Metric("loss", "validation", "Validation loss", "Cross entropy, in nats.", Metric.VALIDATION),
    Metric("loss", "train", "Training loss", "Cross entropy, in nats.", Metric.TRAINING),
]


def session_start(session: Session, started: float) -> list[Summary.Value]:
    """Return the experiment's schema and the start of a session at `started`, in epoch seconds."""
    values = {
        "optimizer": session.optimizer,
        "rate": session.rate,
        "width": session.width,
        "is_annealed": session.is_annealed,
    }
    schema = hparams_config_pb(_HPARAMS, _METRICS, started)
    start = hparams_pb(values, session.run, started)
    return [schema.value[0], start.value[0]]


def session_end(ended: float) -> Summary.Value:
    """Return the successful end of a session, at `ended`, in epoch seconds."""
    info = plugin_data_pb2.SessionEndInfo(status=STATUS_SUCCESS, end_time_secs=ended)
    data = plugin_data_pb2.HParamsPluginData(session_end_info=info)
    return Summary.Value(
        tag=metadata.SESSION_END_INFO_TAG,
        metadata=metadata.create_summary_metadata(data),
        tensor=metadata.NULL_TENSOR,
    )
