"""What the demo's sessions differ in, and how the HParams page is told."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class SessionHparams:
    """The hyperparameters of one session; `rate` is the learning rate at step 0."""

    optimizer: str
    rate: float
    width: int
    is_annealed: bool

    @property
    def run(self) -> str:
        """The name of the session's run."""
        return f"{self.optimizer}-{self.rate:g}-width-{self.width}"


SESSIONS: Final = (
    SessionHparams("adam", 0.01, 32, is_annealed=True),
    SessionHparams("adam", 0.01, 8, is_annealed=False),
    SessionHparams("sgd", 0.2, 32, is_annealed=True),
    SessionHparams("sgd", 0.02, 32, is_annealed=False),
)

_HPARAMS: Final = [
    HParam("optimizer", Discrete(["adam", "sgd"]), "Optimizer"),
    HParam("rate", RealInterval(0.01, 0.2), "Learning rate", "At step 0."),
    HParam("width", IntInterval(8, 32), "Width", "Neurons of a hidden layer."),
    HParam(
        "is_annealed",
        Discrete([False, True]),
        "Annealed",
        "Whether the learning rate falls to 0 along a cosine.",
    ),
]

_METRICS: Final = [
    Metric("accuracy", "validation", "Accuracy", "Of the validation set.", Metric.VALIDATION),
    Metric("loss", "validation", "Validation loss", "Cross entropy, in nats.", Metric.VALIDATION),
    Metric("loss", "train", "Training loss", "Cross entropy, in nats.", Metric.TRAINING),
]


def session_start(choice: SessionHparams, started: float) -> list[Summary.Value]:
    """The experiment's domains and metrics, and the values of a session that starts at `started`, epoch seconds."""
    values = {
        "optimizer": choice.optimizer,
        "rate": choice.rate,
        "width": choice.width,
        "is_annealed": choice.is_annealed,
    }
    experiment = hparams_config_pb(_HPARAMS, _METRICS, started)
    session = hparams_pb(values, choice.run, started)
    return [experiment.value[0], session.value[0]]


def session_end(ended: float) -> Summary.Value:
    """That the session succeeded, at `ended`, seconds since the epoch."""
    info = plugin_data_pb2.SessionEndInfo(status=STATUS_SUCCESS, end_time_secs=ended)
    data = plugin_data_pb2.HParamsPluginData(session_end_info=info)
    return Summary.Value(
        tag=metadata.SESSION_END_INFO_TAG,
        metadata=metadata.create_summary_metadata(data),
        tensor=metadata.NULL_TENSOR,
    )
