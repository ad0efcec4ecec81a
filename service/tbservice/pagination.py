"""Page tokens: the `next` of a page, which a client passes as `after` to get the following page.

A token encodes the position of the page's last item in the order of the list. It is data, not
a credential: it is applied under the caller's own grant.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from tbservice.errors import MalformedRequest
from tbservice.experiment_values import ExperimentOrder, UploadStatus
from tbwire.points import DataClass

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1

_DETAIL: Final = "'after' is not the 'next' of an earlier page"


_Row = TypeVar("_Row")


def cut_page(
    rows: Sequence[_Row], limit: int, encode: Callable[[_Row], str]
) -> tuple[list[_Row], str | None]:
    """Return the first `limit` rows, and the token after the last of them if there are more.

    To know that, a list reads one row more than its page has.
    """
    return list(rows[:limit]), encode(rows[limit - 1]) if len(rows) > limit else None


def encode_page_token(created_at: datetime, item_id: str) -> str:
    """Return the token after an item of a list that is ordered by creation time, newest first."""
    return base64.urlsafe_b64encode(f"{created_at.isoformat()} {item_id}".encode()).decode()


def decode_page_token(after: str) -> tuple[datetime, str]:
    """Return creation time and id of the item before the page. Raises MalformedRequest."""
    try:
        created_at, item_id = base64.urlsafe_b64decode(after).decode().split(" ")
        return datetime.fromisoformat(created_at), item_id
    except (binascii.Error, ValueError) as error:
        raise MalformedRequest(_DETAIL) from error


def encode_list_token(order: ExperimentOrder, key: datetime | str | int, item_id: str) -> str:
    """Return the token after an experiment of a list, with what the list is sorted by."""
    sent = key.isoformat() if isinstance(key, datetime) else key
    content = json.dumps([order.value, sent, item_id])
    return base64.urlsafe_b64encode(content.encode()).decode()


def decode_list_token(after: str, order: ExperimentOrder) -> tuple[datetime | str | int, str]:
    """Return the position of the experiment before the page, in a list of this order.

    Raises MalformedRequest, also for a token of another order.
    """
    try:
        return _parse_list_token(json.loads(base64.urlsafe_b64decode(after)), order)
    except (binascii.Error, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedRequest(_DETAIL) from error


def encode_series_token(data_class: DataClass, series_id: int) -> str:
    """Return the token after a time series, in a list ordered by data class and series id."""
    return f"{int(data_class)}.{series_id}"


def decode_series_token(after: str) -> tuple[int, int]:
    """Return data class and id of the time series before the page; zeros when `after` is empty.

    Raises MalformedRequest.
    """
    if not after:
        return 0, 0

    data_class, series_id = _decode_int64s(after, 2)
    return data_class, series_id


def decode_number_token(after: str) -> int | None:
    """Return the run id or the step before the page, whose token is its number; None if empty.

    Raises MalformedRequest.
    """
    return _decode_int64s(after, 1)[0] if after else None


def encode_digest_token(sha256: bytes) -> str:
    """Return the token after an object, in a list ordered by the objects' SHA-256s."""
    return sha256.hex()


def decode_digest_token(after: str) -> bytes:
    """Return the SHA-256 before the page, b"" when `after` is empty. Raises MalformedRequest."""
    try:
        return bytes.fromhex(after)
    except ValueError as error:
        raise MalformedRequest(_DETAIL) from error


def _decode_int64s(after: str, count: int) -> list[int]:
    try:
        numbers = [int(number) for number in after.split(".")]
    except ValueError as error:
        raise MalformedRequest(_DETAIL) from error
    if len(numbers) != count or not all(_INT64_MIN <= n <= _INT64_MAX for n in numbers):
        raise MalformedRequest(_DETAIL)
    return numbers


def _parse_list_token(fields: Any, order: ExperimentOrder) -> tuple[datetime | str | int, str]:
    """Return key and id of a decoded token. Raises ValueError or TypeError."""
    encoded_order, key, item_id = fields
    texts = [item_id]
    if order is ExperimentOrder.UPDATED and type(key) is not int:
        key = datetime.fromisoformat(key)
    elif order is ExperimentOrder.NAME:
        texts.append(key)
    elif order is ExperimentOrder.STATUS:
        status, number = key.split(" ")
        if status and status not in set(UploadStatus):
            raise ValueError(key)
        if not (number.isascii() and number.isdigit() and int(number) <= _INT64_MAX):
            raise ValueError(key)
    elif type(key) is not int or not 0 <= key <= _INT64_MAX:
        raise ValueError(key)
    for content in texts:
        str.encode(content)  # raises TypeError, or ValueError for half of a character
    if encoded_order != order.value or any("\0" in content for content in texts):
        raise ValueError(encoded_order)
    return key, item_id
