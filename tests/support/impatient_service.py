"""`tbservice` with so short limits that a few hostile clients use them up."""

from __future__ import annotations

import sys

from tbservice import limits

# Before anything else is imported: some modules derive their own figures.
limits.header_seconds_max = 2
limits.connections_items_max = 40
limits.answer_stall_seconds_max = 1
limits.caller_unread_bytes_max = 4 * limits.MIB
limits.caller_bodies_bytes_max = 2 * limits.MIB
limits.turn_wait_seconds_max = 0.5

if __name__ == "__main__":
    from tbservice.cli import main

    sys.exit(main(["serve"]))
