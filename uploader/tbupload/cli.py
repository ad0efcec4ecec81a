"""The command `tbupload`: parse, build, run, turn each error into one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from tbupload.commands.exit_codes import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_TEMPORARY_FAILURE,
    EXIT_USAGE,
)
from tbupload.console.output import discard_stdout, print_line, print_message
from tbupload.errors import Unreachable, UploadError, UsageError

DESCRIPTION: Final = (
    "Uploads TensorBoard logdirs to a tbhub server and prints the URL where they can be seen."
)

EXAMPLES: Final = """\
examples:
  tbupload --logdir runs/                      upload, and follow the files until Ctrl-C
  tbupload --logdir runs/ --one-shot           upload what is there, and end
  tbupload --logdir runs/ --dry-run            read everything, send nothing, say what would be sent
  tbupload --logdir runs/ --experiment ID      go on with this experiment, whichever machine began it
  tbupload verify --logdir runs/ --experiment ID   is all of it there, bit by bit?
  tbupload export --experiment ID --output DIR     write all of it into files: Parquet, CSV, event files
  tbupload tail ID                             print new points as they come
  tbupload share ID --expires 30d              print a link that opens it, for 30 days
  tbupload login --server https://HOST         keep a server's address and a token for later

The experiment's URL is printed at once. An upload that was stopped, or died, goes on where it was when the same command
is run again on this machine; --new starts another experiment instead. `tbupload COMMAND --help` shows all options,
`tbupload upload --help` those of an upload.

The server and the token come from --server, then TBHUB_SERVER and TBHUB_TOKEN, then ~/.config/tbhub/config.toml.
A token is never given on the command line, where other users of the machine could see it.

exit codes: 0 everything committed; 1 failed, or something was skipped; 2 wrong usage; 75 try again later, nothing lost.
"""

VERIFY_EXAMPLES: Final = """\
examples:
  tbupload verify --logdir runs/ --experiment ID             is every point of these files there, bit by bit?
  tbupload verify --logdir runs/ --experiment ID --strict    and nothing besides?
  tbupload verify --logdir runs/ --experiment ID --deep      and does the object store still have every byte?
  tbupload verify --logdir runs/ --experiment ID --repair    send again what the object store has lost
  tbupload verify --logdir runs/ --experiment ID --json      one object a series, then {"event": "verified", ...}

Reads the files again and compares, series by series, the number of points and their SHA-256 with those of what the
server stores. What differs is named: points (steps) that are missing, that differ, and that are extra. Filters have to
be those of the upload. The points of a large run are kept in a temporary file meanwhile: TMPDIR says where.

Images, audio and graphs are objects in the server's object store: that each is there, with its size, is checked, too;
with --deep the server reads them all and compares their SHA-256. --repair, with a token that may append, sends those
that are missing or damaged again, from these files, and verifies once more.

Of what the Embedding Projector shows, the bytes of tensors, metadata, sprites and bookmarks are compared in the same
way, but not their time, which is that of the upload.

A file that is being written is verified as far as its last whole record. What the experiment holds beyond the files (of
files that were deleted or rotated, or from other machines) is told, and is no fault unless --strict.

exit codes: 0 proven; 1 something is missing, differs, or cannot be uploaded; 2 wrong usage; 75 the server is away.
"""

EXPORT_EXAMPLES: Final = """\
examples:
  tbupload export --experiment ID --output DIR                      Parquet files, a directory for each kind of data
  tbupload export --experiment ID --format csv --output DIR         the same as CSV
  tbupload export --experiment ID --format events --output DIR      event files: tensorboard --logdir DIR shows them
  tbupload export --all --format events --output DIR                every experiment you may list, in DIR/ID

Every point is exported. An export that was broken off goes on when the same command is run again; one that is complete
does nothing. DIR has to be new, empty, or hold this very export. It is of the series that were there when it began, and
each series is as it stood when it was read.

Event files hold all there is, blobs (images, audio, graphs) with their bytes: uploaded again they make the same series.
A run whose name is no directory's (as ../x) goes to one named %DIGEST, and characters that steer terminals are
percent-encoded (as %1B); the manifest has the names. Parquet and CSV have a row a point; of blobs they hold the keys,
by which /api/v1/blobs/KEY gives the bytes. A point whose bytes the server has lost is left out and named.

exit codes: 0 all there; 1 failed, or something was lost; 2 wrong usage; 75 the server is away: call it again.
"""

TAIL_EXAMPLES: Final = """\
examples:
  tbupload tail ID                             a line for each new scalar, until Ctrl-C
  tbupload tail ID --from-start --json         every scalar there is, and then those that come, one object a line
  tbupload tail ID --include-tags '.*loss'     of some series only
  tbupload tail ID --kind tensors              of histograms, texts and other tensors

When the connection breaks, or the server is away, it goes on behind the last point that came. Points that are written
anew, as by a job that was restarted, are printed again, with all that follow them in their series.

