"""What `tbupload` tells the program that started it; 0 means that everything is committed."""

from __future__ import annotations

from typing import Final

EXIT_FAILED: Final = 1
"""It failed for good, or something was skipped."""

EXIT_USAGE: Final = 2

EXIT_TEMPORARY_FAILURE: Final = 75
"""EX_TEMPFAIL of sysexits.h: try again later, nothing is lost."""

EXIT_INTERRUPTED: Final = 130
"""What shells report for a program that Ctrl-C ended."""
