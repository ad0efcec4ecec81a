"""Usage of a workspace: how much it stores, of what, by whom and since when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

from tbservice.experiments.tables import workspace_usage
from tbservice.quotas import room
from tbservice.quotas.tables import (
    traffic_groups,
    usage_counters,
    workspace_quotas,
    workspace_traffic,
)
from tbservice.types.experiments import WorkspaceUsage
from tbservice.types.grants import WorkspaceGrant
from tbservice.types.identifiers import ExperimentId, WorkspaceId
from tbservice.types.quotas import (
    EXPERIMENT,
    OTHERS,
    PERSON,
    Quota,
    Traffic,
    TrafficGroup,
    Usage,
    UsageTotals,
)

USAGE_EXPERIMENTS_ITEMS_MAX: Final = 10_000
"""Experiments (items) that the usage of a workspace names, the largest first."""


def read_usage(db: Connection, grant: WorkspaceGrant, largest: int) -> WorkspaceUsage:
    """Return what the workspace stores, and its `largest` experiments.

    Of each month, also the `largest` people and experiments by requests. `grant` is for the scope
    read. Deleted experiments count until they are erased, blobs until they
    are swept. Requests and exported bytes are those that workers have stored, some seconds ago.
    Reads a row per experiment, and no series.
    """
    months, members = workspace_usage.list_groups(db, grant.workspace_id)
    return WorkspaceUsage(
        read_totals(db, grant),
        _find_account_totals(db, grant.workspace_id),
        months,
        members,
        workspace_usage.list_largest(db, grant.workspace_id, largest),
        workspace_traffic.list_months(db, grant.workspace_id),
        _list_traffic_groups(db, grant.workspace_id, largest),
    )


def read_totals(db: Connection, grant: WorkspaceGrant) -> UsageTotals:
    """Return what the workspace stores and may store; `grant` is for the scope read."""
    experiments, copies, uncounted, arrived = workspace_usage.count_all(db, grant.workspace_id)
    members = workspace_quotas.count_members(db, grant.workspace_id)
    if not usage_counters.exist(db):
        return UsageTotals(
            Quota(), Usage(arrived), experiments, members, copies, experiments + copies
        )
    return UsageTotals(
        workspace_quotas.WORKSPACES.find(db, grant.workspace_id),
        usage_counters.sum_all(db, grant.workspace_id),
        experiments,
        members,
        copies,
        uncounted,
        workspace_traffic.find_present(db, grant.workspace_id),
    )


def read_account_totals(db: Connection, level: room.Level) -> UsageTotals:
    """Return what the workspaces of an account store and may store together."""
    stored, experiments, members, traffic = Usage(), 0, 0, Traffic()
    for workspace_id in level.visit(db):
        stored = stored.plus(usage_counters.sum_all(db, workspace_id))
        experiments += workspace_quotas.count_experiments(db, workspace_id)
        members += workspace_quotas.count_members(db, workspace_id)
        traffic = traffic.plus(workspace_traffic.find_present(db, workspace_id))
    return UsageTotals(level.quota, stored, experiments, members, traffic=traffic)


def _list_traffic_groups(
    db: Connection, workspace_id: WorkspaceId, largest: int
) -> list[TrafficGroup]:
    """Return people and experiments by month, latest first, those with the most requests first.

    Frozen copies count for their experiment, erased experiments for `OTHERS`.
    """
    listed = traffic_groups.list_all(db, workspace_id)
    ids = sorted({each.key for each in listed if each.kind == EXPERIMENT})
    names = workspace_usage.find_names(db, workspace_id, ids) if ids else {}
    copied = [shown for shown, _, _ in names.values() if shown not in names]
    if copied:
        names |= workspace_usage.find_names(db, workspace_id, copied)
    merged: dict[tuple[str, str, str], TrafficGroup] = {}
    for each in listed:
        group = each
        if each.kind == EXPERIMENT:
            key = names[each.key][0] if each.key in names else OTHERS
            _, name, is_deleted = names.get(key, ("", "", False))
            group = each._replace(key=key, name=name, is_deleted=is_deleted)
        place = group.month, group.kind, group.key
        if place in merged:
            group = group._replace(traffic=group.traffic.plus(merged[place].traffic))
        merged[place] = group
    numbers: Counter[tuple[str, str]] = Counter()
    shown = []
    for group in sorted(merged.values(), key=lambda each: (-each.traffic.requests, each.key)):
        numbers[group.month, group.kind] += 1
        if numbers[group.month, group.kind] <= largest:
            shown.append(group)
    shown.sort(key=lambda each: (each.month, each.kind == PERSON), reverse=True)
    return shown


def _find_account_totals(db: Connection, workspace_id: WorkspaceId) -> UsageTotals | None:
    """Return the totals of a workspace's account; None if it has no quota."""
    if not usage_counters.exist(db):
        return None
    accounts = [each for each in room.find_levels(db, workspace_id) if each.holder == "account"]
    return read_account_totals(db, accounts[0]) if accounts else None


def list_experiments_to_count(
    db: Connection, workspace_id: WorkspaceId, *, counts_all: bool
) -> Sequence[ExperimentId]:
    """Return the experiments that have no counter, or all. For administrators."""
    return workspace_usage.list_to_count(db, workspace_id, counts_all=counts_all)
