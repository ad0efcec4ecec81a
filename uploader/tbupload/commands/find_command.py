"""Find the command among the arguments: options may come before it, a directory means `upload`."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from tbupload.console.output import print_message
from tbupload.errors import UsageError

DEFAULT_COMMAND: Final = "upload"

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
"""The HTTP methods of `tbupload api`."""

_PARSER_OPTIONS: Final = frozenset({"-h", "--help", "--version"})
"""Options of `tbupload` itself, which stay in front."""

_FLAGS: Final = frozenset({"--json", "--verbose", "-v", "--quiet", "-q"})
_VALUED: Final = frozenset({"--server", "--profile", "--cacert"})
"""The options that every command has, as `add_common_options` adds them."""

_RUNS: Final = (
    "--where --sort --columns --limit --csv --format --group-by --run-pattern --list-columns "
    "--workspace --remove-tag --delete"
)
_OPTIONS_OF: Final = {
    "runs": frozenset(["-h", "--help", *_RUNS.split()]),
    "run": frozenset(["-h", "--help", "--", "--console", "--end-seconds"]),
}
"""Arguments that mean this command where there is a directory of its name, too: most log
directories are called `runs`, and `tbupload runs` uploads it.
"""

_INSTEAD: Final = {
    "runs": "the table of runs, where there is such a directory: tbupload runs --limit 100",
    "run": "to run a command: tbupload run -- COMMAND",
}
"""Advice on the command of this name, of `_OPTIONS_OF`."""

_SIMILARITY_MIN: Final = 0.66
"""Share of equal characters from which a name is suggested: `ls` is like `list`."""

_SYNONYMS: Final = {
    "ls": "list",
    "search": "list --query WORDS",
    "find": "list --query WORDS",
    "info": "show",
    "get": "show",
    "describe": "show",
    "mv": "move",
    "rm": "delete",
    "remove": "delete",
    "undelete": "restore",
    "edit": "update-metadata",
    "update": "update-metadata",
    "rename": "update-metadata",
    "tag": "update-metadata",
    "view": "open",
    "browse": "open",
    "download": "export",
    "pull": "export",
    "push": "upload",
    "sync": "upload",
    "exec": "run",
    "new": "create",
    "follow": "tail",
    "watch": "tail",
    "link": "share",
    "revoke": "share revoke",
    "tokens": "token",
    "signin": "login",
    "auth": "login",
    "check": "verify",
    "compare": "verify",
}
"""Names of our commands in other programs."""


def order_arguments(arguments: Sequence[str], commands: Collection[str]) -> list[str]:
    """Return the arguments with the command first, which may be missing or come after options.

    `help COMMAND` becomes `COMMAND --help`. Without a command, it is `upload`.

    Raises:
        UsageError: The first word is neither a command nor a directory.
    """
    arguments = list(arguments)
    if not arguments or arguments[0] in _PARSER_OPTIONS:
        return arguments
    if arguments[0] == "help":
        return [*(name for name in arguments[1:2] if name in commands), "--help"]

    position = skip_common_options(arguments)
    word = arguments[position] if position < len(arguments) else "-"
    if word in commands and not _is_directory(word, arguments[position + 1 :]):
        return [word, *arguments[:position], *arguments[position + 1 :]]
    if word in commands:
        _say_upload(word, arguments)
    elif not word.startswith("-"):
        _check_directory(word, commands)
    return [DEFAULT_COMMAND, *arguments]


def explain_unrecognized(
    unrecognized: Sequence[str],
    known: Collection[str],
    arguments: Sequence[str],
    commands: Collection[str],
) -> str:
    """Return the text of the error about arguments that a command does not take.

    Args:
        unrecognized: The unrecognized arguments.
        known: The options that the command has.
        arguments: All arguments, in the order of the command line.
        commands: The names of the commands.
    """
    text = f"unrecognized arguments: {' '.join(map(shorten, unrecognized))}"
    options = [each.partition("=")[0] for each in unrecognized if each.startswith("--")]
    meant = [name for option in options if (name := suggest(option, known))]
    if meant:
        return f"{text} (did you mean {', '.join(meant)}?)"
    if arguments[:1] == ["run"] and "--" not in arguments:
        return f"{text} (put -- before the command: tbupload run [options] -- python train.py)"
    methods = [word.upper() for word in arguments if word.upper() in METHODS]
    if methods and "api" in arguments:
        return f"{text} (the method is an option: tbupload api -X {methods[0]} PATH)"
    words = [word for word in arguments[1:] if word in commands]
    if words and arguments[0].startswith("-"):
        return f"{text} (the command comes first: tbupload {words[0]} ...)"
    return text


def suggest(word: str, names: Collection[str]) -> str | None:
    """Return the name that was probably meant by a word; None if there is none like it."""
    folded = word.casefold()
    similar = difflib.get_close_matches(folded, names, n=1, cutoff=_SIMILARITY_MIN)
    return similar[0] if similar else None


def skip_common_options(arguments: Sequence[str]) -> int:
    """Return the index of the first argument that no option of every command takes."""
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        if argument in _VALUED:
            position += 2
        elif argument in _FLAGS or argument.partition("=")[0] in _VALUED:
            position += 1
        else:
            return position
    return position


def split_at_dashes(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments before and behind the first `--`, which is in neither."""
    arguments = list(arguments)
    position = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:position], arguments[position + 1 :]


def _is_directory(word: str, following: Sequence[str]) -> bool:
    """Return whether a word that may be a command or a directory is the directory."""
    options = {argument.partition("=")[0] for argument in following}
    return word in _OPTIONS_OF and Path(word).is_dir() and not options & _OPTIONS_OF[word]


def _say_upload(word: str, arguments: Sequence[str]) -> None:
    """Say that a directory is uploaded which has the name of a command."""
    if not {"-q", "--quiet"} & {*arguments}:
        print_message(f"uploading the directory {word}/ ({_INSTEAD[word]})")


def _check_directory(word: str, commands: Collection[str]) -> None:
    """Raise UsageError unless the word names a directory, or something that only a path can be."""
    from tbupload.remote_files import is_remote  # noqa: PLC0415 - most commands do without it

    if is_remote(word):
        return
    path = Path(word).expanduser()
    try:
        # A file, and a path that does not exist, are explained by the check of the directory.
        if path.exists() or "/" in word:
            return
    except (OSError, ValueError):  # a name that no file can have
        pass
    meant = _SYNONYMS.get(word.casefold()) or suggest(word, commands)
    advice = (
        f"did you mean `tbupload {meant}`?" if meant else "`tbupload --help` lists the commands"
    )
    raise UsageError(
        f"{shorten(word)!r} is neither a command nor a directory here: {advice} "
        "(To upload a directory: tbupload DIR)"
    )


def shorten(text: str, chars_max: int = 80) -> str:
    """Return the text, or its beginning and an ellipsis."""
    return text if len(text) <= chars_max else f"{text[:chars_max]}…"
