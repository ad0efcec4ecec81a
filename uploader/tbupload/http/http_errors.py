"""Failed requests as errors and sentences: connection errors, and HTTP statuses with advice."""

from __future__ import annotations

import re
import urllib.parse
from typing import Any, Final

import urllib3

from tbupload.errors import Conflict, QuotaExceeded, Refused
from tbupload.http.connection_pool import find_proxy
from tbupload.http.response_body import final_text
from tbupload.http.response_schema import INTEGER_MAX

CODE_CHARS_MAX: Final = 100
LOCATION_CHARS_MAX: Final = 500
ID_CHARS_SHOWN: Final = 60
CHECKSUM_MAX: Final = 2**32 - 1

UNKNOWN_ROUTE_STATUSES: Final = frozenset({404, 405})
UNAUTHORIZED: Final = 401  # RFC 9110, section 15.5.2
CONFLICT: Final = 409  # RFC 9110, section 15.5.10
TOO_LARGE: Final = 413
QUOTA_EXCEEDED: Final = "quota_exceeded"
"""Code of the refusal, 507, of what is over a quota of the workspace."""

STATUS_ADVICE: Final = {
    UNAUTHORIZED: "the server does not accept the token: it may have expired or been revoked. "
    "Run `tbupload login`, or set TBHUB_TOKEN",
    403: "the token may not do this: use one that may, or ask the owner for one",
    TOO_LARGE: "the server, or a proxy before it, does not take a request this large",
}
"""Advice by HTTP status, shown before the server's own text."""

EXPLAINED_CODES: Final = frozenset(
    {"access_denied", "expired_token", "attempt_not_found", "suspended"}
)
"""Codes of errors whose text says it all."""

_PLAIN_TEXT_SIGNS: Final = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "UNKNOWN_PROTOCOL",
    "HTTP_REQUEST",
)
"""Messages of OpenSSL when it is answered in plain HTTP; its version decides which."""

_CERTIFICATE_ADVICE: Final = (
    ("has expired", "its certificate has expired: the people who run the server have to renew it"),
    ("mismatch", "its certificate is for another name: use that name in the address"),
    ("doesn't match", "its certificate is for another name: use that name in the address"),
    ("not yet valid", "its certificate is not valid yet: is the clock of this machine right?"),
)


def refused_error(
    server: str,
    response: urllib3.BaseHTTPResponse,
    path: str,
    content: dict[str, Any],
    *,
    has_token: bool,
) -> Refused | QuotaExceeded:
    """Return the error for a final HTTP error: Conflict for 409, QuotaExceeded, or Refused.

    Args:
        server: The server's address.
        response: The response.
        path: Object that was asked for.
        content: The fields of its JSON body. A tbhub server sends a `code` with every error.
        has_token: Whether the request had a token.
    """
    code = str(content.get("code") or "")[:CODE_CHARS_MAX]
    status, location = response.status, response.headers.get("Location")
    explanation = _name_experiment(final_text(status, content), path)
    if 300 <= status < 400 and location:  # noqa: PLR2004  # RFC 9110, section 15.4
        explanation = _redirect_text(server, path, location[:LOCATION_CHARS_MAX])
    elif not code and status != TOO_LARGE:
        explanation = (
            f"{server} answers HTTP {status}, and not as a tbhub server does: check the address. "
            "Another service may be there, or a proxy that wants a sign-in of its own"
        )
    elif status in UNKNOWN_ROUTE_STATUSES and (root := _without_path(server)) != server:
        explanation = (
            f"{explanation} at {server}: its path is probably too much; try --server {root}"
        )
    elif status == UNAUTHORIZED and not has_token and code not in EXPLAINED_CODES:
        explanation = (
            f"there is no token for {server}: run `tbupload login --server {server}`, or set "
            f"TBHUB_TOKEN ({explanation})"
        )
    elif code not in EXPLAINED_CODES and status in STATUS_ADVICE:
        explanation = f"{STATUS_ADVICE[status]} ({explanation})"

    if code == QUOTA_EXCEEDED:
        return QuotaExceeded(explanation)
    if status != CONFLICT:
        return Refused(explanation, status=status, code=code)
    return Conflict(
        explanation,
        code=code,
        segment=_integer_or_none(content.get("segment"), INTEGER_MAX),
        offset=_integer_or_none(content.get("offset"), INTEGER_MAX),
        checksum=_integer_or_none(content.get("checksum"), CHECKSUM_MAX),
        segments=_integers(content.get("segments")),
    )


