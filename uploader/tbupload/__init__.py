"""Client of tbhub: uploads TensorBoard event files, and reads experiments as DataFrames.

Upload a log directory while a training script writes it:

    import tbupload

    with tbupload.follow("runs/", name="a first try") as upload:
        print(upload.url)
        train("runs/")

Read an experiment's data into pandas or polars DataFrames, for example in a notebook:

    from tbupload import Experiment

    experiment = Experiment("https://tbhub.example.org/experiment/ID/")
    experiment.scalars(tag="loss", pivot=True)

List the runs of all experiments, with hyperparameters and metrics:

    from tbupload import Workspace

    Workspace().runs('lr < 0.01 and loss.min < 0.3', sort="loss.min")

For everything else, use the command `tbupload` (see `tbupload --help`).
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tbupload.background_upload.following import Following, follow
    from tbupload.background_upload.result import Result
    from tbupload.notebook.experiment import Experiment
    from tbupload.notebook.tensorboard_dev_compat import ExperimentFromDev
    from tbupload.notebook.workspace import Workspace, experiments

    __version__: str

__all__ = [
    "Experiment",
    "ExperimentFromDev",
    "Following",
    "Result",
    "Workspace",
    "experiments",
    "follow",
]

_LAZY_MODULES = {
    "Experiment": "notebook.experiment",
    "ExperimentFromDev": "notebook.tensorboard_dev_compat",
    "Following": "background_upload.following",
    "Result": "background_upload.result",
    "Workspace": "notebook.workspace",
    "experiments": "notebook.workspace",
    "follow": "background_upload.following",
}


def __getattr__(name: str) -> Any:
    """Import the public name on first use, so that the command `tbupload` starts without it.

    `__version__` is that of the distribution `tbhub`.
    """
    if name == "__version__":
        return _read_version()
    if name not in _LAZY_MODULES:
        raise AttributeError(f"module 'tbupload' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tbupload.{_LAZY_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names, imported or not, and none of the modules: for completion."""
    return sorted({*filter(_is_special, globals()), *__all__, "__version__"})


def _is_special(name: str) -> bool:
    return name.startswith("__")


def _read_version() -> str:
    """Return the version; "0+not.installed" where the sources are used and no wheel is installed.

    That is a version to programs that parse it (PEP 440), before every release.
    """
    metadata = importlib.import_module("importlib.metadata")
    try:
        return str(metadata.version("tbhub"))
    except metadata.PackageNotFoundError:
        return "0+not.installed"
