"""The S3 calls: one bucket, one object a blob."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import IO, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError

from tbservice import metrics
from tbservice.errors import ObjectMissing, ObjectUnreadable, Unavailable
from tbservice.settings import Settings

_CHUNK_BYTES = 256 * 1024
_CONNECTIONS_MAX = 32
_OBJECT_MISSING = "the object store has lost these bytes: `tbupload verify --repair` sends them again from the files"
_OBJECT_UNREADABLE = "the object store fails to read this object; try again, or check it with `tbupload verify --deep`"
_PROBE_SECONDS_MAX = (
    3  # whoever asks whether we are ready, or briefly for an object, asks again soon
)


_CODE_CHARS_MAX = 64
_STATUS_MEANINGS = {"403": " (AccessDenied)", "404": " (NoSuchBucket or NoSuchKey)"}


@dataclass(frozen=True, slots=True)
class ObjectPart:
    """A part of an object that is being put; `size` in bytes, `tag` is what S3 calls its content."""

    number: int
    size: int
    etag: str


class ObjectStore:
    """An S3 bucket. Every method raises Unavailable when the server is away or refuses: nothing was lost, try again."""

    def __init__(self, settings: Settings) -> None:
        self._bucket = settings.s3_bucket
        self._region = settings.s3_region
        self._put_options = _encryption_options(settings)
        self._client = _make_client(settings, read_timeout=60, attempts=3)
        self._probe = _make_client(settings, read_timeout=_PROBE_SECONDS_MAX, attempts=1)

    def ensure_bucket(self) -> None:
        """Makes the bucket where it is missing."""
        with _translate_client_errors():
            try:
                self._client.head_bucket(Bucket=self._bucket)
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:  # noqa: PLR2004 - HTTP's own number
                    raise
                self._create_bucket()

    def _create_bucket(self) -> None:
        options: dict[str, Any] = {}
        if self._region != "us-east-1":  # AWS refuses its own default region as a location
            options["CreateBucketConfiguration"] = {"LocationConstraint": self._region}
        try:
            self._client.create_bucket(Bucket=self._bucket, **options)
        except ClientError as error:  # another process was quicker
            if error.response["Error"]["Code"] not in {
                "BucketAlreadyOwnedByYou",
                "BucketAlreadyExists",
            }:
                raise

    def put(self, key: str, content: bytes | IO[bytes]) -> None:
        """Writes an object whole; writing it again changes nothing. A file is read from where it stands to its end."""
        with _translate_client_errors():
            self._client.put_object(Bucket=self._bucket, Key=key, Body=content, **self._put_options)

    def read(self, key: str, start: int, end: int, *, is_brief: bool = False) -> Iterator[bytes]:
        """The bytes [start, end) of an object, in pieces; the first piece is asked for before this returns.

        Raises ObjectMissing when the object, or a part of this range, is not there; ObjectUnreadable when the server
        knows the object and fails to read it: SeaweedFS takes many seconds for that, three times. With `is_brief` it is
        asked once, and has failed when it is silent for `_PROBE_SECONDS_MAX`.
        """
        if start >= end:
            return iter(())
        client = self._probe if is_brief else self._client
        with _translate_client_errors(), _translate_object_errors():
            answer = client.get_object(
                Bucket=self._bucket, Key=key, Range=f"bytes={start}-{end - 1}"
            )
        if answer["ContentLength"] != end - start:
            answer["Body"].close()
            raise ObjectMissing(_OBJECT_MISSING)
        return _stream_chunks(answer["Body"])

    def find_size(self, key: str) -> int | None:
        """An object's size in bytes; None when there is none."""
        with _translate_client_errors(), suppress(_Absent), _translate_absence():
            size: int = self._client.head_object(Bucket=self._bucket, Key=key)["ContentLength"]
            return size
        return None

    def list_sizes(self, first_key: str) -> dict[str, int]:
        """Return the sizes in bytes of up to 1,000 objects of a workspace from this key on, in the order of the keys.

        A few keys before it may be among them.
        """
        prefix = first_key.partition("/")[0] + "/"
        with (
            _translate_client_errors()
        ):  # S3 lists what comes after a key: after the beginning of this one
            answer = self._client.list_objects_v2(
                Bucket=self._bucket, Prefix=prefix, StartAfter=first_key[:-1]
            )
        return {found["Key"]: found["Size"] for found in answer.get("Contents", [])}

    def delete(self, key: str) -> None:
        """Deletes an object; one that is not there is fine."""
        with _translate_client_errors():
            self._client.delete_object(Bucket=self._bucket, Key=key)

    def create_multipart(self, key: str) -> str:
        """Begins an object that is put in parts, and answers the id of its upload."""
        with _translate_client_errors():
            answer = self._client.create_multipart_upload(
                Bucket=self._bucket, Key=key, **self._put_options
            )
        upload_id: str = answer["UploadId"]
        return upload_id

    def put_part(self, key: str, upload_id: str, number: int, content: bytes | IO[bytes]) -> bool:
        """Writes a part, numbered from 1; writing it again is fine. False when the upload has ended."""
        with _translate_client_errors(), suppress(_Absent), _translate_absence():
            self._client.upload_part(
                Bucket=self._bucket, Key=key, UploadId=upload_id, PartNumber=number, Body=content
            )
            return True
        return False

    def list_parts(self, key: str, upload_id: str) -> list[ObjectPart] | None:
        """The parts that are there, by number; None when the upload has ended."""
        with _translate_client_errors(), suppress(_Absent), _translate_absence():
            pages = self._client.get_paginator("list_parts").paginate(
                Bucket=self._bucket, Key=key, UploadId=upload_id
            )
            return [
                ObjectPart(part["PartNumber"], part["Size"], part["ETag"])
                for page in pages
                for part in page.get("Parts", [])
            ]
        return None

    def complete_multipart(self, key: str, upload_id: str, parts: Sequence[ObjectPart]) -> None:
        """Makes the object out of its parts; the upload ends. One that has ended already is fine."""
        listed = [{"PartNumber": part.number, "ETag": part.etag} for part in parts]
        with _translate_client_errors(), suppress(_Absent), _translate_absence():
            self._client.complete_multipart_upload(
                Bucket=self._bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": listed}
            )

    def abort_multipart(self, key: str, upload_id: str) -> None:
        """Ends an upload and deletes its parts. One that has ended already is fine."""
        with _translate_client_errors(), suppress(_Absent), _translate_absence():
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id)

    def check(self) -> None:
        """Raises Unavailable unless the bucket answers within seconds."""
        with _translate_client_errors():
            self._probe.head_bucket(Bucket=self._bucket)

    def close(self) -> None:
        """Closes every connection."""
        self._client.close()
        self._probe.close()


