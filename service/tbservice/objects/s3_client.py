"""S3 clients: how they are made, and their errors as ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError

from tbservice import metrics, traces
from tbservice.errors import ObjectMissing, ObjectUnreadable, Unavailable
from tbservice.settings import Settings
from tbservice.waits import waiting

_CONNECTIONS_MAX = 32
OBJECT_MISSING = (
    "the object store has lost these bytes: "
    "`tbupload verify --repair` sends them again from the files"
)
OBJECT_UNREADABLE = (
    "the object store fails to read this object; "
    "try again, or check it with `tbupload verify --deep`"
)

_CODE_CHARS_MAX = 64
_SPAN = "tbhub_span"
_STATUS_MEANINGS = {"403": " (AccessDenied)", "404": " (NoSuchBucket or NoSuchKey)"}


@cache
def get_session() -> boto3.session.Session:
    """Return the session of all clients, once per process: parsing S3's API description is slow."""
    return boto3.session.Session()


def make_client(settings: Settings, *, read_timeout: int, attempts: int) -> Any:
    """Create a client, without sending anything. `read_timeout` is in seconds per attempt."""
    client = get_session().client(
        "s3",
        endpoint_url=settings.s3_endpoint,
        region_name=settings.s3_region,
        aws_access_key_id=settings.s3_access_key.get_secret_value()
        if settings.s3_access_key
        else None,
        aws_secret_access_key=settings.s3_secret_key.get_secret_value()
        if settings.s3_secret_key
        else None,
        verify=str(settings.s3_ca_file) if settings.s3_ca_file else None,
        config=Config(
            max_pool_connections=_CONNECTIONS_MAX,
            connect_timeout=min(5, read_timeout),
            read_timeout=read_timeout,
            retries={"mode": "standard", "total_max_attempts": attempts},
            s3={"addressing_style": _addressing_style(settings)},
            # Not all S3-compatible servers know the newer checksum headers. Our keys are SHA-256s.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )
    client.meta.events.register("before-call.s3", _begin_call)
    client.meta.events.register("after-call.s3", _count_response)
    client.meta.events.register("after-call-error.s3", _count_failure)
    return client


def _begin_call(model: Any, context: dict[str, Any], **_: object) -> None:
    context[_SPAN] = traces.begin(f"S3 {model.name}")


def _count_response(model: Any, http_response: Any, context: dict[str, Any], **_: object) -> None:
    metrics.observe_object_call(model.name, http_response.status_code)
    traces.end(context.get(_SPAN))


def _count_failure(event_name: str, context: dict[str, Any], **_: object) -> None:
    metrics.observe_object_call(event_name.rpartition(".")[2], None)
    traces.end(context.get(_SPAN))


def _addressing_style(settings: Settings) -> str:
    if settings.s3_path_style:
        return "path"
    # With an endpoint of our own, botocore treats "auto" as path style.
    return "virtual" if settings.s3_endpoint else "auto"


def encryption_options(settings: Settings) -> dict[str, str]:
    """Return the options of a call that stores bytes, for encryption by the server."""
    options: dict[str, str] = {}
    if settings.s3_server_side_encryption:
        options["ServerSideEncryption"] = settings.s3_server_side_encryption
    if settings.s3_kms_key_id:
        options["SSEKMSKeyId"] = settings.s3_kms_key_id
    return options


@contextmanager
def translate_object_errors() -> Iterator[None]:
    """Raise ObjectMissing or ObjectUnreadable for errors of an object, not of the server."""
    try:
        yield
    except ClientError as error:
        if error.response["Error"]["Code"] in {"NoSuchKey", "InvalidRange"}:
            raise ObjectMissing(OBJECT_MISSING) from error
        if error.response["ResponseMetadata"]["HTTPStatusCode"] == 500:  # noqa: PLR2004 - HTTP's own number
            raise ObjectUnreadable(OBJECT_UNREADABLE) from error
        raise
    except ReadTimeoutError as error:
        raise ObjectUnreadable(OBJECT_UNREADABLE) from error


class Absent(Exception):
    """The object or upload does not exist. Not raised outside the calls of S3."""


@contextmanager
def translate_absence() -> Iterator[None]:
    """Raise Absent if the object or upload does not exist; pass on other errors."""
    try:
        yield
    except ClientError as error:
        if error.response["Error"]["Code"] in {"NoSuchUpload", "NoSuchKey", "404", "NotFound"}:
            raise Absent from error
        raise


@contextmanager
def translate_client_errors() -> Iterator[None]:
    """Raise Unavailable for all errors of the client. Meanwhile, the thread counts as waiting."""
    try:
        with waiting():
            yield
    except ClientError as error:
        raise Unavailable(
            f"the object store refuses {_describe_error(error)}; nothing was lost, try again"
        ) from error
    except BotoCoreError as error:  # its text names our servers: not for clients
        kind = type(error).__name__
        raise Unavailable(
            f"the object store cannot be used ({kind}); nothing was lost, try again"
        ) from error


def _describe_error(error: ClientError) -> str:
    """Return the operation and S3's error code, as `HeadBucket: NoSuchBucket`.

    Responses to HEAD have no body: the code is then the HTTP status.
    """
    code = re.sub(r"[^A-Za-z0-9.]", "", str(error.response.get("Error", {}).get("Code", "")))[
        :_CODE_CHARS_MAX
    ]
    meaning = _STATUS_MEANINGS.get(code, "")
    return f"{error.operation_name}: {code or 'no error code'}{meaning}"
