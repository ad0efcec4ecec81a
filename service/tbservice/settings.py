"""Settings of `tbservice serve` and `migrate`, read from environment variables TBHUB_*."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class ReservoirSizes(BaseModel):
    """Maximum points of a series in the classic API, by its tag types."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scalars: int = Field(default=10_000, ge=1)
    histograms: int = Field(default=500, ge=1)
    compressedHistograms: int = Field(default=500, ge=1)  # noqa: N815 - the API's name for it
    images: int = Field(default=10, ge=1)
    audio: int = Field(default=10, ge=1)


class Settings(BaseSettings):
    """Every setting, with its unit and its default; secrets are never printed."""

    model_config = SettingsConfigDict(env_prefix="TBHUB_", extra="ignore", frozen=True)

    database_url: SecretStr = Field(
        description="PostgreSQL URL, postgresql://user:password@host:port/name; "
        "the user must own the database and not be a superuser",
    )
    database_pool_size: int = Field(
        default=10, ge=1, le=200, description="Connections of one worker process"
    )
    s3_bucket: str = Field(
        default="tbhub",
        description="Bucket for blobs; created at start-up if it is missing and permissions allow",
    )
    s3_endpoint: str | None = Field(default=None, description="URL of the S3 server; empty for AWS")
    s3_region: str = Field(default="us-east-1", description="Region of the bucket")
    s3_access_key: SecretStr | None = Field(
        default=None, description="Access key; empty: boto3's default credential search"
    )
    s3_secret_key: SecretStr | None = Field(default=None, description="Secret key")
    s3_path_style: bool = Field(
        default=False, description="Address buckets by path instead of by host name"
    )
    s3_ca_file: Path | None = Field(
        default=None, description="PEM file with the certificate authority of the S3 server"
    )
    s3_server_side_encryption: Literal["AES256", "aws:kms"] | None = Field(
        default=None, description="Server-side encryption requested for every object"
    )
    s3_kms_key_id: str | None = Field(default=None, description="Key for aws:kms")
    public_url: str = Field(
        default="http://127.0.0.1:6060",
        description="Public URL of the service; links begin with it",
    )
    allowed_hosts: list[str] = Field(
        default=["*"], description='Accepted Host headers, as a JSON list; ["*"] for any'
    )
    trusted_proxies: str = Field(
        default="127.0.0.1",
        description="Comma-separated addresses and networks of proxies with a trusted "
        "X-Forwarded-For",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on")
    port: int = Field(
        default=6060, ge=0, le=65535, description="Port to listen on; 0 for any free one"
    )
    grpc_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port of the same address for gRPC (Katib); 0 for any free one, empty for none",
    )
    grpc_certificate_file: Path | None = Field(
        default=None, description="PEM file with the certificate chain of the gRPC port"
    )
    grpc_key_file: Path | None = Field(
        default=None, description="PEM file with the private key of that certificate"
    )
    grpc_plaintext: bool = Field(
        default=False,
        description="Serve gRPC without TLS also on an address that is not loopback: only where a "
        "proxy that speaks TLS is the only way in, because calls carry tokens",
    )
    workers: int = Field(default=1, ge=1, le=64, description="Worker processes")
    reservoir_sizes: ReservoirSizes = Field(
        default=ReservoirSizes(),
        description="Maximum points of a series in the classic API, by tag type, as a JSON object",
    )
    people_create_workspaces: bool = Field(
        default=True,
        description="Whether people may create workspaces; otherwise only the administrator, with "
        "`tbservice workspace create`",
    )
    metrics_token: SecretStr | None = Field(
        default=None,
        description="Token for /metrics; empty: only direct clients on this machine may read them",
    )

    @field_validator("grpc_port", "grpc_certificate_file", "grpc_key_file", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        """Accept an empty variable, as Docker Compose sets it where the user has set none."""
        return None if value == "" else value


def read_settings() -> Settings:
    """Return the settings in the environment. Raises ValidationError."""
    return Settings()  # type: ignore[call-arg]  # the required ones come from the environment
