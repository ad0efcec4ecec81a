"""Forms that pages post: their fields, and the checks that every one of them passes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from tbservice import limits
from tbservice.api.http.body import read_body
from tbservice.api.http.dependencies import get_settings
from tbservice.errors import Invalid, MalformedRequest
from tbservice.pages.base import csrf
from tbservice.pages.base.person_session import PersonSession

FORM_BYTES_MAX: Final = 2 * limits.MIB
"""Bytes of a form that a person who is signed in posts; a character takes up to 12.

Notes and a description of full length fit in all scripts but those beyond Unicode's first plane.
"""

OPEN_FORM_BYTES_MAX: Final = 64 * limits.KIB
"""Bytes of a form that anybody may post, such as the one to sign in."""

FORM_FIELDS_ITEMS_MAX: Final = 1_000
"""Fields (items) of such a form; a list of experiments may be selected on one page."""

_MEDIA_TYPE: Final = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class FormFields:
    """The fields of a form: for each name its values, in the form's order."""

    values: Mapping[str, Sequence[str]]

    def text(self, name: str, default: str = "") -> str:
        """Return the first value of a field without spaces around it; `default` if it is absent."""
        values = self.values.get(name)
        return values[0].strip() if values else default

    def texts(self, name: str) -> list[str]:
        """Return all values of a field, as of checkboxes with one name."""
        return list(self.values.get(name, ()))

    def choice(self, name: str, allowed: Collection[str]) -> str:
        """Return the value of a field that is a choice. Raises Invalid for any other value."""
        value = self.text(name)
        if value not in allowed:
            raise Invalid(f"choose one of the offered values for {name}")
        return value

    def expiry(self, name: str) -> datetime | None:
        """Return the time that is the field's number of days from now; None for an empty field.

        Raises Invalid unless it is an integer from 1 to `limits.EXPIRY_DAYS_MAX`.
        """
        text = self.text(name)
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < _DIGITS_MAX):
            raise Invalid("the expiry is a number of days")
        if not 1 <= int(text) <= limits.EXPIRY_DAYS_MAX:
            raise Invalid(f"the expiry is 1 to {limits.EXPIRY_DAYS_MAX:,} days from now")
        return datetime.now(UTC) + timedelta(days=int(text))


_DIGITS_MAX: Final = 10


def check_same_origin(request: Request) -> None:
    """Raise Forbidden if another site sent the request; `read_form` does it by itself."""
    csrf.check_origin(request.headers, get_settings(request).public_url)


async def read_form(request: Request, session: PersonSession | None) -> FormFields:
    """Return the fields of a posted form, after the checks against other sites.

    Every route of a page that changes something calls this before all else.

    Args:
        request: Its body is read.
        session: Session of the person, if signed in; the form must contain its CSRF token then.
            None for a form that changes nothing of a person, such as one to sign in.

    Raises:
        Forbidden: another site sent the form, or the token is missing or not the session's.
        MalformedRequest: the body is not a form.
        TooLarge, RequestTimeout: as `read_body` does.
    """
    check_same_origin(request)
    if request.headers.get("content-type", "").partition(";")[0].strip() != _MEDIA_TYPE:
        raise MalformedRequest(f"the body of a form is {_MEDIA_TYPE}")
    bytes_max = OPEN_FORM_BYTES_MAX if session is None else FORM_BYTES_MAX
    body = await read_body(request, bytes_max, limits.REQUEST_BODY_SECONDS_MAX)
    # Not in the event loop: the largest form takes 0.2 seconds.
    fields = await run_in_threadpool(_parse_form, body)
    if session is not None:
        csrf.check_token(session.secret, fields.text(csrf.FIELD))
    return fields


def _parse_form(body: bytes) -> FormFields:
    """Return the fields of a form's body. Raises MalformedRequest."""
    try:
        values = parse_qs(
            body.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=FORM_FIELDS_ITEMS_MAX,
        )
    except ValueError as error:  # also of text that is not UTF-8
        raise MalformedRequest("the body is not a form that one of our pages sends") from error
    return FormFields(values)


def end_after(duration: timedelta) -> datetime:
    """Return the time after this duration from now, as the end of a token."""
    return datetime.now(UTC) + duration
