"""The settings with which the service connects to an embedded instance."""

from __future__ import annotations

from pydantic import SecretStr

from tbservice.local.embedded import seaweedfs
from tbservice.local.embedded.instance import Instance
from tbservice.settings import Settings


def make_settings(instance: Instance, *, host: str, port: int, public_url: str) -> Settings:
    """Return settings for the instance's servers; all others come from the environment."""
    secrets = instance.directory.secrets
    return Settings(
        database_url=SecretStr(instance.postgres.url()),
        s3_bucket=seaweedfs.BUCKET,
        s3_endpoint=instance.seaweedfs.endpoint,
        s3_region=seaweedfs.REGION,
        s3_access_key=SecretStr(secrets.s3_access_key),
        s3_secret_key=SecretStr(secrets.s3_secret_key),
        s3_path_style=True,
        s3_ca_file=None,
        s3_server_side_encryption=None,
        s3_kms_key_id=None,
        host=host,
        port=port,
        public_url=public_url,
    )
