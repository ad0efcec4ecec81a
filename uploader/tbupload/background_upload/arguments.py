"""The arguments of `follow` as options of the command `tbupload`, checked at once."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from collections.abc import Iterable
from typing import Any, Final

from tbupload.background_upload.process import logger
from tbupload.console.terminal import write_line
from tbupload.errors import UploadError
from tbupload.experiment_names import explain_name
from tbupload.recording.announcement import announce
from tbupload.recording.console_tail import LINES_DEFAULT, LINES_MAX
from tbupload.recording.metrics_options import NO_PSUTIL, has_psutil
from tbupload.recording.opt_out import records_nothing
from tbupload.remote_files import make_path

PATTERNS: Final = ("include_runs", "exclude_runs", "include_tags", "exclude_tags")
"""Arguments of `follow` that are regular expressions."""

TEXT_OPTIONS: Final = (
    *("name", "description", "visibility", "experiment", "experiment_name", "resume"),
    "server",
    *PATTERNS,
)
"""Arguments of `follow` that become options of the same name, without conversion."""

RESUME_CHOICES: Final = ("must", "allow", "never")
"""The values of `resume`."""


def _check_patterns(arguments: dict[str, Any]) -> None:
    for name in PATTERNS:
        try:
            re.compile(arguments[name] or "")
        except re.error as error:
            raise ValueError(f"{name} is not a valid regular expression: {error}") from error


def _check_names(arguments: dict[str, Any]) -> None:
    for name in ("name", "experiment_name"):
        if explanation := explain_name(arguments[name] or ""):
            raise ValueError(f"{name}: {explanation}")
    if arguments["experiment_name"] is not None and not arguments["experiment_name"].strip():
        raise ValueError("experiment_name is empty")


def _check_plugins(plugins: str, logdir: str) -> None:
    """Raise ValueError for a misspelled plugin, unless files may tell that it is one."""
    # Here, because it needs what an upload does, and only with this argument.
    from tbupload.logdir.scan import has_uploadable_files  # noqa: PLC0415
    from tbupload.upload.filter_check import EVERYTHING, find_misspelled  # noqa: PLC0415

    misspelled = find_misspelled(name.strip() for name in plugins.split(","))
    path = make_path(logdir)
    try:
        has_files = bool(misspelled) and path.is_dir() and has_uploadable_files(path, EVERYTHING)
    except (OSError, UploadError):  # the uploader reports it
        return
    for plugin, names in misspelled.items() if not has_files else ():
        raise ValueError(f"plugins: there is no {plugin!r}; did you mean {', '.join(names)}?")


def command_line(arguments: dict[str, Any]) -> tuple[list[str], int]:
    """Return the options of the command, and how many lines of the console are recorded.

    `--logdir` is first; the token is not among them. Announces what is recorded. Raises TypeError
    and ValueError for what no upload could take.
    """
    texts = {
        "logdir": os.fsdecode(arguments["logdir"]),
        "cacert": None if arguments["cacert"] is None else os.fsdecode(arguments["cacert"]),
        "hparams": None if arguments["hparams"] is None else os.fsdecode(arguments["hparams"]),
        "plugins": _join_names(arguments["plugins"]),
        "poll-seconds": None
        if arguments["poll_seconds"] is None
        else f"{arguments['poll_seconds']:f}",
    }
    texts |= {name.replace("_", "-"): arguments[name] for name in TEXT_OPTIONS}
    for name, text in {**texts, "token": arguments["token"]}.items():
        if not (text is None or isinstance(text, str)):
            raise TypeError(f"{name} must be a string, not {type(text).__name__}")
    _check_patterns(arguments)
    _check_names(arguments)
    if texts["plugins"] is not None:
        _check_plugins(texts["plugins"], os.fsdecode(arguments["logdir"]))
    if arguments["resume"] not in {None, *RESUME_CHOICES}:
        raise ValueError(f"resume must be one of {RESUME_CHOICES}, not {arguments['resume']!r}")
    if arguments["new"] and arguments["resume"] in {"must", "allow"}:
        raise ValueError(f"new=True and resume={arguments['resume']!r} exclude each other")
    options = [f"--{name}={text}" for name, text in texts.items() if text is not None]
    metrics = arguments["system_metrics"]
    if metrics is not False and not has_psutil():
        logger.warning("tbupload: %s; the upload continues without them", NO_PSUTIL)
    elif metrics is not False:
        options.append("--system-metrics" if metrics is True else f"--system-metrics={metrics:f}")
    if records_nothing(os.environ, no_origin=arguments["no_origin"]):
        options.append("--no-origin")
    else:
        _announce()
    lines = _console_lines(arguments)
    return [*options, "--new"] if arguments["new"] else options, lines


def _console_lines(arguments: dict[str, Any]) -> int:
    """Return how many lines of the console are to be recorded, 0 for none.

    Raises TypeError and ValueError for what is no such number, or no record is to have.
    """
    console = arguments["console"]
    if not isinstance(console, int):
        raise TypeError(f"console must be a bool or an int, not {type(console).__name__}")
    if console is False:
        return 0
    if not 1 <= console <= LINES_MAX:
        raise ValueError(f"console is a number of lines from 1 to {LINES_MAX:,}")
    if arguments["no_origin"]:
        raise ValueError("no_origin=True and console exclude each other")
    if records_nothing(os.environ, no_origin=False):
        logger.warning("tbupload: TBHUB_NO_ORIGIN, or no_origin in the config file: no console")
        return 0
    return LINES_DEFAULT if console is True else console


@functools.cache
def _announce() -> None:
    """Say what is recorded; at most once per process, also where it is said each time."""
    announce(_say, is_script=True, is_training=True)


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        write_line(sys.stderr, f"tbupload: {sentence}")


def _join_names(names: Iterable[str] | None) -> str | None:
    return ",".join(names) if names is not None and not isinstance(names, str) else names
