"""Options of the commands on experiments: list, show and so on."""

from __future__ import annotations

import argparse

from tbupload.commands.options.shared import add_experiment, add_visibility


def add_create_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload create`."""
    command.add_argument(
        "--name",
        required=True,
        help="its name; an experiment that has it already is not changed",
    )
    command.add_argument("--description", default="", help="its description, as Markdown")
    add_visibility(command)


def add_list_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload list`."""
    command.add_argument(
        "--query", metavar="TEXT", help="only experiments with this text in name or description"
    )


def add_show_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload show`."""
    add_experiment(command)


def add_update_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload update-metadata`."""
    add_experiment(command)
    command.add_argument("--name", help="the new name")
    command.add_argument("--description", help="the new description, as Markdown")
    add_visibility(command)


def add_delete_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload delete`."""
    add_experiment(command)
    command.add_argument(
        "--yes",
        "-y",
        action="store_true",
        help="do not ask for confirmation; required without a terminal",
    )
