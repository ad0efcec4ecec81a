"""The command `tbupload`: parse the options, run one command, and return its exit code.

Nothing is imported for a command that is not run, so that `tbupload --help` starts fast: the
options of a command are declared in `commands/options/`, the command itself is in `commands/`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import tbupload
from tbupload.commands.exit_codes import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_TEMPORARY_FAILURE,
    EXIT_USAGE,
)
from tbupload.commands.find_command import explain_unrecognized, order_arguments
from tbupload.console.argument_parser import ConsoleParser, add_parser
from tbupload.console.output import (
    discard_stdout,
    open_missing_streams,
    print_line,
    print_message,
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
  tbupload --logdir runs/ --dry-run           report what would be sent, and send nothing
  tbupload --logdir runs/ --experiment ID     add to an existing experiment, from any machine
  tbupload verify --logdir runs/ --experiment ID   compare every point with the stored ones
  tbupload export --experiment ID --output DIR     write Parquet, CSV or event files
  tbupload list --query baseline              find experiments
  tbupload open ID|NAME                       open an experiment's page in the browser
  tbupload tail ID                            print new points as they are committed
  tbupload share ID --expires 30d             print a link that opens it, valid for 30 days
  tbupload login --server https://HOST        log in through a browser, on any machine

The experiment's URL is printed at once. Run the same command again on this machine to resume an
upload that was stopped, killed or finished; --new creates another experiment instead. `tbupload
COMMAND --help` shows the options of a command, `tbupload upload --help` those of an upload.

Server and token: --server, then TBHUB_SERVER and TBHUB_TOKEN, then ~/.config/tbhub/config.toml.
There is no option for the token: other users of the machine could read it in the process list.

exit codes: 0 everything is committed; 1 failed, or something was skipped; 2 wrong usage; 75 server
unavailable: run the same command again later, nothing is lost.
"""

Command = Callable[[argparse.Namespace], int]


class _CommandEntry(NamedTuple):
    """A row of the command table; `command` and `options` are `module:function` in `commands`."""

    name: str
    help: str
    command: str
    options: str


_COMMANDS: Final = (
    _CommandEntry(
        "upload",
        "upload a log directory (the default command)",
        "upload:upload",
        "options.upload:add_options",
    ),
    _CommandEntry(
        "verify",
        "check that an experiment contains every point of a log directory",
        "verify:verify",
        "options.verify:add_options",
    ),
    _CommandEntry(
        "export",
        "write experiments to Parquet, CSV or event files",
        "export:export",
        "options.export:add_options",
    ),
    _CommandEntry(
        "tail",
        "print an experiment's new points as they are committed",
        "tail:tail",
        "options.tail:add_options",
    ),
    _CommandEntry(
        "create",
        "create an experiment, or print the one of this name",
        "experiments:create",
        "options.experiments:add_create_options",
    ),
    _CommandEntry(
        "list",
        "list your experiments, latest first",
        "experiments:list_experiments",
        "options.experiments:add_list_options",
    ),
    _CommandEntry(
        "show", "show one experiment", "experiments:show", "options.experiments:add_show_options"
    ),
    _CommandEntry(
        "open",
        "open an experiment's page in the browser, and print its URL",
        "open_page:open_page",
        "options.experiments:add_open_options",
    ),
    _CommandEntry(
        "update-metadata",
        "change an experiment's name, tags, notes, properties or visibility",
        "metadata:update_metadata",
        "options.metadata:add_update_options",
    ),
    _CommandEntry(
        "delete",
        "delete an experiment and all its data",
        "metadata:delete",
        "options.metadata:add_delete_options",
    ),
    _CommandEntry(
        "restore",
        "undo the deletion of an experiment",
        "metadata:restore",
        "options.metadata:add_restore_options",
    ),
    _CommandEntry(
        "share",
        "create a link that opens an experiment; list, rename and revoke links",
        "share:share",
        "options.share:add_options",
    ),
    _CommandEntry(
        "grpc-forward",
        "forward gRPC calls of Katib's components, with a token and TLS",
        "grpc_forward:grpc_forward",
        "options.grpc_forward:add_options",
    ),
    _CommandEntry(
        "login",
        "log in through a browser, or store a token, for a server",
        "login:login",
        "options.login:add_login_options",
    ),
    _CommandEntry(
        "logout",
        "remove the stored token of a server",
        "login:logout",
        "options.login:add_logout_options",
    ),
    _CommandEntry(
        "whoami",
        "show whom the token acts for, and what it may do",
        "login:whoami",
        "options.login:add_whoami_options",
    ),
    _CommandEntry(
        "token",
        "create, list and revoke tokens of yours or of a workspace; print the one in use",
        "tokens:token",
        "options.tokens:add_options",
    ),
    _CommandEntry(
        "api",
        "send a request to the HTTP API, with the token in use",
        "api:api",
        "options.api:add_options",
    ),
)


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
    names = [entry.name for entry in _COMMANDS]
    try:
        argv = order_arguments(given, names)
    except UsageError as error:
        return _report_error(error, EXIT_USAGE)

    parser = _build_parser(argv[0] if argv else None)
    options, unrecognized = parser.parse_known_args(argv)
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

    for entry in _COMMANDS:
        command = add_parser(
            commands,
            entry.name,
            help=entry.help,
            description=f"{entry.help[0].upper()}{entry.help[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if entry.name == selected:
            _add_options(command, entry)
    return parser


def _add_options(command: ConsoleParser, entry: _CommandEntry) -> None:
    from tbupload.commands.options.shared import add_common_options  # noqa: PLC0415 - see above

    module, _, function = entry.options.partition(":")
    options = importlib.import_module(f"tbupload.commands.{module}")
    getattr(options, function)(command)
    add_common_options(command)
    command.epilog = getattr(options, "EPILOG", None)
    command.set_defaults(command=entry.command, command_parser=command)


def _load(name: str) -> Command:
    """Import and return the function `module:function` of `tbupload.commands`."""
    module, _, function = name.partition(":")
    command: Command = getattr(importlib.import_module(f"tbupload.commands.{module}"), function)
    return command


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
    print_message(f"tbupload: {error}")
    return code


class _Version(argparse.Action):
    """`--version`: reads the version only then, since importlib.metadata is slow to import."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print the version and exit."""
        print_line(f"tbupload {tbupload.__version__}")
        parser.exit()
