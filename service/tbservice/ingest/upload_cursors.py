"""List the committed offset of each stream of an experiment."""

from __future__ import annotations

import binascii

from sqlalchemy import Connection

from tbservice.errors import MalformedRequest
from tbservice.store import upload_streams
from tbservice.types import AppendGrant, Cursor


def list_cursors(
    db: Connection, grant: AppendGrant, after: str, limit: int
) -> tuple[list[Cursor], str | None]:
    """Return a page of cursors and the page token of the next one, if any.

    Raises MalformedRequest if `after` is not a page token.
    """
    try:
        digest_before = binascii.unhexlify(after)
    except (binascii.Error, ValueError) as error:
        raise MalformedRequest("'after' is not the 'next' of an earlier page") from error

    rows = upload_streams.list_cursors(db, grant.experiment_id, digest_before, limit + 1)
    page = rows[:limit]
    return [cursor for _, cursor in page], page[-1][0].hex() if len(rows) > limit else None