exit codes: 0 ended by Ctrl-C; 1 the experiment is gone, or the token is no good any more; 2 wrong usage; 75 the server
stayed away for --give-up-seconds.
"""

READ_RETRY_TIMEOUT_SECONDS: Final = 60.0
"""How long a server that does not answer is tried by those who read everything there is."""

Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and answers its exit code."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    parser, verbs = _parser()
    if argv and argv[0] not in verbs and argv[0] not in {"-h", "--help", "--version"}:
        argv.insert(0, "upload")
    options = parser.parse_args(argv)
    if "command" not in options:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    return _run(_load_command(options.command), options)


def _load_command(name: str) -> Command:
    """The function of a command, `module:function`: what it needs is loaded now, and for it alone."""
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # numpy starts a thread a core for what is never done here
    module, _, function = name.partition(":")
    return cast(
        "Command", getattr(importlib.import_module(f"tbupload.commands.{module}"), function)
    )


def _run(command: Command, options: argparse.Namespace) -> int:
    try:
        return command(options)
    except UsageError as error:
        return _report_error(error, EXIT_USAGE)
    except Unreachable as error:
        return _report_error(error, EXIT_TEMPORARY_FAILURE)
    except UploadError as error:
        return _report_error(error, EXIT_FAILED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        discard_stdout()
        return EXIT_FAILED


def _report_error(error: UploadError, code: int) -> int:
    print_message(f"tbupload: {error}")
    return code


def _parser() -> tuple[argparse.ArgumentParser, frozenset[str]]:
    parser = argparse.ArgumentParser(
        prog="tbupload",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, help="show program's version number and exit")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, add_options, command, text in (
        ("upload", _upload_options, "upload:upload", "upload a logdir (the default)"),
        (
            "verify",
            _verify_options,
            "verify:verify",
            "prove that an experiment holds everything that is in a logdir",
        ),
        (
            "export",
            _export_options,
            "export:export",
            "write experiments into files: Parquet, CSV or event files",
        ),
        ("tail", _tail_options, "tail:tail", "print an experiment's new points as they come"),
        (
            "list",
            _list_options,
            "experiments:list_experiments",
            "list your experiments, the newest first",
        ),
        ("show", _id_option, "experiments:show", "show one experiment"),
        (
            "update-metadata",
            _update_options,
            "experiments:update_metadata",
            "change name, description or visibility",
        ),
        ("delete", _delete_options, "experiments:delete", "delete an experiment and all its data"),
        (
            "share",
            _share_options,
            "experiments:share",
            "make a link that opens an experiment, list or revoke its tokens",
        ),
        (
            "login",
            _add_no_options,
            "experiments:login",
            "keep a server's address and a token (read from stdin) for later",
        ),
    ):
        verb = verbs.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog={
                "upload": EXAMPLES,
                "verify": VERIFY_EXAMPLES,
                "export": EXPORT_EXAMPLES,
                "tail": TAIL_EXAMPLES,
            }.get(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_options(verb)
        _common_options(verb)
        verb.set_defaults(command=command)
    return parser, frozenset(verbs.choices)


class _Version(argparse.Action):
    """Prints the version and ends; only then is it looked up, which takes longer than all else that is done here."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Ends the program."""
        from importlib.metadata import version  # noqa: PLC0415 - see above

        print_line(f"tbupload {version('tbhub')}")
        parser.exit()


def _common_options(verb: argparse.ArgumentParser) -> None:
    group = verb.add_argument_group("server and output")
    group.add_argument("--server", metavar="URL", help="the server's address")
    group.add_argument(
        "--cacert",
        metavar="FILE",
        type=Path,
        help="certificate authorities to trust, as a PEM file",
    )
    group.add_argument(
        "--json", action="store_true", help="print JSON on stdout, one object a line"
    )
    loudness = group.add_mutually_exclusive_group()
    loudness.add_argument("--verbose", "-v", action="store_true", help="say more on stderr")
    loudness.add_argument(
        "--quiet", "-q", action="store_true", help="say on stderr only what went wrong"
    )


def _upload_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--logdir",
        metavar="DIR",
        type=Path,
        required=True,
        help="the directory that holds the runs",
    )
    verb.add_argument(
        "--one-shot",
        "--one_shot",
        action="store_true",
        help="end when everything there is committed; follow no files",
    )
    verb.add_argument(
        "--dry-run",
        "--dry_run",
        action="store_true",
        help="read everything, send nothing, say what would be sent",
    )
    verb.add_argument(
        "--experiment",
        metavar="ID",
        help="go on with this experiment, or add to it, from any machine (ID or URL); nothing is sent twice",
    )
    verb.add_argument(
        "--new",
        action="store_true",
        help="make a new experiment, even where this command would go on with one it made before",
    )
    new = verb.add_argument_group("a new experiment")
    new.add_argument("--name", help="its name")
    new.add_argument("--description", help="its description, Markdown")
    new.add_argument(
        "--visibility",
        choices=("private", "link"),
        help="who may read it: you, or all who have the link",
    )
    _series_filter_options(verb, "what is uploaded")
    pace = verb.add_argument_group("pace")
    pace.add_argument(
        "--poll-seconds",
        metavar="N",
        type=_seconds,
        default=5.0,
        help="how often directories are looked at for new runs and files, and quiet files at the latest; "
        "a file that grows is looked at five times a second (default: %(default)s)",
    )
    _retry_timeout_option(pace, None, "300 with --one-shot, for ever without")
    starter = verb.add_argument_group("for programs that start this one")
    starter.add_argument(
        "--wait-for-logdir",
        action="store_true",
        help="a logdir that is not there yet is waited for",
    )
    starter.add_argument(
        "--end-with-stdin",
        action="store_true",
        help="end as at Ctrl-C when stdin ends, anything comes from it, or the program has died",
    )


