"""`tbservice` with limits so small that a small logdir takes a dozen batches, and its series many merges."""

from __future__ import annotations

import sys

from tbservice import limits
from tbservice.errors import Unavailable

# Before anything else is imported: some modules derive their own figures. A worker process imports this file as well.
limits.batch_bytes_max = 3 * limits.KIB
limits.blob_inline_bytes_max = 1 * limits.KIB
limits.block_points = limits.packed_points_max = 32
limits.packed_points_min = limits.sealed_points_min = 16
limits.tail_rows_max = 3
limits.tail_row_points_min = 2
limits.tail_points_max = 48
Unavailable.retry_after_seconds = 0  # whoever tries hundreds of faults does not wait two seconds after each

if __name__ == "__main__":
    from tbservice.cli import main

    sys.exit(main(["serve"]))
