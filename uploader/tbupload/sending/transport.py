"""HTTP requests to the server: connections, proxies, certificates, and repeating what may succeed the next time."""

from __future__ import annotations

import email.utils
import io
import ipaddress
import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import urllib3

from tbupload.errors import Conflict, Refused, Unreachable, UsageError
from tbupload.sending.patience import Patience

Json = dict[str, Any]

TIMEOUT: Final = urllib3.Timeout(connect=10.0, read=120.0)
"""Seconds to connect, and to wait for the next bytes of an answer."""

CONNECTIONS: Final = 4
"""Connections kept open to the server."""

PIECE_BYTES: Final = 1 << 20
"""Bytes of a piece of an answer that is read as it arrives, at most."""

RETRIED_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504})
REPORT_SECONDS: Final = 30.0
"""While the server stays away, it is said again after this many seconds."""

WHAT_TO_DO: Final = {
    401: "the server does not accept the token: it may have expired or been revoked. "
    "Run `tbupload login`, or set TBHUB_TOKEN",
    403: "the token may not do this: ask the experiment's owner for one that may",
    404: "there is no such experiment here, or it is not yours",
    413: "the server, or a proxy before it, does not take a request this large",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer; `is_repeat` when the request had been sent before, which may have done the work."""

    body: bytes
    is_repeat: bool

    def json(self) -> Json:
        """The body as a JSON object; Refused when it is none, as when the address is not a tbhub server's."""
        try:
            content = json.loads(self.body)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise Refused("the answer is not one of a tbhub server: check the server's address", status=200)
        return content


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Why a request has to be repeated, and after how many seconds the server wants to see it again."""

    reason: str
    retry_after: float | None = None


class Transport:
    """Sends requests to one server; may be used from several threads. `report` is told when the server stays away."""

    def __init__(
        self, server: str, token: str | None, cacert: Path | None, patience: Patience, report: Callable[[str], None]
    ) -> None:
        self.server = server
        self._headers = {"User-Agent": "tbupload", "Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._pool = _connection_pool(server, cacert)
        self._patience = patience
        self._report = report
        self._reported_at = -REPORT_SECONDS

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        may_repeat: bool = True,
    ) -> Answer:
        """Sends a request until it gets a final answer; `path` begins with a slash.

        Connection errors, timeouts and the server's "later" are repeated while patience lasts, then Unreachable is
        raised. Any other HTTP error is Refused, or Conflict. Without `may_repeat`, only what surely was not done is
        repeated.
        """
        response, is_repeat = self._until_answered(method, path, body, headers, may_repeat=may_repeat, is_whole=True)
        return Answer(response.data, is_repeat)

    @contextmanager
    def stream(
        self, method: str, path: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[Iterator[bytes]]:
        """Sends a request as `request` does until its answer begins, and gives the answer in pieces, as they arrive.

        Whoever takes them raises Unreachable where the answer breaks off. The connection is given back, or closed when
        the answer was not read to its end, with the block.
        """
        response, _ = self._until_answered(method, path, body, headers, may_repeat=True, is_whole=False)
        try:
            yield self._pieces(response)
        finally:
            response.close()
            response.release_conn()

    def _pieces(self, response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        try:
            yield from response.stream(PIECE_BYTES)
        except urllib3.exceptions.HTTPError as error:
            explanation = f"{self.server}: {_reason(error)}, in the middle of an answer"
            raise Unreachable(explanation, is_in_the_middle=True) from error

    def _until_answered(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        *,
        may_repeat: bool,
        is_whole: bool,
    ) -> tuple[urllib3.BaseHTTPResponse, bool]:
        """The good answer, and whether the request had been sent before; its body too when `is_whole`."""
        trouble_since = time.monotonic()
        attempt = 0
        while True:
            sent = {**self._headers, **(headers or {})}
            outcome = self._try(method, path, body, sent, may_repeat=may_repeat, is_whole=is_whole)
            if not isinstance(outcome, _Trouble):
                self._say_back()
                return outcome, attempt > 0
            self._say_away(outcome.reason)
            if self._patience.wait_to_repeat(attempt, trouble_since, outcome.retry_after) is None:
                raise Unreachable(f"{self.server}: {outcome.reason}")
            attempt += 1

    def check_wanted(self) -> None:
        """Raises Unreachable when the upload was abandoned: for work of many requests, between any two of them."""
        if self._patience.is_abandoned:
            raise Unreachable(f"{self.server}: the upload has ended")

    def _try(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        may_repeat: bool,
        is_whole: bool,
    ) -> urllib3.BaseHTTPResponse | _Trouble:
        content = None
        if body is not None:
            # From a file, it is sent piece by piece: the time to connect is also all the time that one `send` may take.
            content = io.BytesIO(body)
            headers = {**headers, "Content-Length": str(len(body))}
        try:
            response = self._pool.request(
                method,
                self.server + path,
                body=content,
                headers=headers,
                timeout=TIMEOUT,
                retries=False,
                redirect=False,
                preload_content=is_whole,
            )
            if response.status < 300:  # noqa: PLR2004  # HTTP's own classes
                return response
            if not is_whole:
                response.read(cache_content=True)
        except urllib3.exceptions.SSLError as error:
            raise Refused(_certificate_advice(self.server, error), status=0) from error
        except urllib3.exceptions.HTTPError as error:
            if not may_repeat and not isinstance(error, urllib3.exceptions.NewConnectionError):
                raise Unreachable(f"{self.server}: {_reason(error)}; whether it was done is not known") from error
            return _Trouble(_reason(error))
        if response.status in RETRIED_STATUSES and (may_repeat or response.status in {429, 503}):
            return _Trouble(_refusal(response), _retry_after(response.headers.get("Retry-After")))
        raise _refused(response)

    def _say_away(self, reason: str) -> None:
        now = time.monotonic()
        if now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            self._report(f"{self.server}: {reason}; trying again")

    def _say_back(self) -> None:
        if self._reported_at > 0:
            self._reported_at = -REPORT_SECONDS
            self._patience.answered()
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
    proxy = _proxy(server)
    if proxy is None:
        return urllib3.PoolManager(**options)
    parts = urllib.parse.urlsplit(proxy)
    if parts.username is not None:
        credentials = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        options["proxy_headers"] = urllib3.make_headers(proxy_basic_auth=credentials)
    return urllib3.ProxyManager(proxy, **options)


def _proxy(server: str) -> str | None:
    """The proxy the environment names for this server (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY), if any."""
    parts = urllib.parse.urlsplit(server)
    if is_loopback(server) or urllib.request.proxy_bypass(parts.netloc):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy is not None and "://" not in proxy:
        proxy = f"http://{proxy}"
    return proxy


def _reason(error: urllib3.exceptions.HTTPError) -> str:
    if isinstance(error, urllib3.exceptions.NameResolutionError):
        return "no such host"
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return "cannot connect"
    if isinstance(error, urllib3.exceptions.ProxyError):
        return f"the proxy does not answer ({error.original_error})"
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return "no answer in time"
    return f"the connection broke ({error})"


def _retry_after(value: str | None) -> float | None:
    """Seconds, from either of the header's two forms; None when it says nothing that can be understood."""
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, date.timestamp() - time.time())


def _refusal(response: urllib3.BaseHTTPResponse) -> str:
    detail = _error_body(response).get("detail")
    return f"HTTP {response.status}" + (f": {detail}" if isinstance(detail, str) and detail else "")


def _error_body(response: urllib3.BaseHTTPResponse) -> Json:
    try:
        content = json.loads(response.data)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _refused(response: urllib3.BaseHTTPResponse) -> Refused:
    content = _error_body(response)
    code = str(content.get("code", ""))
    explanation = _refusal(response)
    if response.status in WHAT_TO_DO:
        explanation = f"{WHAT_TO_DO[response.status]} ({explanation})"
    elif 300 <= response.status < 400:  # noqa: PLR2004  # HTTP's own classes
        explanation = f"the server redirects to {response.headers.get('Location')}: use that as its address"
    if response.status != 409:  # noqa: PLR2004  # HTTP's own number
        return Refused(explanation, status=response.status, code=code)
    return Conflict(
        explanation,
        code=code,
        segment=content.get("segment"),
        offset=content.get("offset"),
        checksum=content.get("checksum"),
    )


def _certificate_advice(server: str, error: Exception) -> str:
    return f"{server}: the connection is not secure ({error}); name your certificate authority's file with --cacert"
