"""Options of `tbupload move`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tbupload.commands.options.shared import add_retry_timeout

EPILOG: Final = """\
examples:
  tbupload login --server https://HOST --profile archive   once: choose the other workspace there
  tbupload move ID --to archive                            to the workspace of that profile
  tbupload move ID ID --to "Vision lab"                    by name or id of a profile
  tbupload move ID --to archive --dry-run                  what would be moved, and whether it fits

An experiment is moved as a copy, through files on this machine: all points and blobs are exported,
uploaded, and each series of the two is compared by its SHA-256. Name, description, tags, notes,
properties, runs' tags, the records of its uploads and whether it is archived go with it. Only if
all that is equal, the old one is put into the trash: `tbupload restore ID` takes it back for seven
days. An experiment that is being uploaded to is not moved, and one with earlier attempts of
restarted runs only with --keep: a copy has none.

The copy has another address and is private. Links, tokens, stars and saved views stay with the old
one. Run the same command again to resume a move that was interrupted.

exit codes: 0 moved; 1 failed; 2 wrong usage; 75 server unavailable, or the other workspace has no
room: run the same command again later, nothing is lost.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of a move."""
    command.add_argument(
        "experiments",
        metavar="ID",
        nargs="+",
        help="the experiment's ID, the first characters of it, or its URL",
    )
    command.add_argument(
        "--to",
        metavar="WORKSPACE",
        required=True,
        help="the other workspace: a profile of the config file, or name or id of a workspace that "
        "one of the profiles is for",
    )
    command.add_argument(
        "--dry-run", action="store_true", help="say what would be moved, and move nothing"
    )
    command.add_argument(
        "--keep", action="store_true", help="copy, compare, and keep the old one as well"
    )
    command.add_argument(
        "--work-dir",
        metavar="DIR",
        type=Path,
        help="where the files are kept meanwhile (default: tbhub/moves in XDG_CACHE_HOME, by "
        "default ~/.cache); they need about the size of the experiment",
    )
    add_retry_timeout(command, 300.0, "300")
