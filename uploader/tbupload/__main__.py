"""Entry point of `tbupload` and `python -m tbupload`: Ctrl-C prints no traceback, from here on."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; return its exit code."""
    try:
        from tbupload.cli import main as run  # noqa: PLC0415 - may be interrupted as well

        return run()
    except KeyboardInterrupt:
        return 130  # as EXIT_INTERRUPTED, which may not be imported yet


if __name__ == "__main__":
    sys.exit(main())
