"""The client: reads event files where a training job writes them, and sends what is new to a tbhub server.

In a training script:

    import tbupload

    with tbupload.follow("runs/", name="a first try") as upload:
        print(upload.url)
        train("runs/")

In a notebook, all data of an experiment as DataFrames of pandas or polars:

    from tbupload import Experiment

    experiment = Experiment("https://tbhub.example.org/experiment/ID/")
    experiment.scalars(tag="loss", pivot=True)

Everywhere else, the command `tbupload`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tbupload.background_upload.following import Following, follow
    from tbupload.background_upload.process import Result
    from tbupload.notebook.experiment import Experiment
    from tbupload.notebook.tensorboard_dev_compat import ExperimentFromDev

__all__ = ["Experiment", "ExperimentFromDev", "Following", "Result", "follow"]

_LAZY_MODULES = {
    "Experiment": "notebook.experiment",
    "ExperimentFromDev": "notebook.tensorboard_dev_compat",
    "Following": "background_upload.following",
    "Result": "background_upload.process",
    "follow": "background_upload.following",
}


def __getattr__(name: str) -> Any:
    """What scripts use, loaded when it is used: the command needs none of it."""
    if name not in _LAZY_MODULES:
        raise AttributeError(f"module 'tbupload' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tbupload.{_LAZY_MODULES[name]}"), name)
