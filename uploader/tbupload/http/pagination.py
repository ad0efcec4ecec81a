"""Paginated listings, bounded: a broken server cannot make one endless."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tbupload.errors import Refused
from tbupload.http.response_schema import Json, Schema, unreadable_answer
from tbupload.http.transport import Response
from tbupload.limits import LISTING_BYTES_MAX, LISTING_PAGES_MAX, PAGE_TOKEN_CHARS_MAX


def read_pages(
    read: Callable[[str | None], Response], schema: Schema, *, bytes_max: float = LISTING_BYTES_MAX
) -> Iterator[Json]:
    """Yield the pages of a listing.

    Args:
        read: Requests a page by its page token (`next` of the page before); None for the first.
        schema: The schema of a page.
        bytes_max: Limit of the sum of all pages.

    Raises:
        Refused: A page does not fit the schema, a page token is repeated, or there are more than
            LISTING_PAGES_MAX pages or `bytes_max` bytes.
    """
    token: str | None = None
    seen: set[int] = set()
    size = 0
    for _ in range(LISTING_PAGES_MAX):
        response = read(token)
        size += len(response.body)
        if size > bytes_max:
            raise Refused(
                f"the server's listing is over the limit of {LISTING_BYTES_MAX:,} bytes", status=200
            )
        page = response.json(schema)
        del response  # its body is not kept in memory while the page is processed
        yield page

        token = page.get("next")
        if token is None:
            return
        if (
            not isinstance(token, str)
            or not token.isprintable()
            or len(token) > PAGE_TOKEN_CHARS_MAX
        ):
            raise unreadable_answer("next: no page token where one should be")
        if hash(token) in seen:
            raise Refused(
                "the server's listing does not end: the same page comes again", status=200
            )
        seen.add(hash(token))
    raise Refused(
        f"the server's listing does not end: it has more than {LISTING_PAGES_MAX:,} pages",
        status=200,
    )
