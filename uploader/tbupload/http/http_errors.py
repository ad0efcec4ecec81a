"""Failed requests as errors and sentences: connection errors, and HTTP statuses with advice."""

from __future__ import annotations

from typing import Any, Final

import urllib3

from tbupload.errors import Conflict, Refused
from tbupload.http.response_body import refusal_text
from tbupload.http.response_schema import INTEGER_MAX

CODE_CHARS_MAX: Final = 100
LOCATION_CHARS_MAX: Final = 500
CHECKSUM_MAX: Final = 2**32 - 1

NOT_FOUND: Final = 404
CONFLICT: Final = 409  # RFC 9110, section 15.5.10

STATUS_ADVICE: Final = {
    401: "the server does not accept the token: it may have expired or been revoked. "
    "Run `tbupload login`, or set TBHUB_TOKEN",
    403: "the token may not do this: use one that may, or ask the owner for one",
    404: "there is no such experiment here, or it is not yours",
    413: "the server, or a proxy before it, does not take a request this large",
}
"""What to do about an HTTP status, before the server's own text."""

EXPLAINED_CODES: Final = frozenset({"access_denied", "expired_token"})
"""Codes of errors whose text says it all."""


def refused_error(
    response: urllib3.BaseHTTPResponse, path: str, content: dict[str, Any]
) -> Refused:
    """Return the error for a final HTTP error with this JSON body: Conflict for 409, or Refused."""
    code = str(content.get("code", ""))[:CODE_CHARS_MAX]
    explanation = refusal_text(response.status, content)
    location = response.headers.get("Location")
    advice = _find_advice(response.status, path, code)
    if advice is not None:
        explanation = f"{advice} ({explanation})"
    elif 300 <= response.status < 400 and location:  # noqa: PLR2004  # RFC 9110, section 15.4
        explanation = (
            f"the server redirects to {location[:LOCATION_CHARS_MAX]}: use that as its address"
        )

    if response.status != CONFLICT:
        return Refused(explanation, status=response.status, code=code)
    return Conflict(
        explanation,
        code=code,
        segment=_integer_or_none(content.get("segment"), INTEGER_MAX),
        offset=_integer_or_none(content.get("offset"), INTEGER_MAX),
        checksum=_integer_or_none(content.get("checksum"), CHECKSUM_MAX),
        segments=_integers(content.get("segments")),
    )


def _find_advice(status: int, path: str, code: str) -> str | None:
    """Return what to do; None where the server's own text says it, or is not about experiments."""
    is_elsewhere = status == NOT_FOUND and not path.startswith("/api/v1/experiments")
    return None if is_elsewhere or code in EXPLAINED_CODES else STATUS_ADVICE.get(status)


def connection_error_text(error: urllib3.exceptions.HTTPError) -> str:
    """Return why there is no answer, in words."""
    if isinstance(error, urllib3.exceptions.NameResolutionError):
        return "no such host"
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return "cannot connect"
    if isinstance(error, urllib3.exceptions.ProxyError):
        return f"the proxy does not answer ({error.original_error})"
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return "no answer in time"
    return f"the connection broke ({error})"


def certificate_error(server: str, error: Exception) -> Refused:
    """Return the error for a TLS handshake that failed, with advice."""
    explanation = (
        f"{server}: the connection is not secure ({error}); "
        "name your certificate authority's file with --cacert"
    )
    return Refused(explanation, status=0)


def _integers(value: object) -> list[int]:
    items = value if isinstance(value, list) else []
    return [item for item in items if _integer_or_none(item, INTEGER_MAX) is not None]


def _integer_or_none(value: object, maximum: int) -> int | None:
    return value if type(value) is int and 0 <= value <= maximum else None
