"""A readiness probe of an S3 server, in a separate module because boto3 is slow to import."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

PROBE_KEY = "tbservice-is-ready"


class Probe:
    """An S3 client with short timeouts and without retries."""

    def __init__(self, endpoint: str, region: str, access_key: str, secret_key: str) -> None:
        """Create the client; it does not connect yet."""
        settings = {"addressing_style": "path"}
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=region,
            aws_access_key_id=access_key,
            aws_secret_access_key=secret_key,
            config=Config(
                connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1}, s3=settings
            ),
        )

    def is_ready(self, bucket: str) -> bool:
        """Return whether an object can be written and read back.

        SeaweedFS responds to requests before it can do that.
        """
        try:
            self._client.put_object(Bucket=bucket, Key=PROBE_KEY, Body=b"ready")
            self._client.get_object(Bucket=bucket, Key=PROBE_KEY)["Body"].read()
        except (BotoCoreError, ClientError):
            return False
        return True

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
