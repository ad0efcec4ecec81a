"""The commands of `tbservice` that check, back up and restore what a service stores, and its log.

Imports only the standard library, as `tbservice.cli` does. Exit codes: 0 sound or complete, 1
damaged or incomplete (also: failed in the middle), 2 the command could not run.
"""
# ruff: noqa: PLC0415, T201 - each command imports what it needs, and prints its answer

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tbservice.cli_commands import Commands, add_command, add_data_dir

if TYPE_CHECKING:
    from tbservice.settings import Settings
    from tbservice.throttle import Progress, Throttle

AUDIT_FOLLOW_SECONDS: Final = 1.0
"""Seconds between two looks for new records of `tbservice audit --follow`."""


def add_check(commands: Commands) -> None:
    """Add `tbservice check`."""
    text = (
        "prove that everything stored is whole, while the service runs: exit code 0 sound, 1 "
        "damaged, 2 could not run"
    )
    parser = add_command(commands, "check", _check, text, failure_code=2)
    _add_pace(parser)
    parser.add_argument(
        "--content", action="store_true", help="read and hash every object, not only its size"
    )
    parser.add_argument("--no-objects", action="store_true", help="leave out the object store")
    parser.add_argument("--experiment", metavar="ID", help="check this experiment alone")
    parser.add_argument(
        "--after", metavar="ID", help="continue an interrupted check after this experiment"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document at the end")


def add_backup(commands: Commands) -> None:
    """Add `tbservice backup` and `tbservice restore`."""
    text = (
        "back up database and objects to a directory or s3://BUCKET/PREFIX, while the service "
        "runs; objects that an earlier backup has are not copied again. Exit code 0 complete, 1 "
        "incomplete, 2 could not run"
    )
    backup = add_command(commands, "backup", _backup, text, failure_code=2)
    backup.add_argument("target", metavar="TARGET", help="directory or s3://BUCKET/PREFIX")
    _add_pace(backup)
    backup.add_argument(
        "--metrics-file",
        type=Path,
        metavar="FILE",
        help="write the time of the backup for node_exporter's textfile collector",
    )

    text = (
        "restore a backup into an empty database and an empty bucket (TBHUB_* settings, or a new "
        "--data-dir), or verify it: exit code 0 restored or sound, 1 failed or damaged, 2 could "
        "not run"
    )
    restore = commands.add_parser("restore", help=text, description=text)
    restore.add_argument("target", metavar="TARGET", help="directory or s3://BUCKET/PREFIX")
    add_data_dir(restore)
    _add_pace(restore)
    restore.add_argument("--backup", metavar="NAME", help="which one (default: the newest)")
    restore.add_argument(
        "--keep-objects",
        action="store_true",
        help="the bucket may have objects, as after an interrupted restore: copy what is missing",
    )
    restore.add_argument(
        "--erasures-only",
        action="store_true",
        help="restore nothing: delete in a restored database what was erased since the backup",
    )
    restore.add_argument("--list", action="store_true", help="print the names of complete backups")
    restore.add_argument(
        "--check", action="store_true", help="restore nothing, but verify the backup"
    )
    restore.add_argument(
        "--content", action="store_true", help="with --check: read and hash every object, too"
    )
    restore.set_defaults(command=_restore, failure_code=2)


def add_sweep(commands: Commands) -> None:
    """Add `tbservice sweep-objects`."""
    text = (
        "count the objects that nothing refers to, of deleted experiments and runs; with --delete, "
        "delete them now, while the service runs or not"
    )
    parser = add_command(commands, "sweep-objects", _sweep, text, failure_code=2)
    parser.add_argument(
        "--older-than",
        type=_days,
        metavar="DAYS",
        help="leave out what was stored later (default: TBHUB_SWEEP_OLDER_THAN_DAYS)",
    )
    parser.add_argument("--delete", action="store_true", help="delete them, not only count")
    parser.add_argument("--quiet", action="store_true", help="no lines of progress on stderr")


def add_audit(commands: Commands) -> None:
    """Add `tbservice audit` and `tbservice expire-audit`."""
    text = "print who did what, when and from where: a JSON object a line, the oldest first"
    audit = add_command(commands, "audit", _audit, text)
    audit.add_argument(
        "--workspace",
        type=_count,
        metavar="ID",
        help="of this workspace alone; 0: sign-ins and other acts of none",
    )
    audit.add_argument(
        "--last",
        type=_count,
        default=100,
        metavar="N",
        help="begin with so many records of each workspace (default: %(default)s)",
    )
    audit.add_argument("--follow", action="store_true", help="wait for new records, until Ctrl-C")
    text = (
        "delete records of the audit log that are older than TBHUB_AUDIT_DAYS; a record remains "
        "of it, which 'tbservice check' continues from"
    )
    add_command(commands, "expire-audit", _expire_audit, text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text} is no number from 0 on")
    return int(text)


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1
    if not 0 <= days < 2**20:
        raise argparse.ArgumentTypeError(f"{text} is no number of days")
    return days


def _add_pace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rate",
        type=_rate,
        metavar="MIB",
        help="MiB to read a second at most (default: 100; 0: no limit)",
    )
    parser.add_argument("--quiet", action="store_true", help="no lines of progress on stderr")


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1
    if not 0 <= rate < 2**30:  # infinity and NaN are no rates
        raise argparse.ArgumentTypeError(f"{text} is no number of MiB a second")
    return rate


def _pace(options: argparse.Namespace) -> tuple[Throttle, Progress]:
    """Return how fast a command reads, and how it says how far it is."""
    from tbservice.server import maintenance

    return (
        maintenance.make_throttle(options.rate),
        maintenance.make_progress(is_quiet=options.quiet),
    )


