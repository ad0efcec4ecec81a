"""Accept batches and sessions, and list how far uploads came; transports only adapt it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from sqlalchemy import Connection

from tbservice import limits, metrics
from tbservice.db.database import Database
from tbservice.ingest import blobs, commit, decode, sessions, string_lengths
from tbservice.ingest.batch import Segment
from tbservice.ingest.commit import CommitResult
from tbservice.ingest.door import Door
from tbservice.ingest.session_records import SessionFields
from tbservice.objects.object_store import ObjectStore
from tbservice.pagination import cut_page, decode_digest_token, encode_digest_token
from tbservice.series.tables import upload_streams
from tbservice.types.grants import AppendGrant
from tbservice.types.series import Cursor

HoldDecoding = Callable[[int], AbstractContextManager[None]]
"""Reserves memory for decoding a batch of this many bytes. Raises TooManyRequests."""


@dataclass(frozen=True, slots=True)
class Ingest:
    """Decode a batch, store its objects, and commit its points; set sessions."""

    objects: ObjectStore
    door: Door

    @property
    def database(self) -> Database:
        """The database that the door opens."""
        return self.door.database

    def accept(
        self, grant: AppendGrant, content: bytes, hold_decoding: HoldDecoding
    ) -> CommitResult:
        """Commit a serialized WriteBatch atomically. Repeating it changes nothing.

        Args:
            grant: The right to append to the experiment.
            content: The batch, decompressed, at most `BATCH_BYTES_MAX` bytes.
            hold_decoding: Called for batches of `QUEUED_DECODING_BYTES_MIN` bytes or more.

        Raises:
            MalformedRequest, Invalid, TooLarge: The batch is not valid; a retry does not help.
            CursorConflict: A segment does not start at its stream's cursor; the error has it.
            Conflict: `metadata_missing` or `blob_missing`; send the segment with it.
            NotFound: The experiment was deleted.
            QuotaExceeded: The workspace has no room; after a deletion, send the same batch again.
            Unavailable, TooManyRequests: Nothing was stored; send the same batch again.
        """
        segments = _decode(content, hold_decoding)

        with metrics.time_batch_phase("blobs"):
            # Before the transaction: S3 may take seconds, in which locks and a connection would be
            # held.
            blobs.store_inline(self.database, self.objects, grant, segments)
            string_lengths.check_string_lengths(self.database, self.objects, grant, segments)
        with metrics.time_batch_phase("transaction"), self.door.transaction(grant) as writer:
            result = commit.write_batch(writer, grant, segments)
        metrics.observe_batch(len(segments), result.new_segments)
        return result

    def set_session(
        self,
        grant: AppendGrant,
        run: str,
        fields: SessionFields,
        *,
        only_if_absent: bool = False,
    ) -> bool:
        """Set hyperparameters and status of a run's session; return whether that changed anything.

        Arguments and errors are those of `sessions.write_session`, and Unavailable.
        """
        with self.door.transaction(grant) as writer:
            return sessions.write_session(
                writer, grant, run, fields, time.time(), only_if_absent=only_if_absent
            )


def _decode(content: bytes, hold_decoding: HoldDecoding) -> list[Segment]:
    with ExitStack() as reservation:
        with metrics.time_batch_phase("turn"):
            # Decoding a large body may need 100 MB before it can be rejected.
            if len(content) >= limits.QUEUED_DECODING_BYTES_MIN:
                reservation.enter_context(hold_decoding(len(content)))
        with metrics.time_batch_phase("decode"):
            return decode.decode_batch(content)


def list_cursors(
    db: Connection, grant: AppendGrant, after: str, limit: int
) -> tuple[list[Cursor], str | None]:
    """Return a page of cursors and the page token of the next one, if any.

    Raises MalformedRequest if `after` is not a page token.
    """
    digest_before = decode_digest_token(after)
    rows = upload_streams.list_cursors(db, grant.experiment_id, digest_before, limit + 1)
    page, following = cut_page(rows, limit, lambda last: encode_digest_token(last[0]))
    return [cursor for _, cursor in page], following
