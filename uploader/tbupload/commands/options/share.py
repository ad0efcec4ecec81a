"""Options of `tbupload share`."""

from __future__ import annotations

import argparse
from typing import Final

EPILOG: Final = """\
tbupload share ID                        make a link, and print it
tbupload share list ID                   list the links, with their last use
tbupload share rename ID LINK_ID LABEL   change the label of a link
tbupload share revoke ID LINK_ID         end a link; a frozen one is deleted with its data

ID is an experiment's ID or its URL. A pattern is an RE2 regular expression that must match the
complete name. A link with patterns also shows what is uploaded later and matches.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload share`."""
    command.add_argument(
        "words", nargs="+", metavar="ID", help="an experiment, or an action and what it takes"
    )
    command.add_argument(
        "--expires",
        metavar="TIME",
        help="when the link expires: 12h, 30d or 8w from now, at most 36500d (default: never)",
    )
    command.add_argument("--label", help="a label to recognize the link by")
    command.add_argument("--runs", metavar="PATTERN", help="show only runs that match this")
    command.add_argument("--tags", metavar="PATTERN", help="show only tags that match this")
    command.add_argument(
        "--anonymous", action="store_true", help="hide who uploaded it, and where it came from"
    )
    command.add_argument(
        "--frozen", action="store_true", help="show the data of now, also when they change"
    )
    action = command.add_mutually_exclusive_group()
    action.add_argument(
        "--list", action="store_true", help="list the links and the experiment's tokens instead"
    )
    action.add_argument("--revoke", metavar="LINK_ID", help="revoke a link or a token instead")
