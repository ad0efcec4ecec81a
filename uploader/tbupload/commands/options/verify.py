"""Options of `tbupload verify`."""

from __future__ import annotations

import argparse
from typing import Final

from tbupload.commands.options.shared import (
    READ_RETRY_TIMEOUT_SECONDS,
    add_logdir,
    add_retry_timeout,
    add_series_filter,
)

EPILOG: Final = """\
examples:
  tbupload verify --logdir runs/ --experiment ID            compare every point of these files
  tbupload verify --logdir runs/ --experiment ID --strict   and fail on data that is not in them
  tbupload verify --logdir runs/ --experiment ID --deep     and read every stored object
  tbupload verify --logdir runs/ --experiment ID --repair   send again what the object store lost
  tbupload verify --logdir runs/ --experiment ID --json     one object per series, then the result

Reads the files again and compares each series' number of points and SHA-256 digest with those of
the stored points. If they differ, lists the steps that are missing, different or extra. Use the
same filters as for the upload. Points of large runs go to a temporary file (in TMPDIR) meanwhile.

Images, audio and graphs are objects in the server's object store: verify also checks that each
exists with its size. With --deep the server reads them all and compares their SHA-256. --repair
sends missing or damaged objects again from these files and verifies once more; it needs a token
with the scope append.

For the Embedding Projector, the bytes of tensors, metadata, sprites and bookmarks are compared, but
not their wall time, which is the time of the upload.

A file that is still being written is compared up to its last complete record. Data that only the
experiment contains (from deleted or rotated files, or from other machines) is reported; it is an
error only with --strict.

exit codes: 0 everything matches; 1 something is missing, differs, or cannot be uploaded; 2 wrong
usage; 75 server unavailable: try again later.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of a verification."""
    add_logdir(command, is_required=True)
    command.add_argument(
        "--experiment", metavar="ID", required=True, help="the experiment's ID or URL"
    )
    command.add_argument(
        "--strict", action="store_true", help="fail if the experiment contains anything else"
    )
    command.add_argument(
        "--deep", action="store_true", help="read every stored object and compare its SHA-256"
    )
    command.add_argument(
        "--repair", action="store_true", help="send again the objects that the server has lost"
    )
    add_series_filter(command, "to verify")
    add_retry_timeout(command, None, f"{READ_RETRY_TIMEOUT_SECONDS:g}")
