"""Settings of `tbservice serve` and `migrate`, read from environment variables TBHUB_*."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from tbservice.errors import StartupError
from tbservice.types.people import Role
from tbservice.types.receipt_keys import parse_keys
from tbservice.types.sign_up import SignUp

_FRAME_ANCESTOR: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>(?:\*\.)?[a-z0-9-]+(?:\.[a-z0-9-]+)*)(?::(?:[0-9]{1,5}|\*))?"
)
"""A source of `frame-ancestors` (CSP, 2.3.1), as far as it is an origin or its subdomains."""

_LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1"})


class ReservoirSizes(BaseModel):
    """Maximum points of a series in the classic API, by its tag types."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scalars: int = Field(default=10_000, ge=1)
    histograms: int = Field(default=500, ge=1)
    compressedHistograms: int = Field(default=500, ge=1)  # noqa: N815 - the API's name for it
    images: int = Field(default=10, ge=1)
    audio: int = Field(default=10, ge=1)


class MembershipRule(BaseModel):
    """Rule that makes people members of a workspace when they sign in at an OpenID provider.

    Either everyone with a confirmed e-mail address of `email_domain`, or everyone whose `claim` has
    this `value`, or is a list with it. A rule adds members and raises roles; it never lowers one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    workspace: int = Field(ge=1, description="Id of the workspace")
    role: Role = Field(default=Role.EDITOR, description="Role of its members")
    email_domain: str | None = Field(default=None, min_length=1, max_length=253)
    claim: str | None = Field(default=None, min_length=1, max_length=200)
    value: str | None = Field(default=None, min_length=1, max_length=1000)

    @model_validator(mode="after")
    def _check_condition(self) -> MembershipRule:
        """Require one condition: a rule without any would admit everyone."""
        is_by_claim = self.claim is not None and self.value is not None
        if is_by_claim == (self.email_domain is not None) or (
            (self.claim is None) != (self.value is None)
        ):
            raise ValueError("a rule has either 'email_domain', or 'claim' and 'value'")
        return self


class OidcProvider(BaseModel):
    """An OpenID Connect provider at which people sign in."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(
        pattern=r"^[a-z0-9][a-z0-9-]{0,39}$",
        description="Part of the redirect URI, <public URL>/sign-in/oidc/<id>/callback",
    )
    name: str = Field(min_length=1, max_length=100, description="Shown on the button")
    issuer: str = Field(
        description="Issuer URL, to which /.well-known/openid-configuration is added"
    )
    client_id: str = Field(min_length=1)
    client_secret: SecretStr | None = Field(default=None, description="Empty for a public client")
    client_secret_file: Path | None = Field(default=None, description="File with the secret")
    scopes: tuple[str, ...] = ("openid", "email", "profile")
    members: tuple[MembershipRule, ...] = ()

    @field_validator("issuer")
    @classmethod
    def _check_issuer(cls, issuer: str) -> str:
        """Require TLS: the provider's keys come from there."""
        return require_tls(issuer)

    @field_validator("scopes")
    @classmethod
    def _check_scopes(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        if "openid" not in scopes:
            raise ValueError("must contain 'openid'")
        return scopes

    def read_client_secret(self) -> str | None:
        """Return the secret, from its file if there is one. Raises OSError."""
        if self.client_secret_file is not None:
            return self.client_secret_file.read_text(encoding="utf-8").strip()
        return self.client_secret.get_secret_value() if self.client_secret else None


def require_tls(url: str) -> str:
    """Return the URL if it is https, or http to this machine; else raise ValueError."""
    parts = urlsplit(url)
    is_local = parts.hostname in {"localhost", "127.0.0.1", "::1"}
    if not parts.hostname or (
        parts.scheme != "https" and not (parts.scheme == "http" and is_local)
    ):
        raise ValueError("must be an https URL (http only to this machine)")
    return url


LogFormat = Literal["text", "json"]


class Settings(BaseSettings):
    """Every setting, with its unit and its default; secrets are never printed."""

    # An empty variable is like none: Docker Compose passes on what nobody has set as empty.
    model_config = SettingsConfigDict(
        env_prefix="TBHUB_", env_ignore_empty=True, extra="ignore", frozen=True
    )

    database_url: SecretStr = Field(
        description="PostgreSQL URL, postgresql://user:password@host:port/name; "
        "the user must own the database and not be a superuser",
    )
    read_database_url: SecretStr | None = Field(
        default=None,
        description="URL of a streaming replica of that PostgreSQL, from which pages and the API "
        "read; empty: everything is read from the primary",
    )
    backup_database_url: SecretStr | None = Field(
        default=None,
        description="PostgreSQL URL for `tbservice backup`, of a role that reads all rows "
        "(BYPASSRLS and pg_read_all_data); empty: TBHUB_DATABASE_URL",
    )
    plans_file: Path | None = Field(
        default=None,
        description="TOML file with the limits of each plan for workspaces; `default` is that of "
        "workspaces without one. Empty: the plans that were stored last, at first none",
    )
    backup_s3_endpoint: str | None = Field(
        default=None,
        description="URL of the S3 server of backups (s3://…); empty: that of TBHUB_S3_ENDPOINT",
    )
    backup_s3_region: str | None = Field(
        default=None, description="Region of its bucket; empty: that of TBHUB_S3_REGION"
    )
    backup_s3_access_key: SecretStr | None = Field(
        default=None, description="Access key there; empty: TBHUB_S3_ACCESS_KEY"
    )
    backup_s3_secret_key: SecretStr | None = Field(default=None, description="Secret key there")
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
    sweep_hours: float = Field(
        default=24,
        ge=0,
        le=24 * 365,
        description="Hours between two sweeps of a workspace, which delete objects that nothing "
        "refers to; 0: none are deleted but by `tbservice sweep-objects --delete`",
    )
    backup_keep_days: float | None = Field(
        default=None,
        ge=0,
        le=3650,
        description="Days for which backups are kept: receipts of deletion then say until when one "
        "has what was deleted; empty: they do not",
    )
    sweep_older_than_days: float = Field(
        default=1,
        ge=0,
        le=3650,
        description="Days that an object is kept at least after it was stored: as many as lie "
        "between two backups",
    )
    sweep_objects_per_second: float = Field(
        default=50,
        gt=0,
        le=100_000,
        description="Objects that sweeps delete in a second at most, in all processes together",
    )
    public_url: str = Field(
        default="http://127.0.0.1:6060",
        description="Public URL of the service; links begin with it",
    )
    content_url: str | None = Field(
        default=None,
        description="Origin of the pages that show what was uploaded, with another host name than "
        "the public URL; empty: below the public URL",
    )
    frame_ancestors: tuple[str, ...] = Field(
        default=(),
        description="Origins whose pages may show TensorBoard's pages in a frame, for example "
        'those of notebooks, as a JSON list: ["https://jupyter.example.org"]; empty: none',
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
    requests_per_second: float = Field(
        default=100,
        ge=0,
        le=1_000_000,
        description="Requests per second that one worker processes of one client address without "
        "an account; four times as many of an account; 0 for no limit",
    )
    workers: int = Field(default=1, ge=1, le=64, description="Worker processes")
    reservoir_sizes: ReservoirSizes = Field(
        default=ReservoirSizes(),
        description="Maximum points of a series in the classic API, by tag type, as a JSON object",
    )
    oidc_providers: tuple[OidcProvider, ...] = Field(
        default=(),
        description="OpenID Connect providers at which people sign in, as a JSON list of objects; "
        "empty: by one-time links alone (`tbservice user invite`)",
    )
    people_create_workspaces: bool = Field(
        default=True,
        description="Whether people may create workspaces; otherwise only the administrator, with "
        "`tbservice workspace create`",
    )
    sign_up: str = Field(
        default="open",
        description="Who gets an account without an administrator: `open`: who signs in at a "
        "provider, or has an invitation; `invitation`: who has one; `closed`: nobody; or domains "
        "of e-mail addresses, with commas between them: who has an address of one of them",
    )
    audit_days: int = Field(
        default=400,
        ge=1,
        le=100_000,
        description="Days after which `tbservice expire-audit` deletes records of the audit log",
    )
    log_format: LogFormat = Field(
        default="text",
        description="Format of the log: lines for people, or a JSON object per line",
    )
    traces_endpoint: str | None = Field(
        default=None,
        pattern="^https?://",
        description="URL to which traces are sent by OTLP over HTTP; empty: there are none",
    )
    receipt_keys: SecretStr | None = Field(
        default=None,
        description="Ed25519 keys of receipts of deletion, with commas between: the first private "
        "one signs, all are published; empty: receipts are not signed",
    )
    metrics_token: SecretStr | None = Field(
        default=None,
        description="Token for /metrics, or several with commas between, to replace one; empty: "
        "only direct clients on this machine may read them",
    )

    @field_validator("receipt_keys")
    @classmethod
    def _check_receipt_keys(cls, keys: SecretStr | None) -> SecretStr | None:
        if keys is not None:
            parse_keys(keys.get_secret_value())
        return keys

    @field_validator("oidc_providers")
    @classmethod
    def _check_ids(cls, providers: tuple[OidcProvider, ...]) -> tuple[OidcProvider, ...]:
        if len({provider.id for provider in providers}) < len(providers):
            raise ValueError("two providers have the same id")
        return providers

    @field_validator("sign_up")
    @classmethod
    def _check_sign_up(cls, text: str) -> str:
        SignUp.parse(text)
        return text

    @field_validator("frame_ancestors")
    @classmethod
    def _check_frame_ancestors(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        """Require origins, with TLS except on this machine: what is there acts for its readers."""
        for origin in origins:
            parts = _FRAME_ANCESTOR.fullmatch(origin)
            if parts is None or (parts["scheme"] == "http" and parts["host"] not in _LOCAL_HOSTS):
                raise ValueError(
                    f"{origin!r} must be https:// and a host, which may begin with '*.', perhaps "
                    "with a port or ':*'; http:// only with localhost or 127.0.0.1"
                )
        return origins

    @field_validator("content_url")
    @classmethod
    def _check_content_url(cls, url: str | None) -> str | None:
        """Require TLS, and nothing but an origin."""
        if url is None:
            return None
        parts = urlsplit(require_tls(url))
        if parts.path not in {"", "/"} or parts.query or parts.fragment or "@" in parts.netloc:
            raise ValueError("must be an origin: a scheme, a host and perhaps a port")
        return f"{parts.scheme}://{parts.netloc.lower()}"

    @model_validator(mode="after")
    def _check_origins(self) -> Settings:
        """Require two host names: browsers send the cookies of a host to all of its ports."""
        if self.content_url is not None:
            hosts = {urlsplit(url).hostname for url in (self.content_url, self.public_url)}
            if len(hosts) == 1:
                raise ValueError(
                    "content_url needs another host name than public_url: browsers share cookies "
                    "between the ports of a host (on one machine, 127.0.0.1 and localhost will do)"
                )
        return self


def read_settings(**given: Any) -> Settings:
    """Return the given settings, and all others from the environment.

    Raises ValidationError and StartupError.
    """
    try:
        return Settings(**given)
    except SettingsError as error:  # its text names the field, and not the variable
        field = re.search(r'field "(\w+)"', str(error))
        name = f"TBHUB_{field[1].upper()}" if field else str(error)
        raise StartupError(
            f"{name} is no JSON; shells and unit files remove quotes: put all of it between '…'"
        ) from None
