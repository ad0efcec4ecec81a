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
        "--query",
        metavar="WORDS",
        help="only experiments with words that begin like these, in name, tags, description, "
        "notes, properties, or of who created it",
    )


def add_show_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload show`."""
    add_experiment(command)
