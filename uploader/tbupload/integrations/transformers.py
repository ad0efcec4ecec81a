"""Upload of trainings with the `Trainer` of Hugging Face Transformers."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from tbupload.background_upload.following import WAIT_SECONDS, Following
from tbupload.integrations.training_upload import TrainingUpload

_integrations: Any = importlib.import_module("transformers.integrations")


class TbhubCallback(_integrations.TensorBoardCallback):  # type: ignore[misc]  # Any
    """Write TensorBoard's files as `report_to="tensorboard"` does, and upload them.

    It takes the place of that: with both, everything is written twice. The log directory is chosen
    by Transformers (`logging_dir`, TENSORBOARD_LOGGING_DIR, or a new one below `output_dir`).

    Args:
        tb_writer: the writer to use; by default a new `SummaryWriter`.
        hparams: further hyperparameters, or other values for those of `TrainingArguments`.
        wait_seconds: longest time that `train` waits at its end until everything is stored.
        options: arguments of `tbupload.follow`: name, description, experiment, …
    """

    def __init__(
        self,
        tb_writer: Any = None,
        *,
        hparams: Mapping[str, Any] | None = None,
        wait_seconds: float = WAIT_SECONDS,
        **options: Any,
    ) -> None:
        super().__init__(tb_writer)
        self._hparams = dict(hparams or {})
        self._training = TrainingUpload(wait_seconds, **options)

    @property
    def upload(self) -> Following | None:
        """Return the upload of the latest training in this process, with its `url`."""
        return self._training.upload

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the writer and start the upload, in the first process of those that train."""
        super().on_train_begin(args, state, control, **kwargs)
        if state.is_world_process_zero and self.tb_writer is not None:
            known = {**args.to_sanitized_dict(), **(state.trial_params or {})}
            writer = self.tb_writer
            log_dir = getattr(writer, "log_dir", None) or writer.logdir  # tensorboardX
            self._training.begin(os.fsdecode(log_dir), {**known, **self._hparams})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the writer, and wait until everything is stored."""
        super().on_train_end(args, state, control, **kwargs)
        self._training.end()
