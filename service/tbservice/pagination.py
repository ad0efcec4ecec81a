"""Page tokens of listings with the newest first: the `next` of a page, which is the `after` of the following one."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime

from tbservice.errors import MalformedRequest


def encode_page_token(created_at: datetime, item_id: str) -> str:
    """Return the page token that stands behind this item."""
    return base64.urlsafe_b64encode(f"{created_at.isoformat()} {item_id}".encode()).decode()


def decode_page_token(after: str) -> tuple[datetime, str]:
    """Return the time and the id of the item before the page. Raises MalformedRequest for what is no page token."""
    try:
        created_at, item_id = base64.urlsafe_b64decode(after).decode().split(" ")
        return datetime.fromisoformat(created_at), item_id
    except (binascii.Error, ValueError) as error:
        raise MalformedRequest("'after' is not the 'next' of an earlier page") from error
