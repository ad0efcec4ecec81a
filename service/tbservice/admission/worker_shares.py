"""The shares of one worker process."""

from __future__ import annotations

from tbservice import limits
from tbservice.admission.contention import Activity, BodyRate
from tbservice.admission.fair_queue import FairQueue
from tbservice.admission.shares import Shares
from tbservice.admission.turns import Turns


class WorkerShares:
    """Everything that callers share in one worker process."""

    def __init__(self, database_pool_size: int) -> None:
        """Reserve some database connections for token lookups, live tails and compaction."""
        requests_max = max(1, database_pool_size - limits.RESERVED_CONNECTIONS_ITEMS)
        self.activity = Activity()
        self.body_rate = BodyRate(self.activity)
        self.turns = Turns(
            requests_max, min(requests_max, limits.CALLER_REQUESTS_ITEMS_MAX), self.activity
        )

        self.body_bytes = FairQueue(
            "bytes of request bodies",
            limits.REQUEST_BODIES_BYTES_MAX,
            limits.CALLER_REQUEST_BODIES_BYTES_MAX,
        )
        self.decoded_bytes = FairQueue(
            "bytes of batches being decoded", limits.DECODING_BYTES_MAX, limits.BATCH_BYTES_MAX
        )
        self.unread_bytes = Shares(
            "bytes of unread answers",
            limits.UNSENT_RESPONSE_BYTES_MAX,
            limits.CALLER_UNSENT_RESPONSE_BYTES_MAX,
        )

        self.streams = FairQueue(
            "streams at full resolution",
            limits.FULL_SCAN_STREAMS_MAX,
            limits.CALLER_FULL_SCAN_STREAMS_MAX,
        )
        self.tails = Shares("live tails", limits.LIVE_STREAMS_MAX, limits.CALLER_LIVE_STREAMS_MAX)
