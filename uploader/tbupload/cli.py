"""The command `tbupload`: parse the options, run one command, and return its exit code.

Nothing is imported for a command that is not run, so that `tbupload --help` starts fast: the
options of a command are declared in `commands/options/`, the command itself is in `commands/`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import tbupload
from tbupload.commands.exit_codes import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_TEMPORARY_FAILURE,
    EXIT_USAGE,
)
from tbupload.commands.find_command import (
    explain_unrecognized,
    order_arguments,
    split_at_dashes,
)
from tbupload.console.argument_parser import ConsoleParser, add_parser
from tbupload.console.output import (
    discard_stdout,
    open_missing_streams,
    print_error,
    print_line,
)
from tbupload.errors import OutputError, Unreachable, UploadError, UsageError

DESCRIPTION: Final = (
    "Uploads TensorBoard log directories to a tbhub server and prints the experiment's URL."
)

EPILOG: Final = """\
examples:
  tbupload --logdir runs/                     upload, and follow the files until Ctrl-C
  tbupload runs/                              the same
  tbupload --logdir runs/ --one-shot          upload what is there now, and exit
  tbupload run --logdir runs/ -- python train.py   run a training, and upload beside it
  tbupload --logdir runs/ --dry-run           report what would be sent, and send nothing
  tbupload --logdir runs/ --experiment ID     add to an existing experiment, from any machine
  tbupload verify --logdir runs/ --experiment ID   compare every point with the stored ones
  tbupload export --experiment ID --output DIR     write Parquet, CSV or event files
  tbupload list --query baseline              find experiments
  tbupload runs --where 'lr < 0.01' --sort loss.min   compare runs of all experiments
  tbupload open ID|NAME                       open an experiment's page in the browser
  tbupload tail ID                            print new points as they are committed
  tbupload share ID --expires 30d             print a link that opens it, valid for 30 days
  tbupload move ID --to WORKSPACE             move an experiment, compared point by point
  tbupload login --server https://HOST        log in through a browser, on any machine

The experiment's URL is printed at once. Run the same command again on this machine to resume an
upload that was stopped, killed or finished; --new creates another experiment instead. `tbupload
COMMAND --help` shows the options of a command, `tbupload upload --help` those of an upload.

Server and token: --server, then TBHUB_SERVER and TBHUB_TOKEN, then ~/.config/tbhub/config.toml.
There is no option for the token: other users of the machine could read it in the process list.

