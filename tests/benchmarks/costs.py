"""What tbhub takes for a number of users, from measured costs and stated assumptions: prints the
tables of docs/scaling.md.

`python tests/benchmarks/costs.py --core 30 --users 100000` computes with other prices and users.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, fields

DAY = 86_400
MONTH = 30 * DAY


@dataclass(frozen=True)
class Measured:
    """Costs of one thing, measured on the machine of docs/benchmarks.md."""

    serve_ms_per_flush: float = 5.0
    postgres_ms_per_flush: float = 2.0
    wal_kb_per_flush: float = 20.0
    serve_ms_per_request: float = 20.0
    postgres_ms_per_request: float = 10.0
    cpu_seconds_per_million_bulk: float = 0.1
    citus_ms_per_flush: float = 4.9
    """Of all nodes: measured in memory, and what the disk adds on plain PostgreSQL."""
    citus_serve_ms_per_flush: float = 6.3
    """Of the service, which sends more statements."""
    citus_ms_per_request: float = 11.0
    citus_cpu_seconds_per_million_bulk: float = 0.25
    disk_bytes_per_point: float = 12.0
    memory_gb_per_serve_core: float = 2.5


@dataclass(frozen=True)
class Assumptions:
    """What users do. Averages of a month, except the peak."""

    users: float = 1_000_000
    active: float = 0.10
    """Share of the users who train or look in a month."""
    live_hours_per_active_per_day: float = 1.2
    seconds_per_flush: float = 10
    points_per_flush: float = 50
    bulk_points_per_active: float = 1_000_000
    blob_gb_per_active: float = 0.2
    requests_per_active_per_day: float = 100
    downloaded_gb_per_active: float = 0.5
    peak: float = 3
    """Busiest hour, divided by the average."""
    utilization: float = 0.6
    """Of a core at the peak."""
    kept_months: float = 12
    database_gb_max: float = 4_000
    """Of one PostgreSQL server; more are nodes of a cluster (Citus)."""


@dataclass(frozen=True)
class Prices:
    """Per month, in any one currency. Stand-ins: replace them by those of your provider."""

    core: float = 25.0
    disk_gb: float = 0.10
    object_gb: float = 0.023
    sent_gb: float = 0.05


@dataclass(frozen=True)
class Needs:
    """What that comes to; flushes and requests are those of the peak, per second."""

    live_runs: float
    flushes: float
    requests: float
    points_per_month: float
    serve_cores: int
    nodes: int
    postgres_cores: int
    wal_mb: float
    postgres_gb: float
    object_gb: float
    sent_gb: float


def compute(users: Assumptions, cost: Measured) -> Needs:
    """Return what the users need."""
    active = users.users * users.active
    live_runs = active * users.live_hours_per_active_per_day / 24
    flushes = live_runs / users.seconds_per_flush
    requests = active * users.requests_per_active_per_day / DAY
    live_points = flushes * users.points_per_flush * MONTH
    bulk_points = active * users.bulk_points_per_active
    points = live_points + bulk_points
    postgres_gb = points * users.kept_months * cost.disk_bytes_per_point / 1e9
    nodes = math.ceil(postgres_gb / users.database_gb_max)

    def cores(ms_per_flush: float, ms_per_request: float, seconds_per_million: float) -> int:
        bulk = bulk_points / 1e6 * seconds_per_million / MONTH
        busy = flushes * ms_per_flush / 1e3 + requests * ms_per_request / 1e3 + bulk
        return math.ceil(busy * users.peak / users.utilization)

    serve_bulk = cost.cpu_seconds_per_million_bulk
    serve_flush = cost.serve_ms_per_flush if nodes == 1 else cost.citus_serve_ms_per_flush
    plain = (cost.postgres_ms_per_flush, cost.postgres_ms_per_request, serve_bulk)
    citus = (
        cost.citus_ms_per_flush,
        cost.citus_ms_per_request,
        cost.citus_cpu_seconds_per_million_bulk,
    )

    return Needs(
        live_runs=live_runs,
        flushes=flushes * users.peak,
        requests=requests * users.peak,
        points_per_month=points,
        serve_cores=cores(serve_flush, cost.serve_ms_per_request, serve_bulk),
        nodes=nodes,
        postgres_cores=cores(*(plain if nodes == 1 else citus)),
        wal_mb=flushes * users.peak * cost.wal_kb_per_flush / 1e3,
        postgres_gb=postgres_gb,
        object_gb=active * users.blob_gb_per_active * users.kept_months,
        sent_gb=active * users.downloaded_gb_per_active,
    )


def needs_table(users: Assumptions, cost: Measured) -> list[str]:
    """Return the table of needs as lines of Markdown."""
    needs = compute(users, cost)
    rows = {
        "runs that are live at the same time, on average": f"{needs.live_runs:,.0f}",
        "flushes/s, busiest hour": f"{needs.flushes:,.0f}",
        "page and API requests/s, busiest hour": f"{needs.requests:,.0f}",
        "points stored per month": f"{needs.points_per_month / 1e9:,.0f} billion",
        "cores of `tbservice serve`": f"{needs.serve_cores:,}",
        "memory of `tbservice serve`": (
            f"{needs.serve_cores * cost.memory_gb_per_serve_core:,.0f} GB"
        ),
        "servers of PostgreSQL, by their disks": describe_servers(needs),
        "cores of PostgreSQL, of all servers, without standbys": f"{needs.postgres_cores:,}",
        "write-ahead log, busiest hour": f"{needs.wal_mb:,.0f} MB/s",
        f"disk of PostgreSQL after {users.kept_months:g} months": (
            f"{needs.postgres_gb / 1e3:,.1f} TB"
        ),
        f"objects after {users.kept_months:g} months": f"{needs.object_gb / 1e3:,.0f} TB",
    }
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]


def describe_servers(needs: Needs) -> str:
    """Return how many there are: one, or the nodes of a cluster."""
    return "1" if needs.nodes == 1 else f"{needs.nodes} nodes of Citus"


def costs_table(users: Assumptions, cost: Measured, price: Prices) -> list[str]:
    """Return the table of costs per month, at the end of the kept months, as lines of Markdown."""
    needs = compute(users, cost)
    items = {
        f"{needs.serve_cores} cores of `serve` x {price.core:g}": needs.serve_cores * price.core,
        f"2 x {needs.postgres_cores} cores of PostgreSQL ({describe_servers(needs)}), with standbys, x {price.core:g}": (
            2 * needs.postgres_cores * price.core
        ),
        f"2 x {needs.postgres_gb:,.0f} GB of their disks x {price.disk_gb:g}": (
            2 * needs.postgres_gb * price.disk_gb
        ),
        f"{needs.object_gb:,.0f} GB of objects x {price.object_gb:g}": (
            needs.object_gb * price.object_gb
        ),
        f"{needs.sent_gb:,.0f} GB sent x {price.sent_gb:g}": needs.sent_gb * price.sent_gb,
    }
    total = sum(items.values())
    rows = [f"| {name} | {value:,.0f} |" for name, value in items.items()]
    per_user = total / users.users
    return [
        "| | per month |",
        "|---|---|",
        *rows,
        f"| sum: {per_user:.3f} per user, {per_user / users.active:.2f} per active one | {total:,.0f} |",
    ]


def main() -> None:
    """Print both tables for the assumptions, costs and prices on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = (Assumptions, Measured, Prices)
    for kind in kinds:
        for each in fields(kind):
            name = f"--{each.name.replace('_', '-')}"
            parser.add_argument(name, type=float, default=each.default)
    given = vars(parser.parse_args())
    users, cost, price = (
        kind(**{each.name: given[each.name] for each in fields(kind)}) for kind in kinds
    )
    print("\n".join([*needs_table(users, cost), "", *costs_table(users, cost, price)]))


if __name__ == "__main__":
    main()