@cache
def get_session() -> boto3.session.Session:
    """What all clients of this process are made of: to read S3's description takes longer than all else at a start."""
    return boto3.session.Session()


def _make_client(settings: Settings, *, read_timeout: int, attempts: int) -> Any:
    """A client of the settings' server; nothing is sent yet. `read_timeout` is in seconds, for each attempt."""
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
            # Not every S3-compatible server knows the newer checksum headers; a blob's name is its SHA-256 anyway.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )
    client.meta.events.register("after-call.s3", _count_response)
    client.meta.events.register("after-call-error.s3", _count_failure)
    return client


def _count_response(model: Any, http_response: Any, **_: object) -> None:
    metrics.observe_object_call(model.name, http_response.status_code)


def _count_failure(event_name: str, **_: object) -> None:
    metrics.observe_object_call(event_name.rpartition(".")[2], None)


def _addressing_style(settings: Settings) -> str:
    if settings.s3_path_style:
        return "path"
    return (
        "virtual" if settings.s3_endpoint else "auto"
    )  # with an endpoint of our own, "auto" means by path


def _encryption_options(settings: Settings) -> dict[str, str]:
    options: dict[str, str] = {}
    if settings.s3_server_side_encryption:
        options["ServerSideEncryption"] = settings.s3_server_side_encryption
    if settings.s3_kms_key_id:
        options["SSEKMSKeyId"] = settings.s3_kms_key_id
    return options


def _stream_chunks(body: Any) -> Iterator[bytes]:
    try:
        yield from body.iter_chunks(_CHUNK_BYTES)
    except (BotoCoreError, ClientError) as error:
        raise ObjectUnreadable(_OBJECT_UNREADABLE) from error


@contextmanager
def _translate_object_errors() -> Iterator[None]:
    """Tell an object that is lost from an object store that is away."""
    try:
        yield
    except ClientError as error:
        if error.response["Error"]["Code"] in {"NoSuchKey", "InvalidRange"}:
            raise ObjectMissing(_OBJECT_MISSING) from error
        if error.response["ResponseMetadata"]["HTTPStatusCode"] == 500:  # noqa: PLR2004 - HTTP's own number
            raise ObjectUnreadable(_OBJECT_UNREADABLE) from error
        raise
    except ReadTimeoutError as error:
        raise ObjectUnreadable(_OBJECT_UNREADABLE) from error


class _Absent(Exception):
    """What was asked for is not there; never leaves this module."""


@contextmanager
def _translate_absence() -> Iterator[None]:
    """Tells an object or an upload that is not there from everything else that may go wrong."""
    try:
        yield
    except ClientError as error:
        if error.response["Error"]["Code"] in {"NoSuchUpload", "NoSuchKey", "404", "NotFound"}:
            raise _Absent from error
        raise


@contextmanager
def _translate_client_errors() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise Unavailable(
            f"the object store refuses: {_describe_error(error)}; nothing was lost, try again"
        ) from error
    except BotoCoreError as error:  # its text names our servers, which is for the log alone
        kind = type(error).__name__
        raise Unavailable(
            f"the object store cannot be used ({kind}); nothing was lost, try again"
        ) from error


def _describe_error(error: ClientError) -> str:
    """Return S3's own code, as NoSuchBucket, and the operation; an answer to HEAD has a status instead."""
    code = re.sub(r"[^A-Za-z0-9.]", "", str(error.response.get("Error", {}).get("Code", "")))[
        :_CODE_CHARS_MAX
    ]
    meaning = _STATUS_MEANINGS.get(code, "")
    return f"S3 says {code or 'nothing'}{meaning} to {error.operation_name}"
