"""HTTP requests to the server: connections, proxies, certificates, and repeating what may succeed the next time."""

from __future__ import annotations

import io
import ipaddress
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import urllib3

from tbupload.errors import Conflict, Refused, Unreachable, UsageError
from tbupload.http.request_slots import RequestSlots
from tbupload.http.response_body import (
    iter_body,
    parse_error_body,
    read_body,
    refusal_text,
    retry_after_seconds,
)
from tbupload.http.response_schema import INTEGER_MAX, Json, Schema, anything, parse
from tbupload.http.retry import RetryPolicy
from tbupload.limits import RESPONSE_BYTES_MAX

TIMEOUT: Final = urllib3.Timeout(connect=10.0, read=120.0)
"""Seconds to connect, and to wait for the next bytes of an answer."""

CONNECTIONS: Final = 4
"""Connections kept open to the server."""

RETRIED_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504})
TOO_MANY_REQUESTS: Final = 429
REPORT_SECONDS: Final = 30.0
"""While the server stays away, it is said again after this many seconds."""

THROTTLED_REPORT_SECONDS: Final = 600.0
"""While the server asks to wait now and then, it is said again after this many seconds."""

CODE_CHARS_MAX: Final = 100
LOCATION_CHARS_MAX: Final = 500
CHECKSUM_MAX: Final = 2**32 - 1

STATUS_ADVICE: Final = {
    401: "the server does not accept the token: it may have expired or been revoked. "
    "Run `tbupload login`, or set TBHUB_TOKEN",
    403: "the token may not do this: ask the experiment's owner for one that may",
    404: "there is no such experiment here, or it is not yours",
    413: "the server, or a proxy before it, does not take a request this large",
}


@dataclass(frozen=True, slots=True)
class Response:
    """A successful answer; `is_repeat` when the request had been sent before, which may have done the work."""

    body: bytes
    was_retried: bool

    def json(self, schema: Schema = anything) -> Json:
        """The body as a JSON object that fits the schema; Refused when it does not."""
        return parse(self.body, schema)


@dataclass(frozen=True, slots=True)
class _RetryableFailure:
    """Why a request has to be repeated, and after how many seconds the server wants to see it again.

    `is_throttled`: the server is there, but this caller's requests are too many for it.
    """

    reason: str
    retry_after: float | None = None
    is_throttled: bool = False

    def explanation(self) -> str:
        """The reason, and how long the server asks to wait."""
        return (
            self.reason
            if not self.retry_after
            else f"{self.reason}; it asks to wait {self.retry_after:,.0f} s"
        )


