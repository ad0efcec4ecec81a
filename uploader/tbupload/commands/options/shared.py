"""Option groups and value parsers that several commands share."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tbupload.experiment_names import explain_name
from tbupload.remote_files import make_path

NUMBER_DIGITS_MAX: Final = 9
"""Digits of a number on the command line, unless it has a limit of its own."""

READ_RETRY_TIMEOUT_SECONDS: Final = 60.0
"""Default of `--retry-timeout` for the commands that read a complete experiment."""

OptionGroup = argparse._ActionsContainer  # noqa: SLF001 - the base of parsers and groups


def add_common_options(command: argparse.ArgumentParser) -> None:
    """Add the options that every command has: the server, and the output."""
    group = command.add_argument_group("server and output")
    group.add_argument("--server", metavar="URL", help="the server's address")
    group.add_argument(
        "--profile", metavar="NAME", help="a profile of the config file (default: TBHUB_PROFILE)"
    )
    group.add_argument(
        "--cacert",
        metavar="FILE",
        type=Path,
        help="certificate authorities to trust, as a PEM file",
    )
    group.add_argument(
        "--json", action="store_true", help="print JSON on stdout, one object per line"
    )
    verbosity = group.add_mutually_exclusive_group()
    verbosity.add_argument(
        "--verbose", "-v", action="store_true", help="print more details on stderr"
    )
    verbosity.add_argument(
        "--quiet", "-q", action="store_true", help="print only warnings and errors on stderr"
    )


def add_logdir(group: OptionGroup, *, is_required: bool = False) -> None:
    """Add `--logdir`, required here or by the group."""
    group.add_argument(
        "--logdir",
        metavar="DIR",
        type=parse_logdir,
        required=is_required,
        help="the log directory: the directory that contains the runs",
    )


def parse_logdir(text: str) -> Path:
    """Return the path of a log directory. Raise ArgumentTypeError for what can be none."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty: a variable that is not set?")
    if "\0" in text:
        raise argparse.ArgumentTypeError("it has a NUL character")
    return make_path(text)


def add_experiment(command: argparse.ArgumentParser) -> None:
    """Add the positional argument that names the experiment."""
    command.add_argument(
        "experiment",
        metavar="ID",
        help="the experiment's ID, the first characters of it, or its URL",
    )


def add_visibility(group: OptionGroup) -> None:
    """Add `--visibility`, None unless it is given."""
    group.add_argument(
        "--visibility",
        choices=("private", "link"),
        help="who can read it: only members, or anyone with the URL",
    )


def add_series_filter(command: argparse.ArgumentParser, action: str) -> None:
    """Add the options that select series; `action` says what happens to them ("to upload")."""
    group = command.add_argument_group(
        f"series {action} (a regular expression must match the complete name)"
    )
    group.add_argument(
        "--plugins",
        metavar="A,B",
        type=_parse_names,
        help="only series of these plugins, for example scalars,images",
    )
    for names in ("runs", "tags"):
        group.add_argument(
            f"--include-{names}",
            metavar="REGEX",
            type=_parse_pattern,
            help=f"only {names} that match",
        )
        group.add_argument(
            f"--exclude-{names}",
            metavar="REGEX",
            type=_parse_pattern,
            help=f"no {names} that match",
        )


def add_retry_timeout(group: OptionGroup, default: float | None, default_text: str) -> None:
    """Add `--retry-timeout`, in seconds, and its former name `--give-up-seconds`."""
    group.add_argument(
        "--retry-timeout",
        metavar="SECONDS",
        type=parse_seconds,
        default=default,
        help=f"how long to retry while the server does not respond (default: {default_text})",
    )
    group.add_argument(
        "--give-up-seconds",
        dest="retry_timeout",
        type=parse_seconds,
        default=argparse.SUPPRESS,
        help=argparse.SUPPRESS,
    )


def parse_name(text: str) -> str:
    """Return a name that finds an experiment. Raise ArgumentTypeError for what can be none."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty: a variable that is not set?")
    return parse_new_name(text)


def parse_new_name(text: str) -> str:
    """Return a name for an experiment. Raise ArgumentTypeError for one of several lines."""
    if explanation := explain_name(text):
        raise argparse.ArgumentTypeError(explanation)
    return text


def parse_seconds(text: str) -> float:
    """Return a finite number of seconds above 0. Raise ArgumentTypeError for anything else."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan

    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds greater than 0")
    return seconds


def number_parser(meaning: str, minimum: int = 0) -> Callable[[str], int]:
    """Return a parser of integers, which raises ArgumentTypeError for a text that "is not" one."""

    def parse(text: str) -> int:
        is_number = text.isascii() and text.isdecimal() and len(text) <= NUMBER_DIGITS_MAX
        if not is_number or int(text) < minimum:
            raise argparse.ArgumentTypeError(f"{text!r} is not {meaning}")
        return int(text)

    return parse


def _parse_names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _parse_pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a valid regular expression: {error}"
        ) from error
