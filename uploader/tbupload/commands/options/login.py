"""Options of `tbupload login`, `logout` and `whoami`."""

from __future__ import annotations

import argparse
from typing import Final

EPILOG: Final = """\
examples:
  tbupload login --server https://tbhub.example.org          approve in a browser, on any machine
  tbupload login --server https://HOST --profile work        beside the default one
  tbupload login --server https://HOST < token.txt           store a token that you have
  tbupload --profile work --logdir runs/                     upload with that profile

`login` shows a code and an address. Open the address in any browser, also on another machine, sign
in there, type the code, and choose the workspace and what the token may do. The token is stored in
the config file, readable by you alone. In CI and in jobs, set TBHUB_SERVER and TBHUB_TOKEN instead.

`logout` removes the token from the config file; one that `login` made through a browser is revoked.
"""


def add_login_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload login`."""
    way = command.add_mutually_exclusive_group()
    way.add_argument(
        "--with-token",
        action="store_true",
        help="read a token from the terminal or from stdin instead (stdin is the default without a "
        "terminal)",
    )
    way.add_argument(
        "--web", action="store_true", help="log in through a browser, also without a terminal"
    )


def add_logout_options(_command: argparse.ArgumentParser) -> None:
    """Add nothing: `tbupload logout` has only the options that every command has."""


def add_whoami_options(_command: argparse.ArgumentParser) -> None:
    """Add nothing: `tbupload whoami` has only the options that every command has."""