exit codes: 0 everything is committed; 1 failed, or something was skipped; 2 wrong usage; 75 server
unavailable, or the workspace has no room: run the same command again later, nothing is lost.
"""

Command = Callable[[argparse.Namespace], int]
AddOptions = Callable[[argparse.ArgumentParser], None]


_COMMANDS: Final = {
    "upload": "upload a log directory (the default command)",
    "run": "run a command, upload what it writes, and record how it ends",
    "verify": "check that an experiment contains every point of a log directory",
    "export": "write experiments to Parquet, CSV or event files",
    "tail": "print an experiment's new points as they are committed",
    "create": "create an experiment, or print the one of this name",
    "list": "list your experiments, latest first",
    "runs": "list the runs of all experiments, with hyperparameters and metrics",
    "show": "show one experiment",
    "open": "open an experiment's page in the browser, and print its URL",
    "update-metadata": "change an experiment's name, tags, notes, properties or visibility",
    "move": "move experiments to another workspace, or another server",
    "delete": "delete an experiment and all its data",
    "restore": "undo the deletion of an experiment",
    "share": "create a link that opens an experiment; list, rename and revoke links",
    "grpc-forward": "forward gRPC calls of Katib's components, with a token and TLS",
    "login": "log in through a browser, or store a token, for a server",
    "logout": "remove the stored token of a server",
    "whoami": "show whom the token acts for, and what it may do",
    "token": "create, list and revoke tokens of yours or of a workspace; print the one in use",
    "api": "send a request to the HTTP API, with the token in use",
    "completion": "print a script that completes these commands in bash, zsh or fish",
}
"""Help of each command by its name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; without a command name, run `upload`.

    `arguments` are those of the process by default. argparse raises SystemExit on wrong usage and
    after `--help` and `--version`.
    """
    open_missing_streams()
    try:
        return _main(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:  # also while modules are imported
        return EXIT_INTERRUPTED
    except OutputError as error:  # of --help and --version
        return _report_error(error, EXIT_FAILED)


def _main(given: list[str]) -> int:
    names = list(_COMMANDS)
    try:
        argv = order_arguments(given, names)
    except UsageError as error:
        return _report_error(error, EXIT_USAGE)

    behind_dashes: list[str] = []
    if argv[:1] in (["run"], ["completion"]):
        argv, behind_dashes = split_at_dashes(argv)
    parser = _build_parser(argv[0] if argv else None)
    options, unrecognized = parser.parse_known_args(argv)
    options.behind_dashes = behind_dashes
    options.build_parser = _build_parser
    if "command" not in options:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    if unrecognized:
        known = options.command_parser.option_strings
        options.command_parser.error(explain_unrecognized(unrecognized, known, given, names))

    # numpy's BLAS starts one thread per core when it is loaded, and no command needs them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return _run(_load(options.command), options)


def _build_parser(selected: str | None) -> ConsoleParser:
    """Return a parser that knows all commands by name, and the options of the selected one."""
    parser = ConsoleParser(
        prog="tbupload",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, help="show program's version number and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    for name, help_ in _COMMANDS.items():
        command = add_parser(
            commands,
            name,
            help=help_,
            description=f"{help_[0].upper()}{help_[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == selected:
            _add_options(command, name)
    return parser


def _add_options(command: ConsoleParser, name: str) -> None:
    from tbupload.commands.options.shared import add_common_options

    add_options = _load_options(name)
    add_options(command)
    add_common_options(command)
    command.epilog = getattr(sys.modules[add_options.__module__], "EPILOG", None)
    command.set_defaults(command=name, command_parser=command)


def _load(name: str) -> Command:  # noqa: C901, PLR0912 - a table of imports
    """Import a command, and no other one."""
    command: Command
    if name == "upload":
        from tbupload.commands.upload import upload as command
    elif name == "run":
        from tbupload.commands.run import run as command
    elif name == "verify":
        from tbupload.commands.verify import verify as command
    elif name == "export":
        from tbupload.commands.export import export as command
    elif name == "tail":
        from tbupload.commands.tail import tail as command
    elif name == "create":
        from tbupload.commands.experiments import create as command
    elif name == "list":
        from tbupload.commands.experiments import list_experiments as command
    elif name == "runs":
        from tbupload.commands.runs import list_runs as command
    elif name == "show":
        from tbupload.commands.experiments import show as command
    elif name == "open":
        from tbupload.commands.open_page import open_page as command
    elif name == "update-metadata":
        from tbupload.commands.metadata import update_metadata as command
    elif name == "move":
        from tbupload.commands.move import move as command
    elif name == "delete":
        from tbupload.commands.metadata import delete as command
    elif name == "restore":
        from tbupload.commands.metadata import restore as command
    elif name == "share":
        from tbupload.commands.share import share as command
    elif name == "grpc-forward":
        from tbupload.commands.grpc_forward import grpc_forward as command
    elif name == "login":
        from tbupload.commands.login import login as command
    elif name == "logout":
        from tbupload.commands.login import logout as command
    elif name == "whoami":
        from tbupload.commands.login import whoami as command
    elif name == "token":
        from tbupload.commands.tokens import token as command
    elif name == "api":
        from tbupload.commands.api import api as command
    elif name == "completion":
        from tbupload.commands.completion import completion as command
    return command


def _load_options(name: str) -> AddOptions:  # noqa: C901, PLR0912 - the same
    """Import the function that declares the options of a command."""
    add: AddOptions
    if name == "upload":
        from tbupload.commands.options.upload import add_options as add
    elif name == "run":
        from tbupload.commands.options.run import add_options as add
    elif name == "verify":
        from tbupload.commands.options.verify import add_options as add
    elif name == "export":
        from tbupload.commands.options.export import add_options as add
    elif name == "tail":
        from tbupload.commands.options.tail import add_options as add
    elif name == "create":
        from tbupload.commands.options.experiments import add_create_options as add
    elif name == "list":
        from tbupload.commands.options.experiments import add_list_options as add
    elif name == "runs":
        from tbupload.commands.options.runs import add_options as add
    elif name == "show":
        from tbupload.commands.options.experiments import add_show_options as add
    elif name == "open":
        from tbupload.commands.options.experiments import add_open_options as add
    elif name == "update-metadata":
        from tbupload.commands.options.metadata import add_update_options as add
    elif name == "move":
        from tbupload.commands.options.move import add_options as add
    elif name == "delete":
        from tbupload.commands.options.metadata import add_delete_options as add
    elif name == "restore":
        from tbupload.commands.options.metadata import add_restore_options as add
    elif name == "share":
        from tbupload.commands.options.share import add_options as add
    elif name == "grpc-forward":
        from tbupload.commands.options.grpc_forward import add_options as add
    elif name == "login":
        from tbupload.commands.options.login import add_login_options as add
    elif name == "logout":
        from tbupload.commands.options.login import add_logout_options as add
    elif name == "whoami":
        from tbupload.commands.options.login import add_whoami_options as add
    elif name == "token":
        from tbupload.commands.options.tokens import add_options as add
    elif name == "api":
        from tbupload.commands.options.api import add_options as add
    elif name == "completion":
        from tbupload.commands.options.completion import add_options as add
    return add


def _run(command: Command, options: argparse.Namespace) -> int:
    try:
        return command(options)
    except UsageError as error:
        return _report_error(error, EXIT_USAGE)
    except Unreachable as error:
        return _report_error(error, EXIT_TEMPORARY_FAILURE)
    except UploadError as error:
        return _report_error(error, EXIT_FAILED)
    except BrokenPipeError:
        discard_stdout()
        return EXIT_FAILED


def _report_error(error: UploadError, code: int) -> int:
    print_error(str(error))
    return code


class _Version(argparse.Action):
    """`--version`: reads the version only then, since importlib.metadata is slow to import."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print the version and exit."""
        print_line(f"tbupload {tbupload.__version__}")
        parser.exit()
