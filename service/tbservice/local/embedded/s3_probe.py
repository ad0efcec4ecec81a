"""Asks whether an S3 server does its work; apart from the rest because boto3 takes long to import."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

PROBE_KEY = "tbservice-is-ready"


class Probe:
    """A client that gives up soon and tries once."""

    def __init__(self, endpoint: str, region: str, access_key: str, secret_key: str) -> None:
        """Connects to nothing yet."""
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
        """Tells whether an object can be written and read back, which is later than the first answer."""
        try:
            self._client.put_object(Bucket=bucket, Key=PROBE_KEY, Body=b"ready")
            self._client.get_object(Bucket=bucket, Key=PROBE_KEY)["Body"].read()
        except (BotoCoreError, ClientError):
            return False
        return True

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()
