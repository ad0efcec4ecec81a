"""The shares of one worker process."""

from __future__ import annotations

from typing import Final

from tbservice import limits
from tbservice.admission.contention import Activity, BodyRate
from tbservice.admission.fair_queue import FairQueue
from tbservice.admission.shares import Shares
from tbservice.admission.turns import Turns

LIVE_STREAMS_MAX: Final = 1_000
"""Live tails (event streams) that one worker serves at once."""

FULL_SCAN_STREAMS_MAX: Final = 8
"""Streams at full resolution or of samples over `SCAN_CHUNK_BYTES` that a worker sends at once."""

RESERVED_CONNECTIONS_ITEMS: Final = 2
"""Database connections (items) of a worker's pool reserved for look-ups and compaction."""

CALLER_REQUESTS_ITEMS_MAX: Final = 2
"""Requests (items) of one account processed at once by a worker; half per anonymous address."""

REQUEST_BODIES_BYTES_MAX: Final = 128 * limits.MIB
"""Bytes of incomplete request bodies that one worker holds at once."""

DECODING_BYTES_MAX: Final = 32 * limits.MIB
"""Bytes of decompressed batches that one worker decodes at once; of one caller, one full batch."""

UNSENT_RESPONSE_BYTES_MAX: Final = 256 * limits.MIB
"""Bytes of unsent responses in one worker; further requests are refused with 429."""

CALLER_FULL_SCAN_STREAMS_MAX: Final = 4
"""Streams at full resolution sent at once to one account; one per anonymous address."""

CALLER_LIVE_STREAMS_MAX: Final = 500
"""Live tails (streams) of one account in one worker; a quarter of it per anonymous address."""


class WorkerShares:
    """Everything that callers share in one worker process."""

    def __init__(self, database_pool_size: int) -> None:
        """Reserve some database connections for token lookups, live tails and compaction."""
        requests_max = max(1, database_pool_size - RESERVED_CONNECTIONS_ITEMS)
        self.activity = Activity()
        self.body_rate = BodyRate(self.activity)
        self.turns = Turns(
            requests_max, min(requests_max, CALLER_REQUESTS_ITEMS_MAX), self.activity
        )

        self.body_bytes = FairQueue(
            "bytes of request bodies",
            REQUEST_BODIES_BYTES_MAX,
            limits.CALLER_REQUEST_BODIES_BYTES_MAX,
        )
        self.decoded_bytes = FairQueue(
            "bytes of batches being decoded", DECODING_BYTES_MAX, limits.BATCH_BYTES_MAX
        )
        self.unread_bytes = Shares(
            "bytes of unread answers",
            UNSENT_RESPONSE_BYTES_MAX,
            limits.CALLER_UNSENT_RESPONSE_BYTES_MAX,
        )

        self.streams = FairQueue(
            "streams at full resolution",
            FULL_SCAN_STREAMS_MAX,
            CALLER_FULL_SCAN_STREAMS_MAX,
        )
        self.tails = Shares("live tails", LIVE_STREAMS_MAX, CALLER_LIVE_STREAMS_MAX)
