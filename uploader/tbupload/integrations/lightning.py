"""Upload of trainings with Lightning, as `lightning` or as `pytorch_lightning`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import Any

from tbupload.background_upload.following import WAIT_SECONDS, Following
from tbupload.background_upload.process import logger
from tbupload.integrations.training_upload import TrainingUpload


def _lightning() -> Any:
    """Return the package that the script imported already, or else the one that is installed."""
    names = ("lightning.pytorch", "pytorch_lightning")
    imported = [name for name in names if name in sys.modules]
    is_installed = importlib.util.find_spec("lightning") is not None
    return importlib.import_module(imported[0] if imported else names[not is_installed])


class TbhubCallback(_lightning().Callback):  # type: ignore[misc]  # Any
    """Upload what the trainer's `TensorBoardLogger` writes.

    That logger also writes the hyperparameters of `save_hyperparameters()`.

    Args:
        log_dir: the log directory; by default that of the trainer's first `TensorBoardLogger`.
        wait_seconds: longest time that the trainer waits at its end until everything is stored.
        options: arguments of `tbupload.follow`: name, description, experiment, …
    """

    def __init__(
        self, log_dir: Any = None, *, wait_seconds: float = WAIT_SECONDS, **options: Any
    ) -> None:
        super().__init__()
        self._log_dir = None if log_dir is None else os.fsdecode(log_dir)
        self._training = TrainingUpload(wait_seconds, **options)

    @property
    def upload(self) -> Following | None:
        """Return the upload of the latest training in this process, with its `url`."""
        return self._training.upload

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002  # Lightning's
        """Start the upload, in the first process of those that train together."""
        if not trainer.is_global_zero or trainer.fast_dev_run or stage == "predict":
            return
        dirs = [each.log_dir for each in trainer.loggers if _is_of_tensorboard(each)]
        if self._log_dir or dirs:
            self._training.begin(self._log_dir or dirs[0])
        else:
            logger.warning("tbupload: nothing is uploaded: the trainer has no TensorBoardLogger")

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002  # Lightning's
        """Wait until everything is stored."""
        self._training.end()


def _is_of_tensorboard(trainer_logger: Any) -> bool:
    """Return whether it is a TensorBoardLogger, of either package, or of a derived class."""
    return "TensorBoardLogger" in [kind.__name__ for kind in type(trainer_logger).__mro__]
