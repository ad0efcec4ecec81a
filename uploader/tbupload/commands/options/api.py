"""Options of `tbupload api`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tbupload.commands.find_command import METHODS

EPILOG: Final = """\
examples:
  tbupload api me
  tbupload api '/experiments?q=baseline&limit=20'
  tbupload api /experiments/ID/scalars/data --input query.json
  tbupload api -X PATCH /experiments/ID --input - <<< '{"tags": ["baseline"]}'
  tbupload api -X DELETE /experiments/ID

PATH is relative to /api/v1; TBHUB_SERVER/api/v1/docs describes them. The body of the answer goes to
stdout as it is. The token in use is sent with the request; it is in no argument and in no output.

exit codes: 0 the server has answered with 2xx; 1 it has refused (another 4xx); 2 wrong usage; 75 it
cannot be reached, or answers with 429 or 5xx, also after repeated requests.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload api`."""
    command.add_argument("path", metavar="PATH", help="the path, and the query if there is one")
    command.add_argument(
        "--method",
        "-X",
        metavar="METHOD",
        type=str.upper,
        choices=METHODS,
        help="the HTTP method (default: GET, or POST with --input)",
    )
    command.add_argument(
        "--input", metavar="FILE", type=Path, help="send this JSON file, - for stdin, as the body"
    )
