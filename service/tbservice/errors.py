"""Errors that callers of the service can get.

`server/app.py` renders them as JSON, `admission/refusals.py` those of the middleware, and `pages`
some of them as HTML.

ServiceError            HTTP
  MalformedRequest      400      the request cannot be parsed
  Unauthenticated       401      no token, or not a valid one
  Forbidden             403      the token is valid, its scope is too small
  NotFound              404      missing, or another workspace's: the two look the same
  NotAcceptable         406      none of the available formats is acceptable
  RequestTimeout        408      the body did not arrive in time: send it again
  Conflict              409      the state differs from the expected one: read it again
    CursorConflict               a segment does not start at its stream's cursor
    RunDeleted                   a run of the request was deleted from the experiment
  ObjectMissing         410      the object store has lost an object
  TooLarge              413      over a limit, which the message names
  Invalid               422      well-formed, but not valid
  TooManyRequests       429      the caller has used up its share of the server: wait
  Suspended             451      an administrator has suspended it: the detail says why
  Unavailable           503      PostgreSQL or S3 is not available: try again later
    ObjectUnreadable             the object store fails to read an object
  QuotaExceeded         507      the workspace has no room, or its month is used up
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar


class ServiceError(Exception):
    """An error with an HTTP status, a machine-readable code, and one sentence for people."""

    status: ClassVar[int] = 500
    code: str = "internal"

    def __init__(self, detail: str, *, code: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        if code is not None:
            self.code = code


class MalformedRequest(ServiceError):
    """The request cannot be parsed."""

    status = 400
    code = "malformed"


class Unauthenticated(ServiceError):
    """The token is missing, unknown, expired or revoked; the last three look the same."""

    status = 401
    code = "unauthenticated"


class Forbidden(ServiceError):
    """The token is valid, but its scope is too small."""

    status = 403
    code = "forbidden"


class NotFound(ServiceError):
    """The resource is missing, or another workspace's."""

    status = 404
    code = "not_found"


class NotAcceptable(ServiceError):
    """None of the available formats is acceptable to the client (RFC 9110, 15.5.7)."""

    status = 406
    code = "not_acceptable"


class RequestTimeout(ServiceError):
    """The request's body did not arrive in time, or was cut off; the client may send it again."""

    status = 408
    code = "too_slow"


class Conflict(ServiceError):
    """The state differs from the one that the request expects; read it again."""

    status = 409
    code = "conflict"


class ObjectMissing(ServiceError):
    """The object store has lost the bytes of a blob, or some of them; a retry does not help.

    Not 404: the experiment and the point exist, and the token may read them. `tbupload verify
    --repair` uploads the bytes again.
    """

    status = 410
    code = "object_missing"


class TooLarge(ServiceError):
    """A limit is exceeded; the detail names the limit, its unit and the actual value."""

    status = 413
    code = "too_large"


class Invalid(ServiceError):
    """The request is well-formed, but not valid."""

    status = 422
    code = "invalid"


class TooManyRequests(ServiceError):
    """The caller has used up its share of this server; repeat the request after `Retry-After`."""

    status = 429
    code = "too_many_requests"
    retry_after_seconds: ClassVar[int] = 2


class Suspended(ServiceError):
    """An administrator has suspended the workspace, or what shares the experiment (RFC 7725).

    For a person who is suspended, it is Forbidden with this code.
    """

    status = 451
    code = "suspended"


class Unavailable(ServiceError):
    """PostgreSQL or S3 is not available; nothing was lost, and the request may be repeated."""

    status = 503
    code = "unavailable"
    retry_after_seconds: ClassVar[int] = 2


class ObjectUnreadable(Unavailable):
    """The object store fails to read this object; its bytes may be lost."""

    code = "object_unreadable"


class CursorConflict(Conflict):
    """A segment does not start at its stream's cursor, or the file before it has changed.

    `code` is `cursor_conflict` (resume from `offset`) or `stream_replaced` (the bytes before the
    segment are not those that were committed: start a new generation of the stream at 0).
    `segment` is the index of the segment in the batch.
    """

    code = "cursor_conflict"

    def __init__(
        self, detail: str, *, segment: int, offset: int, checksum: int, code: str | None = None
    ) -> None:
        super().__init__(detail, code=code)
        self.segment = segment
        self.offset = offset
        self.checksum = checksum


class RunDeleted(Conflict):
    """Runs that the request writes to were deleted from the experiment, and are not restored.

    `runs` are their names, `segments` the indices of their segments in the batch, ascending; none
    if the request is no batch.
    """

    code = "run_deleted"

    def __init__(
        self, detail: str, *, runs: Sequence[str] = (), segments: Sequence[int] = ()
    ) -> None:
        super().__init__(detail)
        self.runs = runs
        self.segments = segments


class QuotaExceeded(ServiceError):
    """A quota of the workspace or its account has no room for what the request adds.

    Nothing of it was stored, or if it is a quota of a month, nothing was done.

    507 (RFC 4918, 11.5), as WebDAV has it for quotas (RFC 4331, 6): not 403, which is about rights,
    nor 413 and 429, after which a client sends less, or the same again soon.

    `quota` is the name of the limit, `holder` whose it is (`workspace` or `account`); `used` and
    `limit` are counts, `needed` what would be added. `resets` is when a quota of a month comes
    back, in UTC, and the seconds until then; None for what is stored.
    """

    status = 507
    code = "quota_exceeded"

    def __init__(
        self,
        quota: str,
        unit: str,
        used: int,
        limit: int,
        needed: int,
        holder: str,
        *,
        resets: tuple[datetime, int] | None = None,
    ) -> None:
        who = "workspace" if holder == "workspace" else "account that the workspace belongs to"
        remaining = f"of which {used:,} are used and {max(0, limit - used):,} remain"
        ask = "ask the administrator of this service for more"
        super().__init__(
            f"the {who} may store {limit:,} {unit}, {remaining}; this needs {needed:,} more. "
            f"Delete what is not needed, or {ask}"
            if resets is None
            else f"the {who} may have {limit:,} {unit} in a month, {remaining} until "
            f"{resets[0]:%Y-%m-%d %H:%M} UTC. Wait until then, or {ask}"
        )
        self.quota = quota
        self.holder = holder
        self.used = used
        self.limit = limit
        self.needed = needed
        self.resets = resets


class StartupError(Exception):
    """The server cannot start; the message is one line that tells what to do."""


class CommandFailed(StartupError):
    """A command ran and failed, or was interrupted: exit code 1. 2 says that it could not run."""


def forget_frames(error: BaseException | None) -> None:
    """Drop the traceback of an error that has been answered, and those of its causes.

    Its frames refer to the future that passed it between threads, which refers to it: a cycle that
    keeps a request and its body, some 130 objects, until a garbage collection, which stops all
    threads.
    """
    # An error may be its own cause; one whose traceback is gone was here before.
    while error is not None and error.__traceback__ is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
