"""`tbservice` with limits so short that a few hostile clients reach them."""

from __future__ import annotations

import sys

from tbservice import limits

# Before anything else is imported: some modules derive their own figures.
limits.REQUEST_HEADER_SECONDS_MAX = 5
limits.CONNECTIONS_ITEMS_MAX = 40
limits.RESPONSE_STALL_SECONDS_MAX = 4  # meanwhile other answers are made, and refused
limits.CALLER_UNSENT_RESPONSE_BYTES_MAX = 4 * limits.MIB
limits.CALLER_REQUEST_BODIES_BYTES_MAX = 2 * limits.MIB
limits.QUEUE_WAIT_SECONDS_MAX = 0.5
limits.REFUSAL_SECONDS = 0.1
limits.PACE_WAIT_SECONDS_MAX = 0.5

if __name__ == "__main__":
    from tbservice.cli import main

    sys.exit(main(["serve"]))