def _series_filter_options(verb: argparse.ArgumentParser, title: str) -> None:
    choice = verb.add_argument_group(f"{title} (regular expressions have to match a whole name)")
    choice.add_argument(
        "--plugins", metavar="A,B", type=_names, help="only series of these plugins"
    )
    for side in ("runs", "tags"):
        choice.add_argument(
            f"--include-{side}", metavar="REGEX", type=_pattern, help=f"only {side} that match"
        )
        choice.add_argument(
            f"--exclude-{side}", metavar="REGEX", type=_pattern, help=f"no {side} that match"
        )


def _retry_timeout_option(
    verb: argparse.ArgumentParser | argparse._ArgumentGroup, default: float | None, shown: str
) -> None:
    words = f"how long a server that does not answer is tried (default: {shown})"
    verb.add_argument("--give-up-seconds", metavar="N", type=_seconds, default=default, help=words)


def _verify_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--logdir",
        metavar="DIR",
        type=Path,
        required=True,
        help="the directory that holds the runs",
    )
    verb.add_argument(
        "--experiment", metavar="ID", required=True, help="the experiment's id, or its URL"
    )
    verb.add_argument("--strict", action="store_true", help="it must hold nothing besides, either")
    verb.add_argument(
        "--deep", action="store_true", help="read every stored object and compare its SHA-256"
    )
    verb.add_argument(
        "--repair", action="store_true", help="send again what the object store has lost"
    )
    _series_filter_options(verb, "what was uploaded")
    _retry_timeout_option(verb, READ_RETRY_TIMEOUT_SECONDS, "%(default)s")


def _export_options(verb: argparse.ArgumentParser) -> None:
    what = verb.add_mutually_exclusive_group(required=True)
    what.add_argument("--experiment", metavar="ID", help="the experiment's id, or its URL")
    what.add_argument("--all", action="store_true", help="every experiment of the workspace")
    verb.add_argument(
        "--format",
        choices=("parquet", "csv", "events"),
        default="parquet",
        help="default: %(default)s",
    )
    verb.add_argument(
        "--output", metavar="DIR", type=Path, required=True, help="the directory to write to"
    )
    _series_filter_options(verb, "what is exported")
    _retry_timeout_option(verb, READ_RETRY_TIMEOUT_SECONDS, "%(default)s")


def _tail_options(verb: argparse.ArgumentParser) -> None:
    _id_option(verb)
    verb.add_argument(
        "--from-start", action="store_true", help="begin with the points that are there already"
    )
    verb.add_argument(
        "--kind",
        choices=("scalars", "tensors", "blob_sequences"),
        default="scalars",
        help="which data (default: %(default)s)",
    )
    _series_filter_options(verb, "what is printed")
    _retry_timeout_option(verb, None, "for ever")


def _list_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--query", metavar="TEXT", help="only those with this text in their name or description"
    )


def _id_option(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("experiment", metavar="ID", help="the experiment's id, or its URL")


def _update_options(verb: argparse.ArgumentParser) -> None:
    _id_option(verb)
    verb.add_argument("--name", help="the new name")
    verb.add_argument("--description", help="the new description, Markdown")
    verb.add_argument(
        "--visibility",
        choices=("private", "link"),
        help="who may read it: you, or all who have the link",
    )


def _delete_options(verb: argparse.ArgumentParser) -> None:
    _id_option(verb)
    verb.add_argument(
        "--yes",
        "-y",
        action="store_true",
        help="do not ask; needed where there is no terminal to ask on",
    )


def _share_options(verb: argparse.ArgumentParser) -> None:
    _id_option(verb)
    verb.add_argument(
        "--expires",
        metavar="TIME",
        help="when the link ends, as 12h, 30d or 8w from now (default: never)",
    )
    verb.add_argument("--label", help="a word to tell the link by")
    action = verb.add_mutually_exclusive_group()
    action.add_argument("--list", action="store_true", help="list the experiment's tokens instead")
    action.add_argument("--revoke", metavar="TOKEN_ID", help="make a token worthless instead")


def _add_no_options(_verb: argparse.ArgumentParser) -> None:
    pass


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above zero")
    return seconds
