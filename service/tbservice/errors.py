"""Every error a caller of the service can meet. The domain raises them; one handler in `app.py` renders them.

ServiceError            HTTP
  MalformedRequest             400      the request cannot be read
  Unauthenticated       401      no token, or one that does not count (any more)
  Forbidden             403      the token is good, its scope is too small
  NotFound              404      none, or not yours: the two look the same
  NotAcceptable         406      no format that the client wants
  RequestTimeout               408      the body did not arrive in time: send it again
  Conflict              409      the state is another one: read it again
    CursorConflict               a segment does not start at its stream's cursor
  ObjectMissing         410      the object store has lost bytes that a row names
  TooLarge              413      over a limit, which the message names
  Invalid               422      well-formed, but not possible
  TooManyRequests       429      the caller is over its share of the server: wait
  Unavailable           503      later
    ObjectUnreadable             the object store has the object, and fails to read it
"""

from __future__ import annotations

from typing import ClassVar


class ServiceError(Exception):
    """An error with an HTTP status, a code for programs, and one sentence for people."""

    status: ClassVar[int] = 500
    code: str = "internal"

    def __init__(self, detail: str, *, code: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        if code is not None:
            self.code = code


class MalformedRequest(ServiceError):
    """The request cannot be read at all."""

    status = 400
    code = "malformed"


class Unauthenticated(ServiceError):
    """No token, or one that is unknown, expired or revoked; the three look the same."""

    status = 401
    code = "unauthenticated"


class Forbidden(ServiceError):
    """The token is good, but its scope is too small for this."""

    status = 403
    code = "forbidden"


class NotFound(ServiceError):
    """There is none, or it is another tenant's."""

    status = 404
    code = "not_found"


class NotAcceptable(ServiceError):
    """The client wants none of the formats there are; the detail names them."""

    status = 406
    code = "not_acceptable"


class RequestTimeout(ServiceError):
    """The request's body did not arrive in time, or broke off; it may be sent again."""

    status = 408
    code = "too_slow"


class Conflict(ServiceError):
    """The state is not the one the request was made for; read it again."""

    status = 409
    code = "conflict"


class ObjectMissing(ServiceError):
    """The object store has lost this blob's bytes, or a part of them; asking again does not help.

    Not 404: the experiment and its point are there, and the token may read them. `tbupload verify --repair` sends the
    bytes again.
    """

    status = 410
    code = "object_missing"


class TooLarge(ServiceError):
    """Over a limit; the detail names the limit, its unit and the figure."""

    status = 413
    code = "too_large"


class Invalid(ServiceError):
    """Well-formed, but it cannot be."""

    status = 422
    code = "invalid"


class TooManyRequests(ServiceError):
    """The caller uses its whole share of this server; the same request may be made again after `Retry-After`."""

    status = 429
    code = "too_many_requests"
    retry_after_seconds: ClassVar[int] = 2


class Unavailable(ServiceError):
    """PostgreSQL or S3 is not there now; nothing was lost, and the same request may be made again."""

    status = 503
    code = "unavailable"
    retry_after_seconds: ClassVar[int] = 2


class ObjectUnreadable(Unavailable):
    """The object store answers with an error of its own for this object: its bytes may be lost, or come back."""

    code = "object_unreadable"


class CursorConflict(Conflict):
    """A segment does not start at its stream's cursor, or the file before it has changed.

    `code` is `cursor_conflict` (go back to `offset` and cut again) or `stream_replaced` (the bytes before the segment
    are not those that were committed: start a new generation of the stream at 0). `segment` is its index in the
    batch.
    """

    code = "cursor_conflict"

    def __init__(
        self, detail: str, *, segment: int, offset: int, checksum: int, code: str | None = None
    ) -> None:
        super().__init__(detail, code=code)
        self.segment = segment
        self.offset = offset
        self.checksum = checksum


class StartupError(Exception):
    """The server cannot start; the message is one line that says what to do."""
