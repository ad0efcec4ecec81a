"""Route for what a workspace stores and may store, as JSON or CSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import Query, Response
from pydantic import BaseModel, Field

from tbservice.api.formats.csv_fields import quote
from tbservice.api.http.dependencies import MaySeeMembers, UsesDatabase
from tbservice.api.http.routers import make_router
from tbservice.experiments import usage
from tbservice.types.experiments import WorkspaceUsage
from tbservice.types.quotas import EXPERIMENT, PERSON, Traffic, Usage, UsageTotals

router = make_router(prefix="/api/v1/workspaces/{workspace_id}/usage", tags=["workspaces"])

_CSV = "text/csv; charset=utf-8"


class LimitAnswer(BaseModel):
    """How much of a limit is used."""

    used: int
    limit: int | None = Field(description="null: no limit")
    remaining: int | None = Field(description="null: no limit; 0 also if more is used")


class StoredAnswer(BaseModel):
    """Points and bytes that are stored, with those of earlier attempts and of frozen copies."""

    scalars: int
    tensors: int
    blob_sequences: int
    tensor_bytes: int = Field(description="Bytes of the values of tensors")
    blob_bytes: int = Field(
        description="Bytes of the blobs that came by these experiments first: each is stored once"
    )


class MonthAnswer(StoredAnswer):
    """Usage of the experiments that were created in a month."""

    month: str = Field(description="YYYY-MM, in UTC")
    experiments: int


class CreatorAnswer(StoredAnswer):
    """Usage of the experiments that a person has created, or machines' tokens."""

    user_id: str = Field(description="Empty: machines' tokens")
    name: str
    experiments: int


class TrafficAnswer(BaseModel):
    """Requests of a month, of members, tokens and readers of links together."""

    month: str = Field(description="YYYY-MM, in UTC")
    requests: int = Field(description="Requests that were let in")
    export_bytes: int = Field(description="Bytes of the bodies of their answers, as sent")


class TrafficGroupAnswer(TrafficAnswer):
    """Requests of a month, of a person or an experiment."""

    key: str = Field(
        description="Id of the person or the experiment; `links`: readers of links and of public "
        "pages; `machines`: tokens of machines; `others`: all that are not counted one by one"
    )
    name: str


class StoringExperimentAnswer(StoredAnswer):
    """Usage of an experiment, with its frozen copies."""

    experiment_id: str
    name: str
    frozen_copies: int
    deleted: bool = Field(description="Deleted: it counts until it is erased, or restored")


class UsageAnswer(BaseModel):
    """Usage and limits of a workspace."""

    limits: dict[str, LimitAnswer] = Field(
        description="By name: points, tensor_bytes, blob_bytes, experiments, members; requests "
        "and export_bytes in this month (UTC), which come back with the next one"
    )
    account: dict[str, LimitAnswer] | None = Field(
        description="The same of the account that the workspace belongs to, all workspaces of "
        "which count together; null: it has no quota"
    )
    stored: StoredAnswer
    frozen_copies: int
    uncounted_experiments: int = Field(
        description="Experiments from before quotas that count as what arrived, as scalars: they "
        "are counted exactly when something is added to them, or by an administrator"
    )
    months: list[MonthAnswer] = Field(description="By creation of the experiments, latest first")
    members: list[CreatorAnswer] = Field(description="By who created, the most points first")
    experiments: list[StoringExperimentAnswer] = Field(description="The most points first")
    traffic: list[TrafficAnswer] = Field(
        description="Requests and exported bytes by month, latest first; up to 10 seconds late"
    )
    traffic_people: list[TrafficGroupAnswer] = Field(
        description="The same by person, of 13 months; of each month those with the most requests"
    )
    traffic_experiments: list[TrafficGroupAnswer] = Field(
        description="The same by experiment: a request counts for each that it reads or writes, "
        "one that lists experiments for none"
    )


