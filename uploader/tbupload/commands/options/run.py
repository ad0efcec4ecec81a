"""Options of `tbupload run`."""

from __future__ import annotations

import argparse
import os
from typing import Final

from tbupload.commands.options.shared import parse_logdir, parse_seconds
from tbupload.commands.options.upload import add_experiment_options, add_poll_seconds
from tbupload.recording.console_tail import LINES_DEFAULT, LINES_MAX

LOGDIR_VARIABLE: Final = "TBHUB_LOGDIR"

END_SECONDS: Final = 60.0

EPILOG: Final = """\
examples:
  tbupload run --logdir runs -- python train.py --lr 0.1
  tbupload run --logdir runs --console --git-diff -- python train.py
  tbupload run --logdir runs --experiment-name sweep -- torchrun --nproc-per-node 8 train.py
  TBHUB_LOGDIR=runs tbupload run -- sh -c 'python prepare.py && python train.py'

The command runs as without `tbupload`: with the same terminal, input and output, and with the
signals that are sent to this process. Its start, end, and exit code or signal are recorded with the
upload. No failure of the upload changes or slows it; what is left at the end is said, with the
command that sends it later. Messages of the upload go to stderr.

exit codes: that of the command, 128 and the signal if one has killed it; 2 wrong usage, 126 the
command cannot be run, 127 it is not found: then nothing was started.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of a run; the command behind `--` is not parsed."""
    command.usage = "tbupload run [options] -- COMMAND [ARGUMENT ...]"
    command.add_argument(
        "--logdir",
        metavar="DIR",
        type=parse_logdir,
        default=os.environ.get(LOGDIR_VARIABLE) or None,
        help="the log directory that the command writes, which need not exist yet (default: "
        f"{LOGDIR_VARIABLE})",
    )
    command.add_argument(
        "--console",
        metavar="N",
        type=_parse_lines,
        nargs="?",
        const=LINES_DEFAULT,
        help="record the last N lines of stdout and stderr, secrets masked: at most "
        f"16,000 bytes (default: {LINES_DEFAULT}); both are pipes then",
    )
    command.add_argument(
        "--end-seconds",
        metavar="N",
        type=parse_seconds,
        default=END_SECONDS,
        help="how long to wait after the end of the command until everything is uploaded (default: "
        "%(default)g; 10 if the server has never answered)",
    )
    add_experiment_options(command)
    add_poll_seconds(command)
    command.set_defaults(one_shot=False, wait_for_logdir=True, end_with_process=None)
    command.set_defaults(commands_from_stdin=False)


def _parse_lines(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= LINES_MAX):
        raise argparse.ArgumentTypeError(f"{text!r}: a number of lines from 1 to {LINES_MAX:,}")
    return int(text)
