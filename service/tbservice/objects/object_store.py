"""All S3 calls: one bucket, one object per blob."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from botocore.exceptions import BotoCoreError, ClientError

from tbservice.errors import ObjectMissing, ObjectUnreadable
from tbservice.objects.outage import OutageDetector
from tbservice.objects.s3_client import (
    OBJECT_MISSING,
    OBJECT_UNREADABLE,
    Absent,
    encryption_options,
    make_client,
    translate_absence,
    translate_client_errors,
    translate_object_errors,
)
from tbservice.settings import Settings

_CHUNK_BYTES = 256 * 1024
_ANSWER_SECONDS_MAX = 15
"""Read timeout of other calls. After one, all calls fail at once until the store answers."""
_PROBE_SECONDS_MAX = 3
"""Read timeout of health checks and brief reads, which their callers repeat soon."""


@dataclass(frozen=True, slots=True)
class ObjectPart:
    """An uploaded part of a multipart upload: its number from 1, bytes, and S3's ETag."""

    number: int
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object as a listing has it: its size in bytes, and when it was written (Unix time)."""

    key: str
    size: int
    modified_at: float


class ObjectStore:
    """An S3 bucket.

    Every method raises Unavailable when the server cannot be reached or refuses the call: no data
    was lost, and the caller may try again.
    """

    def __init__(self, settings: Settings) -> None:
        self._bucket = settings.s3_bucket
        self._region = settings.s3_region
        self._put_options = encryption_options(settings)
        self._client = make_client(settings, read_timeout=_ANSWER_SECONDS_MAX, attempts=3)
        self._probe = make_client(settings, read_timeout=_PROBE_SECONDS_MAX, attempts=1)
        self._outage = OutageDetector(lambda: self._probe.head_bucket(Bucket=self._bucket))
        self._outage.watch(self._client)

    def ensure_bucket(self) -> None:
        """Create the bucket if it does not exist."""
        with translate_client_errors():
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
        # https://docs.aws.amazon.com/AmazonS3/latest/API/API_CreateBucket.html
        except ClientError as error:  # another process created it
            if error.response["Error"]["Code"] not in {
                "BucketAlreadyOwnedByYou",
                "BucketAlreadyExists",
            }:
                raise

    def put(self, key: str, content: bytes | IO[bytes]) -> None:
        """Write a complete object. Idempotent.

        A file is read from its current position to its end.
        """
        with translate_client_errors():
            self._client.put_object(Bucket=self._bucket, Key=key, Body=content, **self._put_options)

    def read(self, key: str, start: int, end: int, *, is_brief: bool = False) -> Iterator[bytes]:
        """Stream the bytes [start, end) of an object in chunks of up to 256 KiB.

        The request is sent before this returns, so that errors are raised here.

        Args:
            key: The object's key.
            start: First byte.
            end: Byte after the last one.
            is_brief: Send the request once, and fail after `_PROBE_SECONDS_MAX` without a response.
                Otherwise it is sent up to three times: SeaweedFS takes many seconds each time to
                fail on an unreadable object.

        Raises:
            ObjectMissing: The object does not exist or ends before `end`.
            ObjectUnreadable: The server has the object and fails to read it; also raised while
                the chunks are read.
        """
        if start >= end:
            return iter(())
        client = self._probe if is_brief else self._client
        with translate_client_errors(), translate_object_errors():
            answer = client.get_object(
                Bucket=self._bucket, Key=key, Range=f"bytes={start}-{end - 1}"
            )
        # S3 shortens a range that ends behind the object: RFC 9110, section 14.1.2.
        if answer["ContentLength"] != end - start:
            answer["Body"].close()
            raise ObjectMissing(OBJECT_MISSING)
        return _stream_chunks(answer["Body"])

    def find_size(self, key: str) -> int | None:
        """Return an object's size in bytes; None if it does not exist."""
        with translate_client_errors(), suppress(Absent), translate_absence():
            size: int = self._client.head_object(Bucket=self._bucket, Key=key)["ContentLength"]
            return size
        return None

    def list_sizes(self, first_key: str) -> dict[str, int]:
        """Return the sizes in bytes of up to 1,000 objects of a workspace, from a key on, by key.

        Keys ascend. A few keys before `first_key` may be included.
        """
        prefix = first_key.partition("/")[0] + "/"
        start_after = first_key[:-1]  # S3 excludes the key that it starts after
        with translate_client_errors():
            answer = self._client.list_objects_v2(
                Bucket=self._bucket, Prefix=prefix, StartAfter=start_after
            )
        return {listed["Key"]: listed["Size"] for listed in answer.get("Contents", [])}

    def list_objects(
        self, prefix: str = "", after: str = "", up_to: str = ""
    ) -> Iterator[ListedObject]:
        """Yield the objects whose keys begin with `prefix` and follow `after`, by key.

        `up_to` is the last key that is wanted; "" for all.
        """
        is_last = False
        while not is_last:
            with translate_client_errors():
                answer = self._client.list_objects_v2(
                    Bucket=self._bucket, Prefix=prefix, StartAfter=after
                )
            for listed in answer.get("Contents", []):
                after = listed["Key"]
                if up_to and after > up_to:
                    return
                yield ListedObject(after, listed["Size"], listed["LastModified"].timestamp())
            # Continued by key: it needs no state of the server, unlike a continuation token.
            is_last = not answer.get("IsTruncated", False)

    def delete(self, key: str) -> None:
        """Delete an object. Idempotent."""
        with translate_client_errors():
            self._client.delete_object(Bucket=self._bucket, Key=key)

    def create_multipart(self, key: str) -> str:
        """Create a multipart upload and return its id."""
        with translate_client_errors():
            answer = self._client.create_multipart_upload(
                Bucket=self._bucket, Key=key, **self._put_options
            )
        upload_id: str = answer["UploadId"]
        return upload_id

    def put_part(self, key: str, upload_id: str, number: int, content: bytes | IO[bytes]) -> bool:
        """Upload a part, numbered from 1. Idempotent. Return False if the upload has ended."""
        with translate_client_errors(), suppress(Absent), translate_absence():
            self._client.upload_part(
                Bucket=self._bucket, Key=key, UploadId=upload_id, PartNumber=number, Body=content
            )
            return True
        return False

    def list_parts(self, key: str, upload_id: str) -> list[ObjectPart] | None:
        """Return the uploaded parts by number; None if the upload has ended."""
        with translate_client_errors(), suppress(Absent), translate_absence():
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
        """Create the object from its parts, which ends the upload. No error if it has ended."""
        listed = [{"PartNumber": part.number, "ETag": part.etag} for part in parts]
        with translate_client_errors(), suppress(Absent), translate_absence():
            self._client.complete_multipart_upload(
                Bucket=self._bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": listed}
            )

    def abort_multipart(self, key: str, upload_id: str) -> None:
        """End an upload and delete its parts. No error if it has ended."""
        with translate_client_errors(), suppress(Absent), translate_absence():
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id)

    def check(self) -> None:
        """Check that the bucket responds within seconds. Raises Unavailable if not."""
        with translate_client_errors():
            self._probe.head_bucket(Bucket=self._bucket)

    def close(self) -> None:
        """Close all connections."""
        self._outage.close()
        self._client.close()
        self._probe.close()


def _stream_chunks(body: Any) -> Iterator[bytes]:
    try:
        yield from body.iter_chunks(_CHUNK_BYTES)
    except (BotoCoreError, ClientError) as error:
        raise ObjectUnreadable(OBJECT_UNREADABLE) from error
