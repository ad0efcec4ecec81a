"""`%tbhub` in IPython and Jupyter, used as `%tensorboard`: follow a log directory, or show a page.

%load_ext tbupload.notebook
%tbhub --logdir runs/
%tbhub EXPERIMENT_ID_OR_URL
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
from typing import Any, NoReturn

from tbupload.background_upload.following import Following, follow
from tbupload.errors import UploadError
from tbupload.notebook.experiment import Experiment


def register(shell: Any) -> None:
    """Add the magic to an InteractiveShell."""
    shell.register_magic_function(run, "line", "tbhub")


def run(line: str) -> None:
    """Follow a log directory (`--logdir DIR`), or show an experiment (`ID` or URL), below the cell.

    The upload continues until the kernel ends; the same line again shows it again. To stop it, call
    `tbupload.follow` with the same arguments, and `stop()` of what it returns.
    """
    try:
        options = vars(_parser().parse_args(shlex.split(line, posix=os.name != "nt")))
        height, experiment = options.pop("height"), options.pop("shown")
        shown = _follow(**options) if experiment is None else Experiment(experiment)
    except (ValueError, UploadError) as error:
        usage_error: type[Exception] = importlib.import_module("IPython.core.error").UsageError
        raise usage_error(f"%tbhub: {error}") from None
    shown.show(height)


def _follow(logdir: str, **options: Any) -> Following:
    return follow(os.path.expanduser(logdir), **options)  # noqa: PTH111  # it may be a URL


class _Parser(argparse.ArgumentParser):
    """Raises ValueError where `argparse` would end the kernel."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%tbhub", add_help=False, allow_abbrev=False)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--logdir")
    source.add_argument("shown", nargs="?", metavar="ID_OR_URL")
    for name in ("name", "description", "visibility", "experiment", "experiment-name"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--height", type=int)
    return parser
