"""The command `move`: experiments to another workspace, compared point by point."""

from __future__ import annotations

import argparse

from tbupload.commands.connect import progress_from_options
from tbupload.commands.exit_codes import EXIT_FAILED
from tbupload.commands.experiment_address import resolve_experiment_id
from tbupload.commands.moving.mover import Moved, Mover
from tbupload.commands.moving.workspaces import MoveWorkspace, open_source, open_target
from tbupload.console.output import print_json, print_line, print_message
from tbupload.console.progress import ConsoleProgress
from tbupload.console.texts import counted, size_text
from tbupload.errors import Unreachable, UploadError
from tbupload.events.malloc_tuning import retain_freed_memory
from tbupload.http.account import AccountClient
from tbupload.http.response_schema import Json


def move(options: argparse.Namespace) -> int:
    """Run `tbupload move ID… --to WORKSPACE`: print the new address of each experiment.

    One that cannot be moved does not stop the others, unless a server is unavailable.
    """
    progress = progress_from_options(options)
    source = open_source(options, progress)
    target = open_target(options, source, progress)
    ids = [resolve_experiment_id(each, source.client) for each in options.experiments]
    mover = Mover(source, target, progress, options.work_dir, is_kept=options.keep)
    if options.dry_run:
        return _dry_run(mover, ids, source, target, options)
    retain_freed_memory()
    code = 0
    for experiment_id in dict.fromkeys(ids):
        try:
            moved = mover.move(experiment_id)
        except UploadError as error:
            if isinstance(error, Unreachable) or len(ids) == 1:
                raise
            _report(error, experiment_id, progress, options)
            code = EXIT_FAILED
        else:
            _print_moved(moved, target, options)
    return code


def _dry_run(
    mover: Mover,
    ids: list[str],
    source: MoveWorkspace,
    target: MoveWorkspace,
    options: argparse.Namespace,
) -> int:
    """Say what would be moved, and whether the other workspace has room for it."""
    code = points = size = 0
    for experiment_id in ids:
        try:
            experiment = mover.check(experiment_id)
        except UploadError as error:
            if isinstance(error, Unreachable):
                raise
            print_message(f"would not move {experiment_id}: {error}")
            code = EXIT_FAILED
            continue
        points += experiment["points"]
        size += experiment["bytes"]
        _print_planned(experiment, target, options)
    room = AccountClient(target.transport).get_limits(target.workspace_id)
    for name, needed in (("points", points), ("experiments", len(ids))):
        left = room.get(name, {}).get("remaining")
        if left is not None and left < needed:
            print_message(
                f"the workspace {target.name!r} has no room: {left:,} {name} are left, and these "
                f"are {needed:,}"
            )
            code = EXIT_FAILED
    if not options.quiet:
        print_message(
            f"nothing was moved: {counted(points, 'point')}, about {size_text(size)}, from "
            f"{source.name!r} to {target.name!r}"
        )
    return code


def _print_planned(experiment: Json, target: MoveWorkspace, options: argparse.Namespace) -> None:
    if options.json:
        names = ("experiment_id", "name", "points", "bytes")
        fields = {name: experiment[name] for name in names}
        print_json({"event": "would_move", "workspace_id": target.workspace_id, **fields})
        return
    details = experiment["details"]
    print_line(
        f"would move {experiment['experiment_id']} ({experiment['name'] or 'unnamed'}): "
        f"{counted(experiment['points'], 'point')}, {details['series']:,} series, "
        f"{counted(details['runs'], 'run')}, about {size_text(experiment['bytes'])}"
    )


def _print_moved(moved: Moved, target: MoveWorkspace, options: argparse.Namespace) -> None:
    if options.json:
        event = "copied" if options.keep else "moved"
        print_json({"event": event, "workspace_id": target.workspace_id, **moved.as_json()})
        return
    print_line(moved.url)
    if options.quiet:
        return
    equal = (
        "" if moved.series is None else f": {moved.points:,} points, {moved.series:,} series, equal"
    )
    verb = "copied" if options.keep else "moved"
    print_message(f"{verb} {moved.experiment_id} to the workspace {target.name!r}{equal}")
    if not options.keep:
        print_message(
            "the old one is in the trash for seven days: `tbupload restore "
            f"{moved.experiment_id}` takes it back"
        )


def _report(
    error: UploadError, experiment_id: str, progress: ConsoleProgress, options: argparse.Namespace
) -> None:
    if options.json:
        print_json({"event": "failed", "experiment_id": experiment_id, "error": str(error)})
    progress.warn(f"{experiment_id}: {error}; continuing with the others")
