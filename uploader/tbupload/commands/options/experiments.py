"""Options of the commands on experiments and their tokens: list, show, share and so on."""

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


def add_share_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload share`."""
    add_experiment(command)
    command.add_argument(
        "--expires",
        metavar="TIME",
        help="when the link expires: 12h, 30d or 8w from now (default: never)",
    )
    command.add_argument("--label", help="a label to recognize the link's token by")
    action = command.add_mutually_exclusive_group()
    action.add_argument("--list", action="store_true", help="list the experiment's tokens instead")
    action.add_argument("--revoke", metavar="TOKEN_ID", help="revoke a token instead")


def add_login_options(_command: argparse.ArgumentParser) -> None:
    """Add nothing: `tbupload login` has only the options that every command has."""
