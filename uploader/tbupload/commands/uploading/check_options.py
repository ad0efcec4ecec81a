"""Combinations of options of an upload that argparse cannot express."""

from __future__ import annotations

import argparse

from tbupload.commands.expiry import experiment_expiry_field
from tbupload.errors import UsageError


def check_options(options: argparse.Namespace) -> None:
    """Raise UsageError for options that exclude or need each other."""
    names = ("name", "description", "visibility", "tag", "note", "expires")
    fields = [name for name in names if getattr(options, name) is not None]

    if options.experiment is not None and fields:
        raise UsageError(
            f"--{fields[0]} is only for a new experiment; to change an existing one, "
            "use `tbupload update-metadata`"
        )

    if options.expires is not None:
        experiment_expiry_field(options.expires)  # malformed: said at once

    for name in ("wait_for_logdir", "end_with_process"):
        if options.one_shot and getattr(options, name):
            raise UsageError(f"--{name.replace('_', '-')} and --one-shot exclude each other")
    if options.commands_from_stdin and options.end_with_process is None:
        raise UsageError("--commands-from-stdin needs --end-with-process")

    new = "--new" if options.new else "--resume never"
    is_new = options.new or options.resume == "never"
    excluding = (
        ("--new", options.new, f"--resume {options.resume}", options.resume in {"must", "allow"}),
        (new, is_new, "--experiment", options.experiment is not None),
        (new, is_new, "--experiment-name", options.experiment_name is not None),
        ("--name", options.name, "--experiment-name", options.experiment_name is not None),
        ("--experiment", options.experiment, "--experiment-name", options.experiment_name),
        ("--resume must", options.resume == "must", "--experiment-name", options.experiment_name),
    )
    for option, is_given, other, is_other_given in excluding:
        if is_given and is_other_given:
            raise UsageError(f"{option} and {other} exclude each other: use only one of them")
