"""`tbservice` that searches several times per second for what another host has left uncompacted."""

from __future__ import annotations

import sys

from tbservice import limits

limits.COMPACTION_SEARCH_INTERVAL_SECONDS = 0.3

if __name__ == "__main__":
    from tbservice.cli import main

    sys.exit(main(["serve"]))
