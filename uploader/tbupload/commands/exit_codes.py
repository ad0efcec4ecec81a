"""Exit codes of `tbupload`; 0 means that everything is committed."""

from __future__ import annotations

from typing import Final

EXIT_FAILED: Final = 1
"""A permanent failure, or something was skipped."""

EXIT_USAGE: Final = 2
"""Wrong usage, as argparse reports it."""

EXIT_TEMPORARY_FAILURE: Final = 75
"""EX_TEMPFAIL of sysexits.h: the same command may be run again later; nothing is lost."""

EXIT_INTERRUPTED: Final = 130
"""128 + SIGINT: the exit status that shells report for a program stopped by Ctrl-C."""
