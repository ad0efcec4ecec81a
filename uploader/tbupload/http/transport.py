"""HTTP requests to one server, repeated while the failure may pass."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import urllib3

from tbupload.errors import Refused, Unreachable
from tbupload.http.connection_pool import CONNECTIONS, TIMEOUT, make_pool, speaks_tls
from tbupload.http.http_errors import (
    certificate_error,
    connection_error_text,
    refused_error,
    speaks_tls_error,
)
from tbupload.http.request_slots import RequestSlots
from tbupload.http.response_body import (
    close,
    iter_body,
    parse_error_body,
    read_body,
    refusal_text,
    retry_after_seconds,
)
from tbupload.http.response_schema import Json, Schema, anything, parse, unreadable_answer
from tbupload.http.retry import RetryPolicy
from tbupload.limits import RESPONSE_BYTES_MAX

BAD_REQUEST: Final = 400  # what nginx answers to plain HTTP on a port with TLS
TOO_MANY_REQUESTS: Final = 429  # RFC 6585, section 4
SERVICE_UNAVAILABLE: Final = 503  # RFC 9110, section 15.6.4
NO_CONTENT: Final = 204  # of every deletion by a tbhub server

EVENT_STREAM: Final = "text/event-stream"
"""Media type of a live tail. A web page in its place would look like a tail that broke off."""

RETRIED_STATUSES: Final = frozenset({408, TOO_MANY_REQUESTS, 500, 502, SERVICE_UNAVAILABLE, 504})
"""HTTP statuses that may pass."""

REPORT_SECONDS: Final = 30.0
"""Period of reporting that the server does not answer."""

THROTTLED_REPORT_SECONDS: Final = 600.0
"""Period of reporting that the server asks for fewer requests."""


@dataclass(frozen=True)
class Response:
    """A successful answer.

    With `was_retried` the request was sent more than once: an earlier one may have done the work,
    and counts in this answer may leave that out. `server` is the address, for errors.
    """

    status: int
    body: bytes
    was_retried: bool
    server: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def json(self, schema: Schema = anything) -> Json:
        """Return the body as a JSON object that fits the schema; raise Refused if it does not."""
        try:
            return parse(self.body, schema)
        except Refused as error:
            page = "; it is a web page" if self.body.lstrip()[:1] == b"<" else ""
            raise Refused(f"{self.server}: {error}{page}", status=error.status) from None


@dataclass(frozen=True)
class _Request:
    """A request with all of its headers: see `Transport.request` and `Transport.stream`."""

    method: str
    path: str
    body: bytes | None
    headers: Mapping[str, str]
    may_retry: bool
    reads_body: bool
    final_codes: Collection[str] = ()


@dataclass(frozen=True)
class _RetryableFailure:
    """Why a request is to be repeated, and the server's Retry-After in seconds.

    With `is_throttled` the server is reachable, but gets too many requests from this caller; with
    `is_refused` it refuses connections.
    """

    reason: str
    retry_after: float | None = None
    is_throttled: bool = False
    is_refused: bool = False

    def explanation(self) -> str:
        """Return the reason, and how long the server asks to wait."""
        if not self.retry_after:
            return self.reason
        return f"{self.reason}; it asks to wait {self.retry_after:,.0f} s"


class Transport:
    """Sends requests to one server; may be used from several threads.

    Args:
        server: The server's URL, without a slash at its end.
        token: The bearer token (RFC 6750), if any.
        cacert: PEM file of the certificate authorities to trust.
        retry_policy: When to repeat requests.
        report: Called with a sentence when the server stops answering, and when it answers again.

    Raises:
        UsageError: There is no such file of certificates.
    """

    def __init__(
        self,
        server: str,
        token: str | None,
        cacert: Path | None,
        retry_policy: RetryPolicy,
        report: Callable[[str], None],
    ) -> None:
        self.server = server
        self.retry_policy = retry_policy
        self._headers = {"User-Agent": "tbupload", "Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._pool = make_pool(server, cacert)
        self._report = report
        self._reported_at = -REPORT_SECONDS
        self._throttled_at = -THROTTLED_REPORT_SECONDS
        self._slots = RequestSlots(CONNECTIONS)
        self._is_known = False  # whether it ever answered in HTTP

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        may_retry: bool = True,
    ) -> Response:
        """Send a request until it gets a final answer.

        Args:
            method: The HTTP method.
            path: Path and query, beginning with a slash.
            body: The content, sent with its length.
            headers: Headers in addition to the transport's own.
            may_retry: Whether the request is idempotent. If not, it is repeated only after failures
                that show it was not processed.

        Raises:
            Unreachable: The failure did not pass within the retry policy's time.
            Conflict: The server answered 409.
            Refused: It answered any other final error, or more than RESPONSE_BYTES_MAX.
        """
        sent = {**self._headers, **(headers or {})}
        response, content, was_retried = self._send_with_retries(
            _Request(method, path, body, sent, may_retry, reads_body=True)
        )
        # A proxy's page with status 200 must not be taken for a deletion.
        if method == "DELETE" and response.status != NO_CONTENT:
            raise Refused(f"{self.server}: {unreadable_answer()}", status=response.status)
        return Response(response.status, content, was_retried, self.server, response.headers)

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        may_retry: bool = True,
        final_codes: Collection[str] = (),
    ) -> Iterator[Iterator[bytes]]:
        """Send a request as `request` does, and yield the chunks of its answer as they arrive.

        Iterating raises Unreachable (`is_mid_response`) if the answer breaks off. At the end of the
        block the connection returns to the pool, or is closed if the answer was not read to its
        end. An error with one of the `final_codes` is not retried.
        """
        sent = {**self._headers, **(headers or {})}
        response, _, _ = self._send_with_retries(
            _Request(method, path, body, sent, may_retry, reads_body=False, final_codes=final_codes)
        )
        wanted = sent["Accept"]
        content_type = response.headers.get("Content-Type", "")
        if wanted == EVENT_STREAM and not content_type.startswith(wanted):
            close(response)
            raise Refused(f"{self.server}: {unreadable_answer()}", status=response.status)
        try:
            yield self._iter_body(response)
        finally:
            close(response)

    def check_not_cancelled(self) -> None:
        """Raise Unreachable if the upload was cancelled: between requests that belong together."""
        if self.retry_policy.stop_token.is_cancelled:
            raise Unreachable(f"{self.server}: the upload has ended")

    def _iter_body(self, response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        try:
            yield from iter_body(response)
        except urllib3.exceptions.HTTPError as error:
            explanation = (
                f"{self.server}: {connection_error_text(error)}, in the middle of an answer"
            )
            raise Unreachable(explanation, is_mid_response=True) from error

    def _send_with_retries(self, request: _Request) -> tuple[urllib3.BaseHTTPResponse, bytes, bool]:
        """Return the successful response, its body if `reads_body`, and whether it was retried."""
        failing_since = time.monotonic()
        attempt = 0
        while True:
            # Held for the request alone: while one waits to be repeated, others may be sent.
            with self._slots.acquire():
                outcome = self._send_once(request)
            if not isinstance(outcome, _RetryableFailure):
                self._slots.succeed()
                self._report_recovery()
                return *outcome, attempt > 0

            if outcome.is_throttled:
                self._slots.halve()
            self._report_outage(outcome)
            delay = self.retry_policy.wait_before_retry(
                attempt,
                failing_since,
                outcome.retry_after,
                is_refused=outcome.is_refused and not self._is_known,
            )
            if delay is None:
                raise Unreachable(f"{self.server}: {outcome.explanation()}")
            attempt += 1

    def _send_once(
        self, request: _Request
    ) -> tuple[urllib3.BaseHTTPResponse, bytes] | _RetryableFailure:
        """Return the successful response and its body, or a failure that may pass.

        Raises Unreachable, QuotaExceeded, Conflict or Refused for any other failure.
        """
        try:
            response = self._open(request)
            self._is_known = True
            # Errors are read by `parse_error_body`, which bounds them.
            if response.status < 300:  # noqa: PLR2004  # RFC 9110, section 15.3
                is_read = request.reads_body
                return response, read_body(response, RESPONSE_BYTES_MAX) if is_read else b""
        except urllib3.exceptions.SSLError as error:
            raise certificate_error(self.server, error) from error
        except urllib3.exceptions.HTTPError as error:
            self._check_plain(error)
            reason = connection_error_text(error, self.server)
            # Without a connection, nothing was sent: RFC 9110, section 9.2.2 permits no other
            # retry.
            was_sent = not isinstance(error, urllib3.exceptions.NewConnectionError)
            if was_sent and not request.may_retry:
                raise Unreachable(
                    f"{self.server}: {reason}; whether it was done is not known"
                ) from error
            is_refused = isinstance(error.__cause__, ConnectionRefusedError)
            return _RetryableFailure(reason, is_refused=is_refused)

        content = parse_error_body(response)
        # These two are sent before the request is processed.
        was_not_processed = response.status in {TOO_MANY_REQUESTS, SERVICE_UNAVAILABLE}
        is_final = content.get("code") in request.final_codes
        is_retried = response.status in RETRIED_STATUSES and not is_final
        if is_retried and (request.may_retry or was_not_processed):
            return _RetryableFailure(
                refusal_text(response.status, content),
                retry_after_seconds(response.headers.get("Retry-After")),
                is_throttled=response.status == TOO_MANY_REQUESTS,
            )
        if response.status == BAD_REQUEST and "code" not in content and speaks_tls(self.server):
            raise speaks_tls_error(self.server)
        has_token = "Authorization" in request.headers
        raise refused_error(self.server, response, request.path, content, has_token=has_token)

    def _check_plain(self, error: urllib3.exceptions.HTTPError) -> None:
        """Raise Refused if the first answer broke off because the server expects TLS."""
        if self._is_known or not isinstance(error, urllib3.exceptions.ProtocolError):
            return
        self._is_known = True
        if speaks_tls(self.server):
            raise speaks_tls_error(self.server) from error

    def _open(self, request: _Request) -> urllib3.BaseHTTPResponse:
        """Send a request and return its response, the body of which is not read yet."""
        stream, headers = None, request.headers
        if request.body is not None:
            # http.client sends bytes with one `sendall`, all of which has to be done within the
            # connect timeout; a file is sent in blocks that have the timeout each.
            stream = io.BytesIO(request.body)
            headers = {**headers, "Content-Length": str(len(request.body))}
        return self._pool.request(
            request.method,
            self.server + request.path,
            body=stream,
            headers=headers,
            timeout=TIMEOUT,
            # urllib3's own retries know nothing of the time limit, and would report nothing.
            retries=False,
            # A redirect of a POST becomes a GET (RFC 9110, section 15.4.3), and the token would go
            # along.
            redirect=False,
            # The body is read in chunks, with a limit on its size.
            preload_content=False,
        )

    def _report_outage(self, failure: _RetryableFailure) -> None:
        now = time.monotonic()
        if failure.is_throttled:
            if now - self._throttled_at >= THROTTLED_REPORT_SECONDS:
                self._throttled_at = now
                self._report(
                    f"{self.server}: the server asks to wait ({failure.explanation()}); "
                    "resuming after that"
                )
        elif now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            self._report(f"{self.server}: {failure.explanation()}; trying again")

    def _report_recovery(self) -> None:
        if self._reported_at > 0:
            self._reported_at = -REPORT_SECONDS
            self.retry_policy.report_success()
            self._report(f"{self.server}: answers again")
