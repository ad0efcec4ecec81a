"""Routes for the receipts of deletion of a workspace, and the public keys that verify them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from tbservice.api.http.dependencies import MayManage, UsesDatabase, UsesSettings
from tbservice.api.http.request_models import After, page_limit
from tbservice.api.http.routers import make_router
from tbservice.api.v1.people.audit import AuditRecordAnswer
from tbservice.audit.receipts import list_receipts
from tbservice.audit.signatures import list_public_keys, sign

router = make_router(prefix="/api/v1", tags=["workspaces"])


class PublicReceiptKey(BaseModel):
    """A public Ed25519 key as a JSON Web Key (RFC 7517, RFC 8037)."""

    kty: Literal["OKP"]
    crv: Literal["Ed25519"]
    x: str = Field(description="Its 32 bytes, in base64url")
    kid: str = Field(description="Its thumbprint (RFC 7638), which signatures name")
    use: Literal["sig"]
    alg: Literal["EdDSA"]


class ReceiptKeySet(BaseModel):
    """The public keys of receipts; none if the service does not sign them."""

    keys: list[PublicReceiptKey]


class ReceiptAnswer(BaseModel):
    """The proof that an experiment, a run or a series was erased."""

    kind: Literal["experiment", "run", "series"]
    experiment_id: str
    name: str | None = Field(None, description="Of the experiment; null for a run or a series")
    run: str | None = Field(None, description="Of a run or a series: the run's name")
    tag: str | None = Field(None, description="Of a series: its tag")
    deleted_at: datetime = Field(description="When nobody could read it any more")
    points: int | None = Field(
        None,
        description="Points that the experiment had received; points that the run or series had, "
        "null if they were not counted",
    )
    bytes: int | None = Field(None, description="Their size in bytes, estimated")
    objects: int | None = Field(
        None, description="Objects of the bucket that it referred to; others may use some"
    )
    rows: int | None = Field(
        None,
        description="Of an experiment: rows that were deleted, of its frozen copies, too; null if "
        "the service was started again meanwhile",
    )
    frozen_copies: int | None = Field(
        None, description="Of an experiment: frozen copies that were erased with it; null as `rows`"
    )
    frozen_copies_kept: int | None = Field(
        None, description="Of an experiment: frozen copies that its links show on"
    )
    object_bytes: int | None = Field(None, description="Their bytes; tensors are in both")
    erased_at: datetime = Field(description="When the tables had no row of it any more")
    objects_gone_at: datetime | None = Field(
        description="End of the first sweep of the bucket that has looked at all objects which it "
        "left; null until then"
    )
    last_backup_at: datetime | None = Field(
        description="When the last backup of `tbservice backup` began before it was erased: none "
        "that began later has it. null: none is recorded"
    )
    backups_until: datetime | None = Field(
        description="Until when a backup may have it; null until the objects are gone, or if the "
        "operator has not said how long backups are kept"
    )
    erased: AuditRecordAnswer = Field(description="The record of the erasure in the audit log")
    swept: AuditRecordAnswer | None = Field(description="The record of that sweep")
    issuer: str = Field(description="Public URL of the service that states this")
    signature: str | None = Field(
        description="JSON Web Signature (RFC 7515, EdDSA) whose payload is this receipt without "
        "this field and null ones, by a key of `/api/v1/receipt-keys`; null: the service has no key"
    )


class ReceiptPage(BaseModel):
    """A page of receipts, the last erased first."""

    receipts: list[ReceiptAnswer]
    next: str | None = Field(description="Page token: pass it as `after`; null on the last page")


@router.get("/receipt-keys")
def list_receipt_keys(settings: UsesSettings) -> ReceiptKeySet:
    """Return the public keys of receipts of deletion, as a JWK Set (RFC 7517). Needs no token.

    The first one signs; the others have signed before, or will.
    """
    return ReceiptKeySet(**list_public_keys(settings.receipt_keys))


@router.get("/workspaces/{workspace_id}/receipts")
def list_workspace_receipts(
    grant: MayManage,
    database: UsesDatabase,
    settings: UsesSettings,
    after: After = None,
    limit: Annotated[int, page_limit("receipts")] = 100,
) -> ReceiptPage:
    """List what was erased, and when it was gone from the tables and from the bucket.

    Needs the scope admin, and of a person, the role owner. Each digest continues the chain of the
    audit log, which `tbservice check` verifies.
    """
    with database.snapshot(grant) as db:
        page, following = list_receipts(db, grant, after, limit)
    stated = [each.to_json(settings.backup_keep_days) for each in page]
    signed = [sign(each, settings.receipt_keys, settings.public_url) for each in stated]
    return ReceiptPage(receipts=[ReceiptAnswer(**each) for each in signed], next=following)
