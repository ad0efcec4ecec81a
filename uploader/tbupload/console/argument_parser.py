"""An argument parser whose output is safe on terminals, and whose reader may go away."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from tbupload.console.output import discard_stdout
from tbupload.console.terminal import write_line


class ConsoleParser(argparse.ArgumentParser):
    """Prints help and errors like any output of ours: control characters are escaped."""

    @property
    def option_strings(self) -> list[str]:
        """Return the names of the options, such as `--logdir`."""
        return list(self._option_string_actions)

    @property
    def destinations(self) -> list[str]:
        """Return the names under which the arguments are stored, in the order of the help."""
        return [action.dest for action in self._actions]

    def error(self, message: str) -> NoReturn:
        """Print the error on stderr, without all of the options, and exit with 2."""
        self.exit(2, f"{self.prog}: {message}\n(`{self.prog} --help` lists what it takes)\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        if not message or file is None:
            return
        try:
            for line in message.rstrip("\n").split("\n"):
                write_line(file, line)
        except OSError:  # no reader, or a full disk
            if file is sys.stdout:
                discard_stdout()


def add_parser(commands: Any, name: str, **options: Any) -> ConsoleParser:
    """Add the parser of a command to the action that `add_subparsers` returned."""
    parser = commands.add_parser(name, **options)
    assert isinstance(parser, ConsoleParser)  # noqa: S101 - argparse makes those of the parent's class
    return parser
