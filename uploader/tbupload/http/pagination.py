"""Listings in pages: every page once, however a server goes about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tbupload.errors import Refused
from tbupload.http.response_schema import Json, Schema, unreadable_answer
from tbupload.http.transport import Response
from tbupload.limits import LISTING_BYTES_MAX, LISTING_PAGES_MAX, PAGE_TOKEN_CHARS_MAX


def read_pages(
    read: Callable[[str | None], Response], schema: Schema, *, bytes_max: float = LISTING_BYTES_MAX
) -> Iterator[Json]:
    """Yield the pages of a listing; `read` asks for the one that a page token (`next` of the page before) names.

    Raises Refused when a page does not fit the schema, a page token comes again, or the pages are more than
    LISTING_PAGES_MAX or have more than `bytes_max` bytes: such a listing would never end.
    """
    token: str | None = None
    seen: set[int] = set()
    size = 0
    for _ in range(LISTING_PAGES_MAX):
        answer = read(token)
        size += len(answer.body)
        if size > bytes_max:
            raise Refused(
                f"the server's listing is over the limit of {LISTING_BYTES_MAX:,} bytes", status=200
            )
        page = answer.json(schema)
        del answer
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