class Transport:
    """Sends requests to one server; may be used from several threads. `report` is told when the server stays away."""

    def __init__(
        self,
        server: str,
        token: str | None,
        cacert: Path | None,
        retry_policy: RetryPolicy,
        report: Callable[[str], None],
    ) -> None:
        self.server = server
        self._headers = {"User-Agent": "tbupload", "Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._pool = _connection_pool(server, cacert)
        self._retry_policy = retry_policy
        self._report = report
        self._reported_at = -REPORT_SECONDS
        self._throttled_at = -THROTTLED_REPORT_SECONDS
        self._slots = RequestSlots(CONNECTIONS)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        may_retry: bool = True,
    ) -> Response:
        """Sends a request until it gets a final answer; `path` begins with a slash.

        Connection errors, timeouts and the server's "later" are repeated while patience lasts, then Unreachable is
        raised. Any other HTTP error is Refused, or Conflict, and so is a response over RESPONSE_BYTES_MAX. Without
        `may_repeat`, only what surely was not done is repeated.
        """
        _, content, is_repeat = self._send_with_retries(
            method, path, body, headers, may_retry=may_retry, reads_body=True
        )
        return Response(content, is_repeat)

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        final_codes: Collection[str] = (),
    ) -> Iterator[Iterator[bytes]]:
        """Sends a request as `request` does until its answer begins, and gives the answer in pieces, as they arrive.

        Whoever takes them raises Unreachable where the answer breaks off. The connection is given back, or closed when
        the answer was not read to its end, with the block. An error with one of the `final_codes` is not repeated.
        """
        response, _, _ = self._send_with_retries(
            method, path, body, headers, may_retry=True, reads_body=False, final_codes=final_codes
        )
        try:
            yield self._pieces(response)
        finally:
            response.close()
            response.release_conn()

    def _pieces(self, response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        try:
            yield from iter_body(response)
        except urllib3.exceptions.HTTPError as error:
            explanation = f"{self.server}: {_error_text(error)}, in the middle of an answer"
            raise Unreachable(explanation, is_mid_response=True) from error

    def _send_with_retries(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        *,
        may_retry: bool,
        reads_body: bool,
        final_codes: Collection[str] = (),
    ) -> tuple[urllib3.BaseHTTPResponse, bytes, bool]:
        """The good answer, its body when `is_whole`, and whether the request had been sent before."""
        failing_since = time.monotonic()
        attempt = 0
        while True:
            sent = {**self._headers, **(headers or {})}
            with self._slots.acquire():
                outcome = self._send_once(
                    method,
                    path,
                    body,
                    sent,
                    may_retry=may_retry,
                    reads_body=reads_body,
                    final_codes=final_codes,
                )
            if not isinstance(outcome, _RetryableFailure):
                self._slots.succeed()
                self._report_recovery()
                return *outcome, attempt > 0
            if outcome.is_throttled:
                self._slots.halve()
            self._report_outage(outcome)
            if (
                self._retry_policy.wait_before_retry(attempt, failing_since, outcome.retry_after)
                is None
            ):
                raise Unreachable(f"{self.server}: {outcome.explanation()}")
            attempt += 1

    def check_not_cancelled(self) -> None:
        """Raises Unreachable when the upload was abandoned: for work of many requests, between any two of them."""
        if self._retry_policy.stop_token.is_cancelled:
            raise Unreachable(f"{self.server}: the upload has ended")

    def _send_once(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        may_retry: bool,
        reads_body: bool,
        final_codes: Collection[str],
    ) -> tuple[urllib3.BaseHTTPResponse, bytes] | _RetryableFailure:
        stream = None
        if body is not None:
            # From a file, it is sent piece by piece: the time to connect is also all the time that one `send` may take.
            stream = io.BytesIO(body)
            headers = {**headers, "Content-Length": str(len(body))}
        try:
            response = self._pool.request(
                method,
                self.server + path,
                body=stream,
                headers=headers,
                timeout=TIMEOUT,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            if response.status < 300:  # noqa: PLR2004  # HTTP's own classes
                return response, read_body(response, RESPONSE_BYTES_MAX) if reads_body else b""
        except urllib3.exceptions.SSLError as error:
            raise Refused(_certificate_advice(self.server, error), status=0) from error
        except urllib3.exceptions.HTTPError as error:
            if not may_retry and not isinstance(error, urllib3.exceptions.NewConnectionError):
                raise Unreachable(
                    f"{self.server}: {_error_text(error)}; whether it was done is not known"
                ) from error
            return _RetryableFailure(_error_text(error))
        content = parse_error_body(response)
        is_final = content.get("code") in final_codes
        if (
            response.status in RETRIED_STATUSES
            and not is_final
            and (may_retry or response.status in {TOO_MANY_REQUESTS, 503})
        ):
            reason = refusal_text(response.status, content)
            wait_seconds = retry_after_seconds(response.headers.get("Retry-After"))
            return _RetryableFailure(
                reason, wait_seconds, is_throttled=response.status == TOO_MANY_REQUESTS
            )
        raise _refused_error(response, content)

    def _report_outage(self, failure: _RetryableFailure) -> None:
        now = time.monotonic()
        if failure.is_throttled:
            if now - self._throttled_at >= THROTTLED_REPORT_SECONDS:
                self._throttled_at = now
                self._report(
                    f"{self.server}: the server asks to wait ({failure.explanation()}); going on after that"
                )
        elif now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            self._report(f"{self.server}: {failure.explanation()}; trying again")

    def _report_recovery(self) -> None:
        if self._reported_at > 0:
            self._reported_at = -REPORT_SECONDS
            self._retry_policy.report_success()
            self._report(f"{self.server}: answers again")


def is_loopback(server: str) -> bool:
    """Whether the server is on this machine: no proxy leads there, and nothing is gained by compressing."""
    host = urllib.parse.urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _connection_pool(server: str, cacert: Path | None) -> urllib3.PoolManager:
    if cacert is not None and not cacert.is_file():
        raise UsageError(f"{cacert}: no such file; --cacert takes a PEM file of certificates")
    options: Json = {"maxsize": CONNECTIONS, "block": True}
    if cacert is not None:
        options["ca_certs"] = str(cacert)
    proxy = _find_proxy(server)
    if proxy is None:
        return urllib3.PoolManager(**options)
    parts = urllib.parse.urlsplit(proxy)
    if parts.username is not None:
        credentials = (
            f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        )
        options["proxy_headers"] = urllib3.make_headers(proxy_basic_auth=credentials)
    return urllib3.ProxyManager(proxy, **options)


def _find_proxy(server: str) -> str | None:
    """The proxy the environment names for this server (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY), if any."""
    parts = urllib.parse.urlsplit(server)
    if is_loopback(server) or urllib.request.proxy_bypass(parts.netloc):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy is not None and "://" not in proxy:
        proxy = f"http://{proxy}"
    return proxy


def _error_text(error: urllib3.exceptions.HTTPError) -> str:
    if isinstance(error, urllib3.exceptions.NameResolutionError):
        return "no such host"
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return "cannot connect"
    if isinstance(error, urllib3.exceptions.ProxyError):
        return f"the proxy does not answer ({error.original_error})"
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return "no answer in time"
    return f"the connection broke ({error})"


def _refused_error(response: urllib3.BaseHTTPResponse, content: Json) -> Refused:
    code = str(content.get("code", ""))[:CODE_CHARS_MAX]
    explanation = refusal_text(response.status, content)
    location = response.headers.get("Location")
    if response.status in STATUS_ADVICE:
        explanation = f"{STATUS_ADVICE[response.status]} ({explanation})"
    elif 300 <= response.status < 400 and location:  # noqa: PLR2004  # HTTP's own classes
        explanation = (
            f"the server redirects to {location[:LOCATION_CHARS_MAX]}: use that as its address"
        )
    if response.status != 409:  # noqa: PLR2004  # HTTP's own number
        return Refused(explanation, status=response.status, code=code)
    return Conflict(
        explanation,
        code=code,
        segment=_integer_or_none(content.get("segment"), INTEGER_MAX),
        offset=_integer_or_none(content.get("offset"), INTEGER_MAX),
        checksum=_integer_or_none(content.get("checksum"), CHECKSUM_MAX),
    )


def _integer_or_none(value: object, most: int) -> int | None:
    return value if type(value) is int and 0 <= value <= most else None


def _certificate_advice(server: str, error: Exception) -> str:
    return f"{server}: the connection is not secure ({error}); name your certificate authority's file with --cacert"