def _name_experiment(explanation: str, path: str) -> str:
    """Return the text with the ID that was asked for, if it says that there is no such one."""
    match = re.match("/api/v1/experiments/([^/?]+)", path)
    if match is None:
        return explanation
    experiment_id = urllib.parse.unquote(match[1])[:ID_CHARS_SHOWN]
    return explanation.replace("no such experiment", f"no experiment {experiment_id}", 1)


def _without_path(server: str) -> str:
    """Return the address without a path, such as the `/api` of its API."""
    return urllib.parse.urlunsplit((*urllib.parse.urlsplit(server)[:2], "", "", ""))


def _redirect_text(server: str, path: str, location: str) -> str:
    """Return what to do about a redirect: to the same path elsewhere, or to some page."""
    try:
        target = urllib.parse.urljoin(server + path, location)
        address, asked = target.partition("?")[0], path.partition("?")[0]
    except ValueError:
        address = asked = ""
    if asked and address.endswith(asked) and address != server + asked:
        return f"the server redirects to another address: use --server {address[: -len(asked)]}"
    return (
        f"{server} redirects to {location}, and does not answer as a tbhub server does. If that is "
        "a page to sign in, a proxy before the server wants it, which tbupload cannot do: ask "
        "the people who run it for an address without it"
    )


def connection_error_text(error: urllib3.exceptions.HTTPError, server: str = "") -> str:
    """Return why there is no answer, in words."""
    if isinstance(error, urllib3.exceptions.NameResolutionError):
        return "no such host; check the address and the network"
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        reason = getattr(error.__cause__, "strerror", None)
        why = f" ({reason})" if reason else ""
        return (
            f"cannot connect{why}; check the address (--server, `tbupload login`), and that the "
            "server runs"
        )
    if isinstance(error, urllib3.exceptions.ProxyError):
        cause = error.original_error
        why = str(cause)
        if isinstance(cause, urllib3.exceptions.HTTPError):
            why = connection_error_text(cause)
        return f"the proxy{_proxy_name(server)} does not answer ({why})"
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return "no answer in time"
    # urllib3 gives a ProtocolError what the system said as a further argument, beside a text.
    reasons = [each.strerror or each for each in error.args if isinstance(each, OSError)]
    return f"the connection broke ({reasons[0] if reasons else error})"


def _proxy_name(server: str) -> str:
    """Return " HOST:PORT" of the proxy that the environment names for this server."""
    proxy = find_proxy(server) if server else None
    return f" {urllib.parse.urlsplit(proxy).netloc.rpartition('@')[2]}" if proxy else ""


def certificate_error(server: str, error: Exception) -> Refused:
    """Return the error for a TLS handshake that failed, with advice."""
    text = str(error)
    advice = next((advice for sign, advice in _CERTIFICATE_ADVICE if sign in text), None)
    if any(sign in text.upper().replace(" ", "_") for sign in _PLAIN_TEXT_SIGNS):
        address = server.replace("https:", "http:", 1)
        explanation = f"{server}: what is there does not speak TLS: use --server {address}"
    elif advice is not None:
        explanation = f"{server}: {advice} ({error})"
    else:
        explanation = (
            f"{server}: the connection is not secure ({error}); "
            "name your certificate authority's file with --cacert"
        )
    return Refused(explanation, status=0)


def speaks_tls_error(server: str) -> Refused:
    """Return the error for plain HTTP that was sent to a port with TLS."""
    address = server.replace("http:", "https:", 1)
    return Refused(f"{server}: what is there speaks TLS: use --server {address}", status=0)


def _integers(value: object) -> list[int]:
    items = value if isinstance(value, list) else []
    return [item for item in items if _integer_or_none(item, INTEGER_MAX) is not None]


def _integer_or_none(value: object, maximum: int) -> int | None:
    return value if type(value) is int and 0 <= value <= maximum else None
