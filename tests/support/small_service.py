"""`tbservice` with limits so small that a small log directory takes a dozen batches, and its series
many compactions. `support.zygote` imports this, and forks them.
"""

from __future__ import annotations

from tbservice import limits
from tbservice.errors import Unavailable

# Before anything else is imported: some modules derive their own figures.
limits.BATCH_BYTES_MAX = 3 * limits.KIB
limits.BLOB_INLINE_BYTES_MAX = 1 * limits.KIB
limits.BLOCK_POINTS_MAX = limits.PACKED_POINTS_MAX = 32
limits.PACKED_POINTS_MIN = limits.SEALED_POINTS_MIN = 16
limits.WRITE_BUFFER_ROWS_MAX = 3
limits.WRITE_BUFFER_ROW_POINTS_MIN = 2
limits.WRITE_BUFFER_POINTS_MAX = 48
Unavailable.retry_after_seconds = 0  # hundreds of faults are tried, without two seconds after each
