"""Options of `tbupload upload`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from tbupload.commands.options.metadata import add_expiry, add_tags_and_notes
from tbupload.commands.options.shared import (
    OptionGroup,
    add_logdir,
    add_retry_timeout,
    add_series_filter,
    add_visibility,
    parse_logdir,
    parse_name,
    parse_new_name,
    parse_seconds,
)
from tbupload.recording.metrics_options import SECONDS_DEFAULT, SECONDS_MAX, SECONDS_MIN
from tbupload.upload.readers.choice import (
    BACKLOG_BYTES_MIN,
    CHOSEN_PROCESSES_MAX,
    IDLE_CORES_MIN,
    READERS_MAX,
    THREADS,
)

EPILOG: Final = """\
examples:
  tbupload --logdir runs/                     upload, and follow the files until Ctrl-C
  tbupload runs/                              the same
  tbupload --logdir runs/ --one-shot          upload what is there now, and exit
  tbupload --logdir runs/ --dry-run           report what would be sent, and send nothing
  tbupload --logdir runs/ --hparams FILE      set hyperparameters of runs that log none
  tbupload --logdir runs/ --experiment ID     add to an existing experiment, from any machine
  tbupload --logdir runs/ --experiment-name X  the same by name; creates it if there is none

The experiment's URL is printed at once. Run the same command again on this machine to resume an
upload that was stopped, killed or finished; --new creates another experiment instead. So does a run
that was trained again from its start, into new files in place of the uploaded ones, unless --resume
says otherwise.

