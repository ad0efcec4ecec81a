"""Options of `tbupload token`."""

from __future__ import annotations

import argparse
from typing import Final

from tbupload.commands.options.shared import number_parser

EPILOG: Final = """\
examples:
  tbupload token create --scopes append --label "ci" --expires 90d
  tbupload token create --scopes append --workspace 3 --label "cluster"
  tbupload token list
  tbupload token revoke TOKEN_ID
  TBHUB_TOKEN=$(tbupload token print)              for curl; `tbupload api` needs no token

A token acts for you, with at most your rights in its workspace, and ends when you leave it. With
--workspace it is the workspace's own, for machines that go on when people leave; owners manage
these. The scopes: `append` creates experiments and uploads, `read` lists and reads, `admin` also
changes, shares and deletes. The secret is printed once, on stdout.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload token`."""
    command.add_argument(
        "action",
        choices=("create", "list", "revoke", "print"),
        help="what to do; print prints the token in use",
    )
    command.add_argument(
        "token_id", metavar="TOKEN_ID", nargs="?", help="the token to revoke (see `token list`)"
    )
    command.add_argument(
        "--workspace",
        metavar="ID",
        type=number_parser("the number of a workspace"),
        help="the workspace whose own tokens are meant, instead of yours",
    )
    group = command.add_argument_group("a token to create")
    group.add_argument(
        "--scopes",
        metavar="A,B",
        type=_parse_scopes,
        default=["append", "read"],
        help="append, read, admin (default: append,read)",
    )
    group.add_argument("--label", help="a label to recognize it by")
    group.add_argument(
        "--expires",
        metavar="TIME",
        help="when it expires: 12h, 30d or 8w from now, at most 36500d (default: never)",
    )


def _parse_scopes(text: str) -> list[str]:
    scopes = [scope.strip() for scope in text.split(",") if scope.strip()]
    unknown = sorted(set(scopes) - {"append", "read", "admin"})
    if unknown or not scopes:
        raise argparse.ArgumentTypeError(f"{text!r}: give one or more of append, read, admin")
    return scopes
