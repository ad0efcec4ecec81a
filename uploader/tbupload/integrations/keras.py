"""Upload of trainings with Keras 3, on any of its backends, or with `tf.keras` of Keras 2."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from tbupload.background_upload.following import WAIT_SECONDS, Following
from tbupload.integrations.training_upload import TrainingUpload

# As TensorFlow reads it, to choose what `tf.keras` is.
_IS_LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") in {"1", "true", "True"}
_keras: Any = importlib.import_module("tf_keras" if _IS_LEGACY else "keras")


class TbhubCallback(_keras.callbacks.Callback):  # type: ignore[misc]  # Any
    """Upload a log directory during `fit`, with what Keras knows of the hyperparameters.

    Args:
        log_dir: the log directory, or the callback `keras.callbacks.TensorBoard` that writes it.
        hparams: further hyperparameters, or other values for those that Keras knows.
        wait_seconds: longest time that `fit` waits at its end until everything is stored.
        options: arguments of `tbupload.follow`: name, description, experiment, …
    """

    def __init__(
        self,
        log_dir: Any,
        *,
        hparams: Mapping[str, Any] | None = None,
        wait_seconds: float = WAIT_SECONDS,
        **options: Any,
    ) -> None:
        super().__init__()
        self.log_dir = os.fsdecode(getattr(log_dir, "log_dir", log_dir))
        self._hparams = dict(hparams or {})
        self._training = TrainingUpload(wait_seconds, **options)

    @property
    def upload(self) -> Following | None:
        """Return the upload of the latest training in this process, with its `url`."""
        return self._training.upload

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002  # the interface of Keras
        """Start the upload, in the first process of those that train together."""
        if _is_first_process():
            known = _hparams(self.model, self.params)
            self._training.begin(self.log_dir, {**known, **self._hparams})

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002  # the interface of Keras
        """Wait until everything is stored."""
        self._training.end()


def _hparams(model: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Keras knows; values that are no numbers, texts or truth values are left out."""
    optimizer, loss = getattr(model, "optimizer", None), getattr(model, "loss", None)
    config = {} if optimizer is None else optimizer.get_config()
    named = {"optimizer": type(optimizer).__name__, "loss": getattr(loss, "name", loss)}
    return {**config, **params, **named, "name": None, "verbose": None}


def _is_first_process() -> bool:
    """Return whether this is the process that writes the files, as the backend knows it."""
    torch, jax = sys.modules.get("torch.distributed"), sys.modules.get("jax")
    if torch is not None and torch.is_available() and torch.is_initialized():
        return bool(torch.get_rank() == 0)
    if jax is not None and not _IS_LEGACY and _keras.backend.backend() == "jax":
        return bool(jax.process_index() == 0)
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")  # of TensorFlow's strategies
    task, has_chief = config.get("task", {}), "chief" in config.get("cluster", {})
    kind, index = task.get("type", "chief"), task.get("index", 0)
    return kind in {"chief", "master"} or (kind == "worker" and index == 0 and not has_chief)
