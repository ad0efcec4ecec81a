"""How far each stream of an experiment has been committed."""

from __future__ import annotations

import binascii

from sqlalchemy import Connection

from tbservice.errors import MalformedRequest
from tbservice.store import upload_streams
from tbservice.types import AppendGrant, Cursor


def list_cursors(
    db: Connection, grant: AppendGrant, after: str, limit: int
) -> tuple[list[Cursor], str | None]:
    """A page of cursors and where the next begins, None at the end. Raises MalformedRequest for a place that is none."""
    try:
        place = binascii.unhexlify(after)
    except (binascii.Error, ValueError) as error:
        raise MalformedRequest("'after' is not the 'next' of an earlier page") from error
    found = upload_streams.list_cursors(db, grant.experiment_id, place, limit + 1)
    page = found[:limit]
    return [cursor for _, cursor in page], page[-1][0].hex() if len(found) > limit else None
