"""Route for Prometheus metrics, for the operator: with the metrics token, or from this machine."""

from __future__ import annotations

import hmac
import ipaddress
import re
from typing import Annotated, Final

from fastapi import Depends, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import SecretStr
from starlette.exceptions import HTTPException

from tbservice.api.http.dependencies import UsesSettings
from tbservice.api.http.metrics_exposition import expose
from tbservice.api.http.routers import make_router
from tbservice.errors import Unauthenticated

router = make_router(ignores_unknown_query=True, tags=["health"])

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="MetricsToken",
    description="The value of the server's setting TBHUB_METRICS_TOKEN, or one of several in it",
)
_PROXY_HEADERS: Final = {"forwarded", "via", "x-real-ip"}


def _check_access(
    request: Request,
    settings: UsesSettings,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> None:
    """Raise unless the request may read metrics; no grant: they contain no tenant's data."""
    if settings.metrics_token:
        if not _matches_token(credentials, settings.metrics_token):
            raise Unauthenticated(
                "send the server's metrics token: Authorization: Bearer <TBHUB_METRICS_TOKEN>"
            )
    elif not _is_local_request(request):
        raise HTTPException(404)  # the same as for an unknown path


@router.get(
    "/metrics",
    dependencies=[Depends(_check_access)],
    response_class=Response,
    # An empty requirement: no token is needed on this machine if the setting is not set.
    openapi_extra={"security": [{}]},
    responses={
        200: {
            "content": {"text/plain": {}},
            "description": "Prometheus text format, or OpenMetrics if `Accept` requests it",
        }
    },
)
def read_metrics(request: Request) -> Response:
    """Return metrics of ingest, compaction and requests, summed over all workers.

    If the setting TBHUB_METRICS_TOKEN is set, that token is required. Without it, only direct
    requests from the server's own machine are answered; others, and requests through a proxy, get
    404. Labels contain no tenant's data.
    """
    content, content_type = expose(request.headers.get("accept", ""))
    return Response(content, media_type=content_type)


def _matches_token(credentials: HTTPAuthorizationCredentials | None, setting: SecretStr) -> bool:
    """Return whether a token was sent that the setting has: all of it, or a part between commas.

    All of it, too: what scrapes in Kubernetes sends the content of the same secret.
    """
    sent = credentials.credentials.encode("latin-1") if credentials else b""
    whole = setting.get_secret_value()
    tokens = [each.strip().encode() for each in (whole, *whole.split(","))]
    # Each is compared, whichever is right: the time of the answer tells nothing of the others.
    return sum(hmac.compare_digest(sent, each) for each in tokens if each) > 0


def _is_local_request(request: Request) -> bool:
    """Return whether the request is from this machine, to a loopback name, and not through a proxy.

    The client's address alone is not enough: uvicorn takes it from a proxy's header if it trusts
    the proxy, and a local proxy that adds no header is itself a client on this machine. Therefore
    any proxy header refuses the request, and so does a Host other than this machine: proxies
    forward the Host of the original request.
    """
    is_direct = not any(
        name in _PROXY_HEADERS or name.startswith("x-forwarded-") for name in request.headers
    )
    host = re.sub(r":\d+$", "", request.headers.get("host", "")).strip("[]")
    is_local_host = host == "localhost" or _is_loopback(host)
    return (
        is_direct
        and is_local_host
        and request.client is not None
        and _is_loopback(request.client.host)
    )


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)  # an IPv4 client of a dual-stack socket
    return (mapped or address).is_loopback
