"""The figures of the running service, for whoever operates it: a token of their own, or the machine itself."""

from __future__ import annotations

import hmac
import ipaddress
import re
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import SecretStr
from starlette.exceptions import HTTPException

from tbservice.api.http.dependencies import UsesSettings
from tbservice.api.http.metrics_exposition import expose
from tbservice.errors import Unauthenticated

router = APIRouter(tags=["health"])

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="metrics token",
    description="The service's own setting TBHUB_METRICS_TOKEN",
)
_PROXY_HEADERS: Final = {"forwarded", "via", "x-real-ip"}


def _check_access(
    request: Request,
    settings: UsesSettings,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> None:
    """Metrics hold no tenant's data and so take no grant; still, they are for the operator's eyes."""
    if settings.metrics_token:
        if not _matches_token(credentials, settings.metrics_token):
            raise Unauthenticated(
                "send the service's metrics token: Authorization: Bearer <TBHUB_METRICS_TOKEN>"
            )
    elif not _is_local_request(request):
        raise HTTPException(404)  # as for an address that is not there


@router.get(
    "/metrics",
    dependencies=[Depends(_check_access)],
    response_class=Response,
    openapi_extra={
        "security": [{}]
    },  # or none at all: without the setting, this machine needs no token
    responses={
        200: {
            "content": {"text/plain": {}},
            "description": "Prometheus text format, or OpenMetrics if asked",
        }
    },
)
def read_metrics(request: Request) -> Response:
    """Ingest rates, merge work and requests, added up over the workers; no label holds anything of a tenant's.

    With the setting TBHUB_METRICS_TOKEN it wants that token; without, it answers this machine alone, and nothing that a
    proxy passed on.
    """
    content, content_type = expose(request.headers.get("accept", ""))
    return Response(content, media_type=content_type)


def _matches_token(credentials: HTTPAuthorizationCredentials | None, token: SecretStr) -> bool:
    given = credentials.credentials.encode("latin-1") if credentials else b""
    return hmac.compare_digest(given, token.get_secret_value().encode())


def _is_local_request(request: Request) -> bool:
    """Whether a program on this machine asks, by this machine's own name, and no proxy passes it on.

    uvicorn takes the client's address from a proxy's header where it trusts the proxy: such a header alone says that
    the request is not direct. A proxy that adds none still passes on the Host that it was asked for.
    """
    is_direct = not any(
        name in _PROXY_HEADERS or name.startswith("x-forwarded-") for name in request.headers
    )
    host = re.sub(r":\d+$", "", request.headers.get("host", "")).strip("[]")
    names_it = host == "localhost" or _is_loopback(host)
    return (
        is_direct and names_it and request.client is not None and _is_loopback(request.client.host)
    )


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)  # an IPv4 client of a socket for both
    return (mapped or address).is_loopback