@router.get(
    "",
    response_model=UsageAnswer,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
def show_usage(
    grant: MaySeeMembers,
    database: UsesDatabase,
    format_: Annotated[
        Literal["json", "csv"],
        Query(alias="format", description="`csv`: a line for each limit and group"),
    ] = "json",
    limit: Annotated[
        int,
        Query(
            ge=0,
            le=usage.USAGE_EXPERIMENTS_ITEMS_MAX,
            description="Maximum experiments; of each month, maximum people and experiments",
        ),
    ] = 100,
) -> UsageAnswer | Response:
    """Return what a workspace stores and may store. Needs the scope read; a machine's token, admin.

    It is exact after each write and deletion. Deleted experiments count until they are erased,
    blobs until they are swept.
    """
    with database.snapshot(grant) as db:
        stored = usage.read_usage(db, grant, limit)
    if format_ == "csv":
        return Response("".join(_csv_lines(stored)), media_type=_CSV)
    return usage_answer(stored)


def usage_answer(stored: WorkspaceUsage) -> UsageAnswer:
    """Return the model of a usage."""
    return UsageAnswer(
        limits=_limits(stored.totals),
        account=None if stored.account is None else _limits(stored.account),
        stored=StoredAnswer(**stored.totals.stored._asdict()),
        frozen_copies=stored.totals.frozen_copies,
        uncounted_experiments=stored.totals.uncounted,
        months=[
            MonthAnswer(month=each.key, experiments=each.experiments, **each.usage._asdict())
            for each in stored.months
        ],
        members=[
            CreatorAnswer(
                user_id=each.key,
                name=each.name,
                experiments=each.experiments,
                **each.usage._asdict(),
            )
            for each in stored.members
        ],
        experiments=[
            StoringExperimentAnswer(
                experiment_id=each.experiment_id,
                name=each.name,
                frozen_copies=each.frozen_copies,
                deleted=each.is_deleted,
                **each.usage._asdict(),
            )
            for each in stored.largest
        ],
        traffic=[
            TrafficAnswer(month=month, **counts._asdict()) for month, counts in stored.traffic
        ],
        traffic_people=_group_answers(stored, PERSON),
        traffic_experiments=_group_answers(stored, EXPERIMENT),
    )


def _group_answers(stored: WorkspaceUsage, kind: str) -> list[TrafficGroupAnswer]:
    return [
        TrafficGroupAnswer(month=each.month, key=each.key, name=each.name, **each.traffic._asdict())
        for each in stored.traffic_groups
        if each.kind == kind
    ]


def _limits(totals: UsageTotals) -> dict[str, LimitAnswer]:
    return {
        name: LimitAnswer(
            used=totals.used(name),
            limit=limit,
            remaining=None if limit is None else max(0, limit - totals.used(name)),
        )
        for name, limit in totals.quota.as_dict().items()
    }


def _csv_lines(stored: WorkspaceUsage) -> Iterator[str]:
    """Yield a header, and a line for each limit, the workspace, and each group; LF ends each."""
    columns = *Usage._fields, "used", "limit", *Traffic._fields, "month"
    yield ",".join(("by", "key", "name", "experiments", *columns)) + "\n"
    for by, totals in (("limit", stored.totals), ("account", stored.account)):
        if totals is None:
            continue
        for name, limit in totals.quota.as_dict().items():
            yield f"{by},{name},,,,,,,,{totals.used(name)},{'' if limit is None else limit},,,\n"
    yield _csv_line("workspace", "", "", stored.totals.experiments, stored.totals.stored)
    for month in stored.months:
        yield _csv_line("month", month.key, "", month.experiments, month.usage)
    for member in stored.members:
        yield _csv_line("member", member.key, member.name, member.experiments, member.usage)
    for each in stored.largest:
        yield _csv_line("experiment", each.experiment_id, each.name, 1, each.usage)
    for traffic_month, counts in stored.traffic:
        yield f"traffic,{traffic_month},,,,,,,,,,{counts.requests},{counts.export_bytes},\n"
    for group in stored.traffic_groups:
        begin = f"traffic_{group.kind},{group.key},{quote(group.name)},,,,,,,,"
        yield begin + f",{group.traffic.requests},{group.traffic.export_bytes},{group.month}\n"


def _csv_line(by: str, key: str, name: str, experiments: int, stored: Usage) -> str:
    numbers = ",".join(map(str, (experiments, *stored)))
    return f"{by},{key},{quote(name)},{numbers},,,,,\n"