def _check(options: argparse.Namespace, settings: Settings) -> int:
    from tbservice.integrity.check import CheckOptions
    from tbservice.server import maintenance

    chosen = CheckOptions(
        options.after,
        options.experiment,
        options.content,
        options.no_objects or options.experiment is not None,
    )
    show = (lambda _damage: None) if options.json else (lambda damage: print(damage, flush=True))
    findings, is_complete = maintenance.check_service(settings, chosen, *_pace(options), show)
    backup = maintenance.find_last_backup(settings)
    if options.json:
        last = None if backup is None else backup.to_json()
        content = {"is_complete": is_complete, "last_backup": last, **findings.to_json()}
        print(json.dumps(content, indent=2))
    else:
        looked = findings.looked
        print(
            f"{looked.experiments:,} experiments, {looked.series:,} series, {looked.points:,} "
            f"points, {looked.blobs:,} blobs ({looked.blob_bytes:,} bytes): "
            f"{len(findings.damage) or 'nothing'} damaged"
        )
        if looked.orphans:
            print(
                f"{looked.orphans:,} objects ({looked.orphan_bytes:,} bytes) that nothing refers "
                "to: they cost space alone (--json lists them)"
            )
        print(f"last backup: {'none is recorded' if backup is None else backup.describe()}")
    if not is_complete:
        after = findings.last_experiment_id
        place = f": continue with --after {after}" if after else ""
        print(f"tbservice: interrupted{place}", file=sys.stderr)
        return 2
    return 0 if findings.is_sound else 1


def _backup(options: argparse.Namespace, settings: Settings) -> int:
    from tbservice.errors import ServiceError, StartupError
    from tbservice.server import maintenance

    data_dir = options.data_dir
    if data_dir and Path(options.target).expanduser().resolve().is_relative_to(data_dir.resolve()):
        raise StartupError("a backup inside of the data directory is lost with it: name another")
    manifest = maintenance.back_up(settings, options.target, *_pace(options))
    try:
        maintenance.record_backup(settings, options.target, manifest)
    except ServiceError as error:
        print(f"tbservice: complete, but not in the audit log: {error}", file=sys.stderr)
    print(
        f"{manifest.name}: database {manifest.database.bytes:,} bytes; {manifest.objects:,} "
        f"objects of {manifest.object_bytes:,} bytes, of which {manifest.copied_objects:,} of "
        f"{manifest.copied_bytes:,} bytes are new"
    )
    if options.metrics_file is not None:
        maintenance.write_metrics(options.metrics_file, manifest)
    for key in manifest.lost:
        print(f"the service has lost this object, or it is damaged: {key}")
    return 1 if manifest.lost else 0


def _restore(options: argparse.Namespace) -> int:
    from tbservice.server import maintenance
    from tbservice.server.command_settings import open_settings

    if options.list:
        with maintenance.open_target_settings(options.target, options.data_dir) as settings:
            for name in maintenance.list_backups(settings, options.target):
                print(name)
        return 0
    if options.check:
        return _verify(options)

    with open_settings(options.data_dir, creates=True) as settings:
        manifest, erased = maintenance.restore_backup(
            settings,
            options.target,
            options.backup,
            *_pace(options),
            keeps_objects=options.keep_objects,
            erases_only=options.erasures_only,
        )
    if not options.erasures_only:
        print(f"{manifest.name} is restored: {_describe_counts(manifest.counts)}")
    if erased:
        counts = ", ".join(f"{kind}: {count}" for kind, count in sorted(erased.items()))
        print(f"erased since the backup, and deleted again ({counts}); the service erases them")
    _print_lost(manifest.lost)
    return 0


def _verify(options: argparse.Namespace) -> int:
    from tbservice.server import maintenance

    with maintenance.open_target_settings(options.target, options.data_dir) as settings:
        manifest, faults = maintenance.verify_backup(
            settings,
            options.target,
            options.backup,
            *_pace(options),
            reads_content=options.content,
        )
    for fault in faults:
        print(fault)
    state = f"{len(faults)} faults" if faults else "sound"
    print(f"{manifest.name}: {state}; {_describe_counts(manifest.counts)}")
    _print_lost(manifest.lost)
    return 1 if faults else 0


def _print_lost(keys: list[str]) -> None:
    if keys:
        print(
            f"{len(keys):,} objects are not in it: the service had lost them, or they were damaged,"
            " when the backup was made (manifest.json has their keys)"
        )


def _describe_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def _sweep(options: argparse.Namespace, settings: Settings) -> None:
    from tbservice.server import maintenance

    swept = maintenance.sweep_objects(
        settings,
        settings.sweep_older_than_days if options.older_than is None else options.older_than,
        maintenance.make_progress(is_quiet=options.quiet),
        deletes=options.delete,
    )
    print(
        f"{swept.blobs:,} blobs ({swept.blob_bytes:,} bytes) that no point refers to, and "
        f"{swept.orphans:,} objects ({swept.orphan_bytes:,} bytes) without a row: "
        + ("deleted" if options.delete else "--delete deletes them")
    )


def _audit(options: argparse.Namespace, settings: Settings) -> None:
    from tbservice.server.administration import read_audit

    try:
        for records in read_audit(settings, options.workspace, options.last):
            for workspace_id, record in records:
                fields = {"workspace_id": workspace_id, **record.to_json()}
                print(json.dumps(fields, ensure_ascii=False), flush=True)
            if not options.follow:
                return
            time.sleep(AUDIT_FOLLOW_SECONDS)
    except KeyboardInterrupt:
        return


def _expire_audit(_options: argparse.Namespace, settings: Settings) -> None:
    from tbservice.server.administration import expire_audit

    deleted = expire_audit(settings)
    print(f"{deleted:,} records older than {settings.audit_days} days deleted", file=sys.stderr)
