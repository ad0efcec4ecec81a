"""Options of `tbupload completion`."""

from __future__ import annotations

import argparse
from typing import Final

from tbwire import completion

EPILOG: Final = completion.EPILOG.replace("PROGRAM", "tbupload")


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload completion`."""
    command.add_argument("shell", choices=completion.SHELLS, help="the shell")
