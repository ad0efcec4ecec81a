"""Backup, check and restore of a service with 100 million scalars and 2,000 objects: time and CPU of
each command, and the size of the backup.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

from bench import Bench, say
from filling import upload_and_fill
from logdirs import MILLION
from machine import report, spent, told
from service import Service

from support.batches import images, segment, stream
from support.servers import environment_of

COPIES = 100
OBJECTS = 2_000
OBJECT_BYTES = 20_000
OBJECTS_PER_BATCH = 100
BYTES_PER_POINT = 60
"""Of the disk: two databases with their write-ahead logs, and the dump."""


def measure(bench: Bench) -> None:
    """Fill a service, back it up twice, verify the backup, restore it, and check the service."""
    copies = max(2, round(COPIES * bench.scale))
    bench.need_disk(MILLION.points * copies * BYTES_PER_POINT)
    with bench.new_service() as service:
        upload_and_fill(service, copies)
        send_objects(service, max(OBJECTS_PER_BATCH, round(OBJECTS * bench.scale)))
        target = service.directory / "backup"
        source = environment_of(service.live.settings)
        source["TBHUB_BACKUP_DATABASE_URL"] = make_backup_role(service)
        run(service, source, "backup", target)
        report_sizes(target)
        run(service, source, "backup", target)
        run(service, source, "restore", target, "--check", "--content")
        run(service, source, "check")
        run(service, source, "check", "--content")
        with bench.servers.database(migrated=False) as url, bench.servers.settings(url) as empty:
            run(service, environment_of(empty), "restore", target)


def send_objects(service: Service, count: int) -> None:
    """Upload images of random bytes, each an object of its own."""
    say(f"sending {count:,} objects of {OBJECT_BYTES:,} bytes")
    experiment_id = service.api.new_experiment(name="images")
    for number in range(count // OBJECTS_PER_BATCH):
        steps = range(number * OBJECTS_PER_BATCH, (number + 1) * OBJECTS_PER_BATCH)
        series = images("image", steps, [[os.urandom(OBJECT_BYTES)] for _ in steps])
        service.api.write(experiment_id, segment(stream(), number, number + 1, series))


def make_backup_role(service: Service) -> str:
    """Make the role that docs/backup.md describes; return its URL of the service's database."""
    password = secrets.token_hex(16)
    postgres = service.servers.instance.postgres
    with postgres.connect_as_superuser("postgres") as db:
        db.execute(f"CREATE ROLE tbhub_backup LOGIN BYPASSRLS PASSWORD '{password}'")
        db.execute("GRANT pg_read_all_data TO tbhub_backup")
    before, _, after = service.live.database_url.partition("@")
    return f"{before.partition('//')[0]}//tbhub_backup:{password}@{after}"


def run(service: Service, environment: dict[str, str], *arguments: str | Path) -> None:
    """Run a command without a rate; report how long it took, and CPU seconds of it and of the
    servers, which do nothing else meanwhile.
    """
    name = " ".join(each for each in arguments if isinstance(each, str))
    before, times, began = service.cpu_seconds(), os.times(), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "tbservice", *arguments, "--rate", "0", "--quiet"],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    seconds = time.perf_counter() - began
    used = os.times()
    own = used.children_user + used.children_system - times.children_user - times.children_system
    cpu = {"command": own} | spent(before, service.cpu_seconds())
    report(name, f"{seconds:.1f} s")
    say(f"CPU: {told(cpu)}")


def report_sizes(target: Path) -> None:
    """Report the bytes of the newest backup."""
    (dump,) = target.rglob("database.dump")
    report("  the dump", f"{dump.stat().st_size / 2**20:,.0f} MiB")
    size = sum(path.stat().st_size for path in (target / "objects").rglob("*") if path.is_file())
    report("  objects", f"{size / 2**20:,.0f} MiB")