exit codes: 0 everything is committed; 1 failed, or something was skipped; 2 wrong usage; 75 server
unavailable, or the workspace has no room: run the same command again later, nothing is lost.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of an upload."""
    _add_logdir(command)
    command.add_argument(
        "--one-shot",
        "--one_shot",  # the spelling of TensorBoard.dev's uploader
        action="store_true",
        help="exit when everything there now is committed, instead of following the files",
    )
    command.add_argument(
        "--dry-run",
        "--dry_run",
        action="store_true",
        help="read everything, send nothing, and report what would be sent; needs no "
        "server, and asks one only for an experiment that would be resumed",
    )
    add_experiment_options(command)
    _add_timing(command)
    _add_readers(command)
    _add_subprocess(command)


def add_experiment_options(command: argparse.ArgumentParser) -> None:
    """Add the options that choose an experiment, what is sent to it, and what is recorded."""
    _add_target(command)

    new_experiment = command.add_argument_group("a new experiment")
    new_experiment.add_argument(
        "--name",
        type=parse_new_name,
        help="its name (default: that of the log directory, as in project/runs; with --no-origin "
        "without that of the directory above)",
    )
    new_experiment.add_argument("--description", help="its description, as Markdown")
    add_visibility(new_experiment)
    add_tags_and_notes(new_experiment, tag_help="a tag; repeatable", note_help="notes, as Markdown")
    add_expiry(new_experiment)
    command.add_argument(
        "--hparams",
        metavar="FILE",
        type=Path,
        help="set hyperparameters of runs: a JSON or YAML file with {name: value}, for every run "
        'that has none, or with {run: {name: value}}; the root run is "."',
    )
    add_series_filter(command, "to upload")

    _add_recording(command)


def _add_recording(command: argparse.ArgumentParser) -> None:
    recording = command.add_argument_group("what is recorded")
    recording.add_argument(
        "--no-origin",
        action="store_true",
        help="do not record host, user, directory, command (secrets masked), git commit, platform, "
        "CPUs, GPUs, start, end and status; --dry-run lists what is recorded",
    )
    recording.add_argument(
        "--git-diff",
        action="store_true",
        help="record the uncommitted changes of tracked files too, secrets masked, as `git diff "
        "HEAD` prints them when the upload begins: at most 16,000 bytes",
    )
    recording.add_argument(
        "--system-metrics",
        metavar="SECONDS",
        type=_parse_interval,
        nargs="?",
        const=SECONDS_DEFAULT,
        help="record CPUs, memory, disks, network and GPUs of this machine that often, in a run of "
        f"their own (default: {SECONDS_DEFAULT:g}); needs psutil",
    )


def _add_target(command: argparse.ArgumentParser) -> None:
    """Add the options that say which experiment is uploaded to, and what of it again."""
    command.add_argument(
        "--experiment",
        metavar="ID",
        help="resume or extend this experiment (ID or URL); nothing is sent twice",
    )
    command.add_argument(
        "--experiment-name",
        metavar="NAME",
        type=parse_name,
        help="add to the experiment of this name, which is created if there is none: one "
        "experiment for several machines",
    )
    command.add_argument(
        "--resume",
        choices=("must", "allow", "never"),
        help="must: resume the experiment of the same command, or fail; allow: resume it if there "
        "is one; never: create another one. must and allow also add runs that were trained again "
        "from their start; by default, those get a new experiment",
    )
    command.add_argument("--new", action="store_true", help="the same as --resume never")
    command.add_argument(
        "--upload-deleted-runs",
        action="store_true",
        help="upload runs of the log directory again that were deleted on the server until now; "
        "by default, they are named and left out",
    )


def _parse_interval(text: str) -> float:
    seconds = parse_seconds(text)
    if not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text}: from {SECONDS_MIN:g} to {SECONDS_MAX:g} seconds")
    return seconds


def _add_logdir(command: argparse.ArgumentParser) -> None:
    """Add `--logdir`, which may also be given without the option."""
    logdir = command.add_mutually_exclusive_group(required=True)
    add_logdir(logdir)
    logdir.add_argument(
        "directory",
        metavar="DIR",
        type=parse_logdir,
        nargs="?",
        action=_StoreLogdir,
        help="the same as --logdir DIR",
    )


def _add_timing(command: argparse.ArgumentParser) -> None:
    timing = command.add_argument_group("timing")
    add_poll_seconds(timing)
    add_retry_timeout(timing, None, "300 with --one-shot, otherwise unlimited")
    timing.add_argument(
        "--end-with-process",
        metavar="PID",
        type=int,
        help="follow until this process has ended and the files are quiet, then exit; an "
        "unreachable server is tried for a day more",
    )
    timing.add_argument(
        "--quiet-seconds",
        metavar="N",
        type=parse_seconds,
        default=10.0,
        help="with --end-with-process: how long the files must be unchanged (default: %(default)s)",
    )


def add_poll_seconds(group: OptionGroup) -> None:
    """Add the option that says how often an upload that follows its files looks for new ones."""
    group.add_argument(
        "--poll-seconds",
        metavar="N",
        type=parse_seconds,
        default=5.0,
        help="longest time until new runs, files and data are noticed; growing files are read "
        "5 times per second (default: %(default)s)",
    )


def _add_readers(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--readers",
        metavar="N",
        type=_parse_readers,
        help="read what is unsent in N processes besides this one, which sends it; each takes some "
        f"60 MB of memory (default: 0, this one reads; with {IDLE_CORES_MIN} or more idle cores "
        f"one less than these, at most {CHOSEN_PROCESSES_MAX}, while {BACKLOG_BYTES_MIN >> 20} MiB "
        f"or more are unsent and no job is writing); for a URL, in N threads (default: {THREADS})",
    )


def _parse_readers(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text) <= READERS_MAX:
        raise argparse.ArgumentTypeError(f"{text}: a number from 0 to {READERS_MAX}")
    return int(text)


def _add_subprocess(command: argparse.ArgumentParser) -> None:
    subprocess = command.add_argument_group("for programs that start this one")
    subprocess.add_argument(
        "--wait-for-logdir",
        action="store_true",
        help="wait for the log directory to appear",
    )
    subprocess.add_argument(
        "--end-with-stdin",
        action="store_true",
        help="stop as on Ctrl-C when stdin receives data or closes, or the parent process exits",
    )
    subprocess.add_argument(
        "--commands-from-stdin",
        action="store_true",
        help="with --end-with-process and the parent's PID: read commands from stdin (look NAME, "
        "retire SECONDS, stop); after its end, write to follow.log beside the config file",
    )
    subprocess.add_argument(
        "--process-descriptor",
        metavar="N",
        type=int,
        help="with --end-with-process: an inherited descriptor of that process (pidfd)",
    )


class _StoreLogdir(argparse.Action):
    """Stores a positional log directory where `--logdir` stores it."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        options: argparse.Namespace,
        values: Any,
        _option: str | None = None,
    ) -> None:
        """Store the directory if one is given: argparse calls this without one as well."""
        if values is not None:
            options.logdir = values
