"""`tbupload runs` with `--tag`, `--remove-tag` or `--delete`: change the runs that it selects."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import defaultdict
from typing import Final

from tbupload.commands.connect import make_client
from tbupload.commands.exit_codes import EXIT_FAILED
from tbupload.commands.metadata import is_yes
from tbupload.console.output import print_json, print_line, print_message
from tbupload.console.texts import counted
from tbupload.errors import UsageError
from tbupload.http.run_table import RunTableCalls

_OF_LISTS: Final = ("columns", "csv", "format", "group_by", "run_pattern", "list_columns")


def is_change(options: argparse.Namespace) -> bool:
    """Return whether the options change runs in place of listing them."""
    return bool(options.tag or options.remove_tag or options.delete)


def change_runs(options: argparse.Namespace, calls: RunTableCalls) -> int:
    """Tag or delete the runs that `--where` selects: the first `--limit` in the order of `--sort`.

    Every run is selected before the first one is changed. Repeating it tags no run twice.
    """
    _check(options)
    pages = calls.read_pages(
        options.where,
        options.sort or (),
        ("experiment", "run"),
        count_max=options.limit or sys.maxsize,
    )
    listed = (run for page in pages for run in page["runs"])
    runs: dict[str, list[str]] = defaultdict(list)
    for run in itertools.islice(listed, options.limit or None):
        runs[run["experiment"]].append(run["run"])
    if not runs:
        print_message("there are no runs like that")
        return 0
    if options.delete and not options.yes and not _is_confirmed(runs):
        return EXIT_FAILED
    client = make_client(options)
    event = "deleted" if options.delete else "tagged"
    for experiment_id, names in runs.items():
        if options.delete:
            client.delete_runs(experiment_id, names)
        else:
            client.tag_runs(experiment_id, names, options.tag or (), options.remove_tag or ())
        if options.json:
            print_json({"event": event, "experiment_id": experiment_id, "runs": names})
        else:
            print_line(f"{event} {counted(len(names), 'run')} of experiment {experiment_id}")
    return 0


def _check(options: argparse.Namespace) -> None:
    if not options.where:
        raise UsageError(
            "--tag, --remove-tag and --delete change the runs of --where: select some, as in "
            "--where 'experiment = \"ID\"'"
        )
    if options.delete and (options.tag or options.remove_tag):
        raise UsageError("--delete excludes --tag and --remove-tag")
    for name in _OF_LISTS:
        if getattr(options, name):
            raise UsageError(f"--{name.replace('_', '-')} is of lists: nothing was changed")
    if options.delete and not options.yes and not sys.stdin.isatty():
        raise UsageError("without a terminal to ask on, deleting requires --yes")


def _is_confirmed(runs: dict[str, list[str]]) -> bool:
    count = counted(sum(map(len, runs.values())), "run")
    of = counted(len(runs), "experiment")
    print_message(
        f"Delete {count} of {of} with all their data? This cannot be undone. [y/N] ", end=""
    )
    return is_yes()
