"""Accept uploaded batches: the whole use case, behind which every transport is an adapter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from tbservice import limits, metrics
from tbservice.ingest import blobs, commit, decode
from tbservice.ingest.commit import Outcome
from tbservice.ingest.decode import Segment
from tbservice.reading import tensor_objects
from tbservice.scalars.compactor import Compactor
from tbservice.store.objects import ObjectStore
from tbservice.store.pg.database import Database
from tbservice.types import AppendGrant

HoldDecoding = Callable[[int], AbstractContextManager[None]]
"""Holds the caller's share of memory while a batch of so many bytes is decoded. Raises TooManyRequests."""


@dataclass(frozen=True, slots=True)
class Ingest:
    """Decode a batch, store its objects, commit its points, and queue what is to be compacted."""

    database: Database
    objects: ObjectStore
    compactor: Compactor

    def accept(self, grant: AppendGrant, content: bytes, hold_decoding: HoldDecoding) -> Outcome:
        """Commit a serialized WriteBatch whole, or nothing of it. Repeating it changes nothing.

        Args:
            grant: The right to append to the experiment.
            content: The batch, decompressed, at most `batch_bytes_max` bytes.
            hold_decoding: Called for batches of `decoding_turn_bytes_min` bytes or more.

        Raises:
            Malformed, Invalid, TooLarge: The batch is wrong; sending it again is useless.
            CursorConflict: A segment is not the next of its stream; the error carries the server's cursor.
            Conflict: `metadata_missing` or `blob_missing`; send the segment with it.
            NotFound: The experiment is gone.
            Unavailable, TooManyRequests: Nothing was stored; send the same batch again.
        """
        segments = _decode(content, hold_decoding)
        with metrics.timed_part("blobs"):
            blobs.keep_inline(self.database, self.objects, grant, segments)
            tensor_objects.check_tables(self.database, self.objects, grant, segments)
        with metrics.timed_part("transaction"), self.database.transaction(grant.workspace_id) as db:
            outcome = commit.write_batch(db, grant, segments)
        counts = outcome.counts
        metrics.note_batch(len(segments), outcome.fresh_segments, counts.scalars, counts.tensors, counts.blobs)
        self.compactor.notice(grant, outcome.pending)
        return outcome


def _decode(content: bytes, hold_decoding: HoldDecoding) -> list[Segment]:
    with ExitStack() as held:
        with metrics.timed_part("turn"):
            if len(content) >= limits.decoding_turn_bytes_min:  # may take some 100 MB before it can be refused
                held.enter_context(hold_decoding(len(content)))
        with metrics.timed_part("decode"):
            return decode.decode(content)
